// Finds kernels, their instantiations, registrations and points.
#include "compiler/kernels.h"

#include <clang/AST/ParentMap.h>
#include <clang/AST/RecursiveASTVisitor.h>

#include <algorithm>

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

unsigned key_of(const SourceText& text, const clang::Decl* declaration) {
    // A macro may declare several variables at one place of the file.
    const clang::SourceLocation at = declaration->getLocation();
    return at.isMacroID() ? static_cast<unsigned>(at.getRawEncoding()) : text.offset(at);
}

unsigned key_of(const SourceText& text, const clang::CallExpr* call) {
    return text.offset(call->getBeginLoc());
}

const clang::CallExpr* call_in(const clang::Expr* expression) {
    for (;;) {
        expression = expression == nullptr ? nullptr : expression->IgnoreParenImpCasts();
        if (const auto* cast = dyn_cast_or_null<clang::ExplicitCastExpr>(expression))
            expression = cast->getSubExpr();
        else if (const auto* whole = dyn_cast_or_null<clang::FullExpr>(expression))
            expression = whole->getSubExpr();
        else if (const auto* bound = dyn_cast_or_null<clang::MaterializeTemporaryExpr>(expression))
            expression = bound->getSubExpr();
        else if (const auto* list = dyn_cast_or_null<clang::ParenListExpr>(expression))
            expression = list->getNumExprs() == 1 ? list->getExpr(0) : nullptr;
        else if (const auto* construct = dyn_cast_or_null<clang::CXXConstructExpr>(expression))
            expression = construct->getNumArgs() == 1 ? construct->getArg(0) : nullptr;
        else if (const auto* dependent = dyn_cast_or_null<clang::CXXUnresolvedConstructExpr>(
                     expression))
            expression = dependent->getNumArgs() == 1 ? dependent->getArg(0) : nullptr;
        else
            return dyn_cast_or_null<clang::CallExpr>(expression);
    }
}

namespace {

bool is_marked(Call kind) { return kind == Call::kRead || kind == Call::kWait; }
bool is_marker(Call kind) {
    return kind == Call::kPoint || kind == Call::kYield || kind == Call::kYieldUntil;
}

class Finder : public clang::RecursiveASTVisitor<Finder> {
public:
    explicit Finder(const SourceText& text) : text_(text) {}
    bool shouldVisitTemplateInstantiations() const { return true; }

    bool VisitFunctionDecl(clang::FunctionDecl* function) {
        if (!function->doesThisDeclarationHaveABody() || !text_.holds(function->getLocation()))
            return true;
        const auto* pattern = function->getTemplateInstantiationPattern();
        if (pattern == nullptr && !function->isDependentContext()) pattern = function;
        if (function->isTemplateInstantiation() || !function->isDependentContext())
            instances[pattern == nullptr ? function : pattern].push_back(function);
        if (!function->isTemplateInstantiation()) texts.push_back(function);
        return true;
    }

    bool VisitVarDecl(clang::VarDecl* variable) {
        if (variable->hasInit() && text_.holds(variable->getLocation()) &&
            variable->getType()->isRecordType() &&
            variable->getType().getAsString().find("KernelRegistration") != std::string::npos)
            registrations.push_back(variable);
        return true;
    }

    std::vector<const clang::FunctionDecl*> texts;
    std::map<const clang::FunctionDecl*, std::vector<const clang::FunctionDecl*>> instances;
    std::vector<const clang::VarDecl*> registrations;

private:
    const SourceText& text_;
};

// Collects the calls of a statement that the compiler knows.
void find_calls(const clang::Stmt* statement, std::vector<const clang::CallExpr*>& found) {
    if (statement == nullptr) return;
    if (const auto* call = dyn_cast<clang::CallExpr>(statement))
        if (const Call kind = call_of(call); is_marked(kind) || is_marker(kind))
            found.push_back(call);
    for (const clang::Stmt* child : statement->children()) find_calls(child, found);
}

// The points of one function.
class PointFinder {
public:
    PointFinder(const SourceText& text, Diagnostics& diagnostics,
                const clang::FunctionDecl* function)
        : text_(text),
          diagnostics_(diagnostics),
          function_(function),
          parents_(function->getBody()) {
        find_calls(function->getBody(), calls_);
    }

    std::vector<Point> find(const std::vector<clang::SourceLocation>& pragmas) {
        std::vector<Point> found;
        for (const clang::SourceLocation at : pragmas) find_marked(at, found);
        for (const clang::CallExpr* call : calls_)
            if (is_marker(call_of(call))) find_marker(call, found);
        std::sort(found.begin(), found.end(),
                  [](const Point& a, const Point& b) { return a.key < b.key; });
        for (unsigned i = 0; i < found.size(); ++i) found[i].number = i + 1;
        return found;
    }

private:
    // Returns the statement of a list, or the body of an if or a loop, that an expression is in.
    const clang::Stmt* statement_around(const clang::Stmt* at) const {
        for (const clang::Stmt* above = parents_.getParent(at); above != nullptr;
             at = above, above = parents_.getParent(at)) {
            if (isa<clang::CompoundStmt>(above)) return at;
            if (const auto* choice = dyn_cast<clang::IfStmt>(above))
                if (choice->getThen() == at || choice->getElse() == at) return at;
            if (const auto* loop = dyn_cast<clang::ForStmt>(above))
                if (loop->getBody() == at) return at;
            if (const auto* loop = dyn_cast<clang::WhileStmt>(above))
                if (loop->getBody() == at) return at;
            if (const auto* loop = dyn_cast<clang::DoStmt>(above))
                if (loop->getBody() == at) return at;
            if (isa<clang::SwitchCase, clang::LabelStmt, clang::CXXForRangeStmt>(above)) return at;
        }
        return at;
    }

    void find_marked(clang::SourceLocation pragma, std::vector<Point>& found) {
        const unsigned at = text_.offset(pragma);
        const size_t end = std::min(text_.text().find('\n', at), text_.text().size());
        const RawToken* next = text_.token_from(static_cast<unsigned>(end));
        const clang::Stmt* statement = nullptr;
        std::vector<const clang::CallExpr*> marked;
        for (const clang::CallExpr* call : calls_) {
            const clang::Stmt* around = statement_around(call);
            if (next == nullptr || text_.span(around->getSourceRange()).begin != next->offset)
                continue;
            statement = around;
            if (is_marked(call_of(call))) marked.push_back(call);
        }
        if (marked.size() != 1) {
            diagnostics_.error(
                pragma, marked.empty() ? "#pragma preempt belongs ahead of a statement that calls "
                                         "gread or gwait; write "
                                         "penstock::preempt_point(fs, handle) for a wait elsewhere"
                                       : "a statement with #pragma preempt has one call of gread "
                                         "or gwait; give each a "
                                         "statement of its own");
            return;
        }
        Point point;
        point.pragma = {at, static_cast<unsigned>(end)};
        if (!check_place(marked[0], statement) || !check_form(marked[0], statement)) return;
        add(point, marked[0], statement, found);
    }

    void find_marker(const clang::CallExpr* call, std::vector<Point>& found) {
        const clang::Stmt* statement = statement_around(call);
        if (!check_place(call, statement)) return;
        const auto* expression = dyn_cast<clang::Expr>(statement);
        if (expression == nullptr || call_in(expression) != call) {
            diagnostics_.error(call->getBeginLoc(),
                               callee_name(call) + " is a point: make it a statement of its own");
            return;
        }
        add(Point(), call, statement, found);
    }

    void add(Point point, const clang::CallExpr* call, const clang::Stmt* statement,
             std::vector<Point>& found) {
        point.kind = call_of(call);
        point.key = key_of(text_, call);
        point.line = text_.line(point.key);
        point.statement = statement;
        point.call = call;
        found.push_back(point);
    }

    bool check_form(const clang::CallExpr* call, const clang::Stmt* statement) {
        const clang::CallExpr* found = nullptr;
        if (const auto* declarations = dyn_cast<clang::DeclStmt>(statement)) {
            const auto* variable = declarations->isSingleDecl()
                                       ? dyn_cast<clang::VarDecl>(declarations->getSingleDecl())
                                       : nullptr;
            if (variable != nullptr) found = call_in(variable->getInit());
        } else if (const auto* expression = dyn_cast<clang::Expr>(statement)) {
            found = call_in(expression);
            const clang::Expr* bare = expression->IgnoreParenImpCasts();
            if (const auto* whole = dyn_cast<clang::FullExpr>(bare)) bare = whole->getSubExpr();
            if (const auto* binary = dyn_cast<clang::BinaryOperator>(bare))
                if (binary->isAssignmentOp()) found = call_in(binary->getRHS());
        }
        if (found == call) return true;
        diagnostics_.error(call->getBeginLoc(),
                           "a call with #pragma preempt is a statement, the right side of an "
                           "assignment, or the initialiser of one variable; keep its result in a "
                           "variable, and use that in the next statement");
        return false;
    }

    bool check_place(const clang::CallExpr* call, const clang::Stmt* statement) {
        const auto refuse = [&](const std::string& where) {
            diagnostics_.error(call->getBeginLoc(), "a point may not be " + where);
            return false;
        };
        if (call->getBeginLoc().isMacroID() || statement->getBeginLoc().isMacroID() ||
            call->getRParenLoc().isMacroID())
            return refuse("in the expansion of a macro; write the call out");
        for (const clang::Stmt* at = parents_.getParent(statement); at != nullptr;
             at = parents_.getParent(at)) {
            if (isa<clang::LambdaExpr>(at))
                return refuse("in a lambda; move the call into the kernel itself");
            if (isa<clang::SwitchStmt, clang::SwitchCase>(at))
                return refuse("in a switch; use if and else");
            if (isa<clang::CXXForRangeStmt>(at))
                return refuse("in a range-for; count with an index");
            if (isa<clang::CXXTryStmt, clang::CXXCatchStmt>(at))
                return refuse("in try; move it out of the try block");
            if (isa<clang::LabelStmt>(at)) return refuse("under a label; use a loop");
            const bool known = isa<clang::CompoundStmt, clang::IfStmt, clang::ForStmt,
                                   clang::WhileStmt, clang::DoStmt, clang::AttributedStmt>(at);
            if (!known) return refuse(std::string("in a ") + at->getStmtClassName());
            if (at->getBeginLoc().isMacroID())
                return refuse("inside of a macro's expansion; write the statement out");
            if (!check_conditions(call, at)) return false;
        }
        return true;
    }

    bool check_conditions(const clang::CallExpr* call, const clang::Stmt* at) {
        const clang::VarDecl* variable = nullptr;
        if (const auto* choice = dyn_cast<clang::IfStmt>(at)) {
            variable = choice->getConditionVariable();
            if (choice->isConsteval()) variable = nullptr;
        }
        if (const auto* loop = dyn_cast<clang::WhileStmt>(at))
            variable = loop->getConditionVariable();
        if (const auto* loop = dyn_cast<clang::ForStmt>(at))
            variable = loop->getConditionVariable();
        if (variable == nullptr) return true;
        diagnostics_.error(call->getBeginLoc(),
                           "a point may not be under a condition that declares a variable; declare "
                           "it in a statement ahead");
        diagnostics_.note(variable->getLocation(), "the variable is declared here");
        return false;
    }

    const SourceText& text_;
    Diagnostics& diagnostics_;
    const clang::FunctionDecl* function_;
    clang::ParentMap parents_;
    std::vector<const clang::CallExpr*> calls_;
};

// Finds the name of the function in PENSTOCK_KERNEL(...).
const clang::DeclRefExpr* reference_in(const clang::Stmt* statement) {
    if (statement == nullptr) return nullptr;
    if (const auto* reference = dyn_cast<clang::DeclRefExpr>(statement))
        if (isa<clang::FunctionDecl>(reference->getDecl())) return reference;
    for (const clang::Stmt* child : statement->children())
        if (const auto* found = reference_in(child)) return found;
    return nullptr;
}

void add_registrations(const SourceText& text, const Finder& finder, const Directives& directives,
                       std::vector<Kernel>& kernels) {
    const clang::SourceManager& manager = text.manager();
    for (const clang::VarDecl* variable : finder.registrations) {
        const clang::DeclRefExpr* reference = reference_in(variable->getInit());
        if (reference == nullptr) continue;
        const auto* function = clang::cast<clang::FunctionDecl>(reference->getDecl());
        const auto* pattern = function->getTemplateInstantiationPattern();
        const unsigned at = manager.getFileOffset(manager.getExpansionLoc(variable->getLocation()));
        for (const clang::SourceRange use : directives.kernels) {
            const Span span = text.span(use);
            if (!span.holds(at)) continue;
            const RawToken* name = text.token_from(span.begin);
            const RawToken* open = text.token_from(name->end());
            const unsigned close = text.closing(open->offset);
            const Span inside{open->end(), close};
            const unsigned end = text.end_offset(manager.getSpellingLoc(reference->getLocation()));
            if (!inside.holds(end - 1)) continue;
            for (Kernel& kernel : kernels)
                if (kernel.pattern == (pattern == nullptr ? function : pattern) ||
                    kernel.pattern->getCanonicalDecl() == function->getCanonicalDecl())
                    kernel.registrations.push_back(
                        {text.text(inside), end - inside.begin, close + 1});
        }
    }
}

}  // namespace

std::vector<Kernel> find_kernels(const SourceText& text, const Directives& directives,
                                 Diagnostics& diagnostics) {
    Finder finder(text);
    finder.TraverseDecl(text.context().getTranslationUnitDecl());
    std::vector<Kernel> kernels;
    std::vector<clang::SourceLocation> left;
    for (const clang::SourceLocation at : directives.points) {
        if (text.holds(at))
            left.push_back(at);
        else
            diagnostics.error(at,
                              "a point may not be in an included file; move the kernel into "
                              "the file that is compiled");
    }
    for (const clang::FunctionDecl* function : finder.texts) {
        const Span span = text.span(function->getSourceRange());
        std::vector<clang::SourceLocation> pragmas;
        const auto inside = std::stable_partition(
            left.begin(), left.end(),
            [&](clang::SourceLocation at) { return !span.holds(text.offset(at)); });
        pragmas.assign(inside, left.end());
        if (function->isCXXClassMember() && !function->isOutOfLine() && pragmas.empty() &&
            !is_kernel(function))
            continue;
        if (!is_kernel(function)) {
            std::vector<const clang::CallExpr*> calls;
            find_calls(function->getBody(), calls);
            for (const clang::CallExpr* call : calls)
                if (is_marker(call_of(call))) pragmas.push_back(call->getBeginLoc());
            left.erase(inside, left.end());
            for (const clang::SourceLocation at : pragmas)
                diagnostics.error(at,
                                  "a point may not be in a device function; move it into the "
                                  "kernel, and split the function there");
            continue;
        }
        left.erase(inside, left.end());
        Kernel kernel;
        kernel.pattern = function;
        kernel.head = function->getDescribedFunctionTemplate();
        kernel.points = PointFinder(text, diagnostics, function).find(pragmas);
        if (kernel.points.empty()) continue;
        kernel.instances = finder.instances[function];
        kernels.push_back(kernel);
    }
    for (const clang::SourceLocation at : left)
        diagnostics.error(at, "#pragma preempt is outside of a kernel");
    add_registrations(text, finder, directives, kernels);
    return kernels;
}

}  // namespace penstock::compiler
