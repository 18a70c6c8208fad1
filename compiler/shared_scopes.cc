// Compares names in the declaration with those that the kernel declares.
#include "compiler/shared_scopes.h"

#include <clang/AST/StmtCXX.h>

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;

namespace {

// What the body declares and names.
struct Names {
    std::multiset<std::string> declared;
    std::set<std::string> elsewhere;  // functions, globals and parameters
};

Names names_of(const Body& body) {
    Names found;
    for (const clang::Stmt* statement : body.accesses.statements()) {
        if (const auto* declarations = dyn_cast<clang::DeclStmt>(statement))
            for (const auto* one : declarations->decls())
                if (const auto* named = dyn_cast<clang::NamedDecl>(one))
                    found.declared.insert(named->getNameAsString());
        const auto* reference = dyn_cast<clang::DeclRefExpr>(statement);
        if (reference != nullptr && !reference->getDecl()->getDeclName().isEmpty() &&
            !llvm::isa<clang::FunctionDecl>(reference->getDecl()->getDeclContext()))
            found.elsewhere.insert(reference->getDecl()->getNameAsString());
    }
    for (const auto* parameter : body.function->parameters())
        found.elsewhere.insert(parameter->getNameAsString());
    return found;
}

const clang::DeclStmt* statement_that_declares(const Body& body, const clang::VarDecl* variable) {
    for (const clang::Stmt* statement : body.accesses.statements())
        if (const auto* declarations = dyn_cast<clang::DeclStmt>(statement))
            for (const auto* one : declarations->decls())
                if (one == variable) return declarations;
    return nullptr;
}

void find(const SourceText& text, const clang::Stmt* at, const std::set<unsigned>& keys,
          std::vector<const clang::DeclStmt*>& found) {
    if (at == nullptr) return;
    if (const auto* declarations = dyn_cast<clang::DeclStmt>(at))
        for (const auto* one : declarations->decls())
            if (const auto* variable = dyn_cast<clang::VarDecl>(one))
                if (keys.count(key_of(text, variable)) != 0) {
                    found.push_back(declarations);
                    break;
                }
    for (const clang::Stmt* child : at->children()) find(text, child, keys, found);
}

}  // namespace

bool may_move_to_top(const SourceText& text, const Body& body, const clang::VarDecl* shared) {
    const clang::DeclStmt* statement = statement_that_declares(body, shared);
    if (statement == nullptr || body.accesses.is_in_lambda(statement)) return false;
    if (!text.is_plain(statement->getEndLoc())) return false;  // it begins with a macro
    const Names names = names_of(body);
    std::set<std::string> own;
    for (const auto* one : statement->decls()) {
        const auto* variable = dyn_cast<clang::VarDecl>(one);
        if (variable == nullptr || !is_shared(variable) || variable->getLocation().isMacroID())
            return false;
        const std::string name = variable->getNameAsString();
        own.insert(name);
        if (names.declared.count(name) != 1 || names.elsewhere.count(name) != 0) return false;
    }
    // The bounds of an array, and the type, must not name what the kernel declares.
    const Span span = text.span(statement->getSourceRange());
    for (const RawToken* token = text.token_from(span.begin);
         token != nullptr && token->offset < span.end; token = text.token_from(token->end())) {
        const std::string word = text.token_text(*token);
        if (own.count(word) == 0 && names.declared.count(word) != 0) return false;
    }
    return true;
}

std::vector<const clang::DeclStmt*> declarations_of(const SourceText& text,
                                                    const clang::FunctionDecl* pattern,
                                                    const std::set<unsigned>& keys) {
    std::vector<const clang::DeclStmt*> found;
    if (!keys.empty()) find(text, pattern->getBody(), keys, found);
    return found;
}

}  // namespace penstock::compiler
