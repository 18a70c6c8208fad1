// Finds calls and scopes in an instantiation.
#include "compiler/body.h"

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;

const clang::CallExpr* Body::call_at(const SourceText& text, unsigned key) const {
    for (const clang::Stmt* statement : accesses.statements())
        if (const auto* call = dyn_cast<clang::CallExpr>(statement))
            if (call_of(call) != Call::kNone && key_of(text, call) == key) return call;
    return nullptr;
}

static void add_declared(const clang::Stmt* statement, std::vector<const clang::VarDecl*>& found) {
    const auto* declarations = dyn_cast_or_null<clang::DeclStmt>(statement);
    if (declarations == nullptr) return;
    for (const auto* one : declarations->decls())
        if (const auto* variable = dyn_cast<clang::VarDecl>(one)) found.push_back(variable);
}

std::vector<const clang::VarDecl*> Body::in_scope(const clang::Stmt* statement) const {
    std::vector<const clang::VarDecl*> found;
    std::vector<const clang::Stmt*> path = accesses.parents(statement);
    path.push_back(statement);
    for (size_t i = 0; i + 1 < path.size(); ++i) {
        if (const auto* list = dyn_cast<clang::CompoundStmt>(path[i])) {
            for (const clang::Stmt* child : list->body()) {
                if (child == path[i + 1]) break;
                add_declared(child, found);
            }
        }
        if (const auto* loop = dyn_cast<clang::ForStmt>(path[i]))
            if (path[i + 1] != loop->getInit()) add_declared(loop->getInit(), found);
        if (const auto* choice = dyn_cast<clang::IfStmt>(path[i]))
            if (path[i + 1] != choice->getInit()) add_declared(choice->getInit(), found);
    }
    return found;
}

bool Body::is_written_before(const clang::VarDecl* shared, const clang::Stmt* statement) const {
    for (const Access& access : accesses.all()) {
        if (access.variable != shared || (!access.writes && !access.keeps_address)) continue;
        const clang::Stmt* owner = access.reference;
        while (owner != nullptr && graph.place(owner).block == nullptr)
            owner = accesses.parent(owner);
        if (owner == nullptr || graph.reaches(graph.place(owner), graph.place(statement),
                                              [](const clang::Stmt*) { return false; }))
            return true;
    }
    return false;
}

}  // namespace penstock::compiler
