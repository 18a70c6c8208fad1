// Rewrites calls of functions that read the block's position.
#include "compiler/position_copies.h"

#include <clang/AST/DeclTemplate.h>

#include <algorithm>

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;

// Macros of the user may name blockIdx, so the name itself is defined anew.
std::string position_begin() {
    return "#pragma push_macro(\"blockIdx\")\n#pragma push_macro(\"gridDim\")\n"
           "#undef blockIdx\n#undef gridDim\n"
           "#define blockIdx penstock_block_index\n#define gridDim penstock_grid_dimensions\n";
}

std::string position_end() {
    return "#pragma pop_macro(\"gridDim\")\n#pragma pop_macro(\"blockIdx\")\n";
}

const char* const kPositionVariables =
    " [[maybe_unused]] const auto penstock_block_index = penstock_run.block_index();"
    " [[maybe_unused]] const auto penstock_grid_dimensions = penstock_run.grid();";

bool PositionCopies::reads_position(const clang::Stmt* statement) const {
    if (statement == nullptr) return false;
    if (const auto* member = dyn_cast<clang::MemberExpr>(statement)) {
        const Position position = position_of(member);
        if (position == Position::kBlockIndex || position == Position::kGrid) return true;
    }
    return std::any_of(statement->child_begin(), statement->child_end(),
                       [&](const clang::Stmt* child) { return reads_position(child); });
}

// Returns whether the statement calls a function that gets `penstock_run`.
bool PositionCopies::calls_copy(const clang::Stmt* statement) {
    if (statement == nullptr) return false;
    const auto* call = dyn_cast<clang::CallExpr>(statement);
    if (call != nullptr && !llvm::isa<clang::CXXOperatorCallExpr>(call) &&
        reads_block(call->getDirectCallee()))
        return true;
    return std::any_of(statement->child_begin(), statement->child_end(),
                       [&](const clang::Stmt* child) { return calls_copy(child); });
}

void PositionCopies::edit_lambda(const clang::LambdaExpr* lambda, Edits& edits) {
    if (lambda->getCaptureDefault() != clang::LCD_None) return;
    std::vector<const clang::Stmt*> bodies{lambda->getBody()};
    if (const auto* generic = lambda->getCallOperator()->getDescribedFunctionTemplate())
        for (const clang::FunctionDecl* one : generic->specializations())
            if (one->hasBody()) bodies.push_back(one->getBody());
    std::string captures;
    if (reads_position(lambda->getBody()))
        captures = "penstock_block_index, penstock_grid_dimensions";
    if (std::any_of(bodies.begin(), bodies.end(),
                    [&](const clang::Stmt* body) { return calls_copy(body); }))
        captures += std::string(captures.empty() ? "" : ", ") + "&penstock_run";
    if (captures.empty()) return;
    const unsigned open = text_.offset(lambda->getIntroducerRange().getBegin());
    if (!edited_.insert(open).second) return;
    edits.insert(open + 1, captures + (lambda->capture_size() != 0 ? ", " : ""));
}

bool PositionCopies::reads_block(const clang::FunctionDecl* callee) {
    return callee != nullptr && call_of(callee) == Call::kNone &&
           text_.holds(callee->getLocation()) && callees_.summary(callee).reads_block;
}

void PositionCopies::refuse(clang::SourceLocation at, const clang::FunctionDecl* callee,
                            const std::string& why) {
    if (!edited_.insert(text_.offset(at)).second) return;
    diagnostics_.error(at, "'" + callee->getNameAsString() + "' reads blockIdx or gridDim, and " +
                               why + "; pass it the index as an argument");
}

// Returns whether a function is the body of a lambda whose text is edited too.
bool PositionCopies::is_edited_lambda(const clang::FunctionDecl* callee,
                                      const clang::FunctionDecl* function) const {
    const auto* method = dyn_cast<clang::CXXMethodDecl>(callee);
    const clang::FunctionDecl* owner = nullptr;
    while (method != nullptr && method->getParent()->isLambda()) {
        owner = dyn_cast<clang::FunctionDecl>(method->getParent()->getDeclContext());
        method = dyn_cast_or_null<clang::CXXMethodDecl>(owner);
    }
    if (owner == nullptr) return false;
    const clang::FunctionDecl* pattern = owner->getTemplateInstantiationPattern();
    return owner == function || is_kernel(owner) ||
           std::find(wanted_.begin(), wanted_.end(), pattern == nullptr ? owner : pattern) !=
               wanted_.end();
}

void PositionCopies::edit_call(const clang::CallExpr* call, const clang::FunctionDecl* function,
                               unsigned before, Edits& edits) {
    const clang::FunctionDecl* callee = call->getDirectCallee();
    if (!reads_block(callee) || is_edited_lambda(callee, function)) return;
    const auto* reference = dyn_cast<clang::DeclRefExpr>(plain(call->getCallee()));
    const auto refuse = [&](const std::string& why) {
        this->refuse(call->getBeginLoc(), callee, why);
    };
    if (llvm::isa<clang::CXXOperatorCallExpr>(call)) return refuse("is an operator");
    if (reference == nullptr || llvm::isa<clang::CXXMethodDecl>(callee))
        return refuse("is a member function");
    const clang::FunctionDecl* pattern = callee->getTemplateInstantiationPattern();
    const clang::FunctionDecl* definition = nullptr;
    if (pattern == nullptr) pattern = callee;
    if (!pattern->hasBody(definition)) return refuse("has no body here");
    if (text_.span(definition->getSourceRange()).end > before)
        return refuse("is defined behind the kernel");
    for (const auto* parameter : definition->parameters())
        if (parameter->hasDefaultArg()) return refuse("has default arguments");
    if (!text_.is_plain(call->getBeginLoc()) || !text_.is_plain(call->getRParenLoc()))
        return refuse("is called by a macro");
    const unsigned name = text_.offset(reference->getLocation());
    if (!edited_.insert(name).second) return;
    if (std::find(wanted_.begin(), wanted_.end(), definition) == wanted_.end())
        wanted_.push_back(definition);
    edits.insert(text_.token_from(name)->end(), "__preemptible");
    edits.insert(text_.offset(call->getRParenLoc()),
                 definition->getNumParams() == 0 ? "penstock_run" : ", penstock_run");
}

// Returns whether a function's name stands in a call of it.
static bool is_called(const Accesses& accesses, const clang::DeclRefExpr* named) {
    const clang::Stmt* above = accesses.parent(named);
    while (llvm::isa_and_nonnull<clang::ImplicitCastExpr, clang::ParenExpr,
                                 clang::SubstNonTypeTemplateParmExpr>(above))
        above = accesses.parent(above);
    const auto* call = llvm::dyn_cast_or_null<clang::CallExpr>(above);
    return call != nullptr && plain(call->getCallee()) == named;
}

void PositionCopies::edit_calls(const clang::FunctionDecl* function, unsigned before,
                                Edits& edits) {
    const Accesses accesses(function);
    for (const clang::Stmt* statement : accesses.statements()) {
        if (const auto* call = dyn_cast<clang::CallExpr>(statement))
            edit_call(call, function, before, edits);
        const auto* made = dyn_cast<clang::CXXConstructExpr>(statement);
        if (made != nullptr && reads_block(made->getConstructor()))
            refuse(made->getBeginLoc(), made->getConstructor(), "is a constructor");
        const auto* named = dyn_cast<clang::DeclRefExpr>(statement);
        const auto* value = named == nullptr ? nullptr
                                             : dyn_cast<clang::FunctionDecl>(named->getDecl());
        if (value != nullptr && !is_called(accesses, named) && reads_block(value))
            refuse(named->getBeginLoc(), value, "is called through its address");
        if (const auto* lambda = dyn_cast<clang::LambdaExpr>(statement)) edit_lambda(lambda, edits);
    }
}

std::vector<PositionCopies::Copy> PositionCopies::copies(const std::string& presumed_file) {
    std::vector<Copy> found;
    for (size_t i = 0; i < wanted_.size(); ++i) {  // the list grows meanwhile
        const clang::FunctionDecl* function = wanted_[i];
        const auto* head = function->getDescribedFunctionTemplate();
        const Span span = text_.span(head != nullptr ? head->getSourceRange()
                                                     : function->getSourceRange());
        Edits edits(text_, presumed_file);
        std::vector<const clang::FunctionDecl*> instances;
        if (head != nullptr)
            for (const auto* one : head->specializations()) instances.push_back(one);
        else
            instances.push_back(function);
        for (const clang::FunctionDecl* one : instances)
            if (one->hasBody()) edit_calls(one, span.end, edits);
        const RawToken* name = text_.token_from(text_.offset(function->getLocation()));
        edits.insert(name->end(), "__preemptible");
        const unsigned close = text_.closing(text_.token_from(name->end())->offset);
        edits.insert(close, std::string(function->getNumParams() == 0 ? "" : ", ") +
                                "const ::penstock::preemption::Run& penstock_run");
        const auto* body = clang::cast<clang::CompoundStmt>(function->getBody());
        edits.insert(text_.offset(body->getLBracLoc()) + 1,
                     std::string(" static_cast<void>(penstock_run);") + kPositionVariables);
        found.push_back({span.end, "\n" + position_begin() +
                                       edits.line_directive(span.begin).substr(1) +
                                       edits.apply(span) + "\n" + position_end()});
        found.back().text += edits.line_directive(span.end).substr(1);
    }
    return found;
}

}  // namespace penstock::compiler
