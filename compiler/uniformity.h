// Which values are equal in all threads of a block, and which conditions are.
//
// A value varies if it is computed from a thread's index, or is set under a condition that varies.
// What is loaded from memory at one address is *assumed* to be equal: other blocks may write it in
// between, so it decides whether a point is legal, but it is not saved once for the block.
#pragma once

#include <map>

#include "compiler/accesses.h"
#include "compiler/callees.h"
#include "compiler/flow_graph.h"

namespace penstock::compiler {

enum class Level { kUniform, kAssumed, kVarying };

class Uniformity {
public:
    // Without `with_control`, conditions under which a variable is set do not count.
    Uniformity(const Accesses& accesses, const FlowGraph& graph, Callees& callees,
               bool with_control = true);

    [[nodiscard]] Level level(const clang::VarDecl* variable) const;
    [[nodiscard]] Level level(const clang::Stmt* expression) const;
    // Returns a condition that varies and decides whether the block runs, or null.
    [[nodiscard]] const clang::Expr* divergent_condition(const clang::CFGBlock* block) const;

private:
    bool raise(const clang::VarDecl* variable, Level level);
    [[nodiscard]] Level control_level(const clang::Stmt* statement) const;
    [[nodiscard]] Level call_level(const clang::Expr* call, const clang::FunctionDecl* callee,
                                   Level arguments) const;
    bool pass_declarations();
    bool pass_accesses();

    const Accesses& accesses_;
    const FlowGraph& graph_;
    Callees& callees_;
    const bool with_control_;
    std::map<const clang::VarDecl*, Level> levels_;
};

}  // namespace penstock::compiler
