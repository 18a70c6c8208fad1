// The part of BodyWriter that guards declarations, and loads what was saved.
#include <clang/AST/DeclCXX.h>
#include <clang/AST/PrettyPrinter.h>
#include <clang/Lex/Lexer.h>

#include "compiler/body_writer.h"
#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

// The name of a variable's type, as it may be written at its declaration.
std::string BodyWriter::type_text(const clang::VarDecl* variable) const {
    const clang::QualType written = variable->getTypeSourceInfo() != nullptr
                                        ? variable->getTypeSourceInfo()->getType()
                                        : variable->getType();
    if (written->getContainedAutoType() != nullptr) {
        const Span init = text_.span(variable->getInit()->getSourceRange());
        return "std::decay_t<decltype(" + text_.text(init) + ")>";
    }
    clang::PrintingPolicy policy(text_.context().getLangOpts());
    policy.SuppressTagKeyword = true;
    policy.Bool = true;
    return written.getUnqualifiedType().getAsString(policy);
}

std::string BodyWriter::loaded(const clang::VarDecl* variable, const std::string& type) const {
    for (const SavedPart* part : frame_.parts_of(key_of(text_, variable)))
        return std::string("penstock_run.") + (part->per_block ? "load_block<" : "load<") + type +
               ">(" + std::to_string(part->place) + ")";
    if (variable->getType()->isAnyPointerType()) return "static_cast<" + type + ">(nullptr)";
    return type.find_first_of(" *<:") == std::string::npos ? type + "{}"
                                                           : "std::decay_t<" + type + ">{}";
}

std::string BodyWriter::load_after(const clang::VarDecl* variable) const {
    std::string result;
    for (const SavedPart* part : frame_.parts_of(key_of(text_, variable)))
        result += std::string(" penstock_run.") +
                  (part->per_block ? "load_block_into(" : "load_into(") + part->name + ", " +
                  std::to_string(part->place) + ");";
    return result;
}

static bool is_uninitialised(const clang::VarDecl* variable) {
    if (!variable->hasInit()) return true;
    const auto* construct = dyn_cast<clang::CXXConstructExpr>(
        variable->getInit()->IgnoreImplicit());
    return construct != nullptr && construct->getNumArgs() == 0 &&
           !construct->isListInitialization() &&
           (construct->getConstructor()->isTrivial() ||
            construct->getConstructor()->isConstexpr()) &&
           construct->getParenOrBraceRange().isInvalid();
}

// Makes each element of an initialiser list conditional, so that a block that comes back does not
// evaluate it.
bool BodyWriter::guard_elements(const clang::VarDecl* variable) {
    const clang::Expr* init = variable->getInit()->IgnoreImplicit();
    std::vector<const clang::Expr*> leaves;
    std::vector<const clang::InitListExpr*> lists;
    const auto* list = dyn_cast<clang::InitListExpr>(init);
    if (list == nullptr) return false;
    lists.push_back(list->isSemanticForm() && list->getSyntacticForm() != nullptr
                        ? list->getSyntacticForm()
                        : list);
    while (!lists.empty()) {
        const auto* one = lists.back();
        lists.pop_back();
        for (const clang::Expr* element : one->inits()) {
            if (const auto* inner = dyn_cast<clang::InitListExpr>(element))
                lists.push_back(inner);
            else if (isa<clang::DesignatedInitExpr, clang::ParenListExpr>(element))
                return false;
            else
                leaves.push_back(element);
        }
    }
    for (const clang::Expr* leaf : leaves) {
        clang::Expr::EvalResult value;
        if (!leaf->isValueDependent() && leaf->EvaluateAsRValue(value, text_.context()) &&
            !value.HasSideEffects)
            continue;
        const Span span = text_.span(leaf->getSourceRange());
        const std::string type = "std::decay_t<decltype(" + text_.text(span) + ")>";
        edits_.insert(span.begin, "penstock_at == 0 ? ");
        edits_.insert(span.end, " : " + type + "{}");
    }
    return true;
}

// An array that is loaded behind its declaration is no longer constant.
bool BodyWriter::drop_const(const clang::VarDecl* variable, const clang::DeclStmt* statement) {
    const clang::QualType element = text_.context().getBaseElementType(variable->getType());
    if (!element.isConstQualified()) return true;
    const unsigned name = text_.offset(variable->getLocation());
    bool found = false;
    for (const RawToken* token = text_.token_from(text_.offset(statement->getBeginLoc()));
         token != nullptr && token->offset < name && !element->isAnyPointerType();
         token = text_.token_from(token->end())) {
        if (text_.token_text(*token) != "const") continue;
        edits_.replace({token->offset, token->end()}, "");
        found = true;
    }
    if (!found)
        diagnostics_.error(variable->getLocation(),
                           "the constant array '" + variable->getNameAsString() +
                               "' is live at a point; leave out const, or end its scope before");
    return found;
}

// T x = init becomes T x = penstock_at == 0 ? static_cast<T>(init) : load.
bool BodyWriter::guard_initialiser(const clang::VarDecl* variable) {
    const auto found = frame_.variables.find(key_of(text_, variable));
    if (found == frame_.variables.end() || found->second.treatment != Treatment::kGuarded)
        return true;
    if (!check_plain(variable->getLocation(), "'" + variable->getNameAsString() + "'"))
        return false;
    const std::string type = type_text(variable);
    const std::string otherwise = " : " + loaded(variable, type);
    const RawToken* name = text_.token_from(text_.offset(variable->getLocation()));
    const RawToken* next = text_.token_from(name->end());
    const bool one_word = type.find_first_of(" *<:(") == std::string::npos;
    // T{...} and T(...) need a name of one word.
    const std::string made = one_word ? type : "std::decay_t<" + type + ">";
    if (next != nullptr && next->first == '=') {
        const RawToken* value = text_.token_from(next->end());
        if (value != nullptr && value->first == '{') {
            edits_.insert(value->offset, "penstock_at == 0 ? " + made);
            edits_.insert(text_.closing(value->offset) + 1, otherwise);
            return true;
        }
        const Span init = text_.span(variable->getInit()->getSourceRange());
        edits_.insert(value->offset, "penstock_at == 0 ? static_cast<" + type + ">(");
        edits_.insert(init.end, ")" + otherwise);
        return true;
    }
    if (next != nullptr && (next->first == '{' || next->first == '(')) {
        edits_.insert(next->offset, " = penstock_at == 0 ? " + made);
        edits_.insert(text_.closing(next->offset) + 1, otherwise);
        return true;
    }
    diagnostics_.error(variable->getLocation(),
                       "the declaration of '" + variable->getNameAsString() +
                           "' ahead of a point cannot be guarded; write it as TYPE NAME = VALUE");
    return false;
}

std::string BodyWriter::restore_shared(const clang::DeclStmt* statement) const {
    std::string loads;
    for (const auto* one : statement->decls()) {
        const auto* variable = dyn_cast<clang::VarDecl>(one);
        if (variable == nullptr || !is_shared(variable)) continue;
        for (const SavedPart* part : frame_.parts_of(key_of(text_, variable)))
            loads += " " + unless_read_whole(part->replaced, "sizeof " + part->name) +
                     "penstock_run.load_shared(&" + part->name + ", sizeof " + part->name + ", " +
                     std::to_string(part->place) + ");";
    }
    if (loads.empty()) return "";
    return " if (penstock_at != 0) {" + loads + " __syncthreads(); }";
}

bool BodyWriter::is_moved(const clang::DeclStmt* statement) const {
    for (const auto* one : statement->decls())
        if (frame_.moved.count(key_of(text_, one)) != 0) return true;
    return false;
}

void BodyWriter::write_declaration(const clang::DeclStmt* statement) {
    const Span span = text_.statement(statement);
    std::string after;
    for (const auto* one : statement->decls()) {
        const auto* variable = dyn_cast<clang::VarDecl>(one);
        if (variable == nullptr) continue;
        if (is_shared(variable)) continue;
        const auto found = frame_.variables.find(key_of(text_, variable));
        if (found == frame_.variables.end()) continue;
        if (found->second.treatment == Treatment::kReloaded) {
            if (!check_plain(statement->getBeginLoc(), "'" + variable->getNameAsString() + "'") ||
                !drop_const(variable, statement))
                return;
            after += load_after(variable);
        }
        if (found->second.treatment != Treatment::kGuarded) continue;
        if (const auto* bindings = dyn_cast<clang::DecompositionDecl>(variable)) {
            write_bindings(bindings, statement);
            return;
        }
        if (is_uninitialised(variable)) {
            after += load_after(variable);
            continue;
        }
        if (!variable->getType()->isArrayType()) {
            if (!guard_initialiser(variable)) return;
            continue;
        }
        if (!check_plain(statement->getBeginLoc(), "'" + variable->getNameAsString() + "'")) return;
        if (!guard_elements(variable)) {
            diagnostics_.error(variable->getLocation(),
                               "the initialiser of array '" + variable->getNameAsString() +
                                   "' ahead of a point cannot be guarded; assign its elements");
            return;
        }
        const std::string load = load_after(variable);
        if (!load.empty() && !drop_const(variable, statement)) return;
        after += load;
    }
    if (!after.empty()) edits_.insert(span.end, " if (penstock_at != 0) {" + after + " }");
    const std::string shared = restore_shared(statement);
    if (!shared.empty() && !is_moved(statement)) edits_.insert(span.end, shared);
}

// auto [a, b] = f() becomes auto penstock_bound_N = guarded; auto& [a, b] = penstock_bound_N.
void BodyWriter::write_bindings(const clang::DecompositionDecl* bindings,
                                const clang::DeclStmt* statement) {
    if (!check_plain(statement->getBeginLoc(), "a structured binding")) return;
    if (bindings->getType()->isArrayType()) {
        diagnostics_.error(bindings->getLocation(),
                           "a structured binding of an array ahead of a point cannot be guarded; "
                           "use its elements");
        return;
    }
    const unsigned begin = text_.span(statement->getSourceRange()).begin;
    const RawToken* open = text_.token_from(text_.offset(bindings->getLocation()));
    while (open != nullptr && open->first != '[') open = text_.token_from(open->end());
    const unsigned close = text_.closing(open->offset);
    const Span init = text_.span(bindings->getInit()->getSourceRange());
    const std::string name = bound_name(key_of(text_, bindings));
    const std::string type = "std::decay_t<decltype(" + text_.text(init) + ")>";
    std::string load = "std::decay_t<" + type + ">{}";
    std::string names = text_.text(Span{open->offset, close + 1});
    for (const SavedPart* part : frame_.parts_of(key_of(text_, bindings)))
        load = std::string("penstock_run.") + (part->per_block ? "load_block<" : "load<") + type +
               ">(" + std::to_string(part->place) + ")";
    const std::string constant = bindings->getType().isConstQualified() ? "const auto" : "auto";
    edits_.replace({begin, init.end}, constant + " " + name + " = penstock_at == 0 ? static_cast<" +
                                          type + ">(" + text_.text(init) + ") : " + load +
                                          "; auto& " + names + " = " + name);
}

}  // namespace penstock::compiler
