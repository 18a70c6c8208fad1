// Which variables can be made again when a block comes back, instead of being saved.
//
// A variable is *rematerialised* if its initialiser is pure (parameters that are never written,
// indices, constants and other such variables; no load from memory) and it is never written again.
// A reference, a closure, or a pointer to a variable of the block is *made again* from variables
// that have not changed since, which are forced live: an address in a thread's or a block's memory
// means nothing when the block comes back.
#pragma once

#include <map>
#include <set>
#include <string>

#include "compiler/accesses.h"
#include "compiler/callees.h"
#include "compiler/flow_graph.h"

namespace penstock::compiler {

class Recreation {
public:
    Recreation(const Accesses& accesses, const FlowGraph& graph, Callees& callees,
               const clang::ASTContext& context);

    [[nodiscard]] bool is_rematerialised(const clang::VarDecl* variable) const;
    // Returns whether the value may be, or contain, an address of a local or shared variable.
    [[nodiscard]] bool may_point_into_block(const clang::VarDecl* variable) const {
        return pointing_.count(variable) != 0;
    }
    [[nodiscard]] bool may_point_into_block(const clang::Expr* expression) const;
    // What is in the way of making a variable again: the reason, and the expression.
    struct Obstacle {
        std::string why;
        const clang::Stmt* where = nullptr;
    };
    // Returns whether a reference, closure or pointer can be made again at a point.
    [[nodiscard]] bool can_be_made_again(const clang::VarDecl* variable, const clang::Stmt* point,
                                         Obstacle& obstacle) const;
    // Returns whether the variable is a closure of values alone, whose bytes can be saved and
    // loaded over the one that is made again.
    [[nodiscard]] bool is_closure_of_values(const clang::VarDecl* variable) const;
    // Returns whether the initialiser may be evaluated again, with any result: the variable is not
    // used behind the point.
    [[nodiscard]] bool may_be_evaluated_again(const clang::VarDecl* variable) const;
    // The variables that an initialiser names: they must be there when it is evaluated again.
    [[nodiscard]] static std::set<const clang::VarDecl*> named_in(const clang::Stmt* expression);
    // Returns whether evaluating the expression again gives the same, and does nothing else.
    [[nodiscard]] bool is_pure(const clang::Stmt* expression) const { return pure(expression, 0); }
    // Returns a store of such an address into memory, or null.
    [[nodiscard]] const clang::Expr* stored_address() const { return stored_; }

private:
    [[nodiscard]] bool pure(const clang::Stmt* expression, int depth) const;
    [[nodiscard]] bool pure_call(const clang::CallExpr* call, int depth) const;
    [[nodiscard]] bool pure_reference(const clang::DeclRefExpr* reference, int depth) const;
    // A variable that is made again at a point; a null point: its value is of no importance.
    struct Renewal {
        const clang::VarDecl* variable;
        const clang::Stmt* point;
        Obstacle& obstacle;
    };
    [[nodiscard]] bool again(const clang::Stmt* expression, const Renewal& renewal) const;
    [[nodiscard]] bool again_reference(const clang::DeclRefExpr* reference,
                                       const Renewal& renewal) const;
    [[nodiscard]] bool changes(const clang::VarDecl* named, const Renewal& renewal) const;
    bool spread();
    void find_stores();

    const Accesses& accesses_;
    const FlowGraph& graph_;
    Callees& callees_;
    const clang::ASTContext& context_;
    std::set<const clang::VarDecl*> pointing_;
    const clang::Expr* stored_ = nullptr;
    mutable std::map<const clang::VarDecl*, bool> rematerialised_;
};

}  // namespace penstock::compiler
