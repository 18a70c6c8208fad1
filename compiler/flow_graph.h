// The control flow graph of a function: where a statement is in it, and what decides about a block.
//
// Every expression is an element of its own (setAllAlwaysAdd): with Clang's default, expressions
// are missing, and each variable looks dead. Edges that a constant condition rules out are kept.
#pragma once

#include <clang/Analysis/Analyses/Dominators.h>
#include <clang/Analysis/AnalysisDeclContext.h>
#include <clang/Analysis/CFG.h>

#include <map>
#include <memory>
#include <vector>

namespace penstock::compiler {

struct Place {
    const clang::CFGBlock* block = nullptr;
    unsigned index = 0;  // of the element
};

class FlowGraph {
public:
    explicit FlowGraph(const clang::FunctionDecl* function);

    [[nodiscard]] bool is_built() const { return graph_ != nullptr; }
    [[nodiscard]] const clang::CFG& graph() const { return *graph_; }
    // Returns where the statement is an element, or no place.
    [[nodiscard]] Place place(const clang::Stmt* statement) const;
    // Returns where the variable's declaration is an element, or no place.
    [[nodiscard]] Place declaration(const clang::VarDecl* variable) const;
    // Returns the conditions that decide whether a block runs, and how often.
    [[nodiscard]] std::vector<const clang::Expr*> conditions(const clang::CFGBlock* block) const;
    // Returns the blocks that end with a return statement.
    [[nodiscard]] std::vector<const clang::CFGBlock*> returns() const;
    // Returns whether a place can be reached from another, without passing `barrier` elements.
    template <class IsBarrier>
    [[nodiscard]] bool reaches(Place from, Place to, IsBarrier is_barrier) const;

private:
    std::unique_ptr<clang::AnalysisDeclContextManager> contexts_;
    clang::AnalysisDeclContext* context_ = nullptr;
    clang::CFG* graph_ = nullptr;
    std::unique_ptr<clang::ControlDependencyCalculator> dependencies_;
    std::map<const clang::Stmt*, Place> places_;
    std::map<const clang::VarDecl*, Place> declarations_;
};

// Returns the statement of an element, or null.
inline const clang::Stmt* statement_of(const clang::CFGElement& element) {
    const auto found = element.getAs<clang::CFGStmt>();
    return found ? found->getStmt() : nullptr;
}

template <class IsBarrier>
bool FlowGraph::reaches(Place from, Place to, IsBarrier is_barrier) const {
    std::vector<Place> waiting{{from.block, from.index + 1}};
    std::map<const clang::CFGBlock*, bool> seen;
    while (!waiting.empty()) {
        const Place at = waiting.back();
        waiting.pop_back();
        bool stopped = false;
        for (unsigned i = at.index; i < at.block->size() && !stopped; ++i) {
            if (at.block == to.block && i == to.index) return true;
            const clang::Stmt* statement = statement_of((*at.block)[i]);
            stopped = statement != nullptr && is_barrier(statement);
        }
        if (stopped) continue;
        for (const auto& next : at.block->succs())
            if (next.getReachableBlock() != nullptr && !seen[next.getReachableBlock()]) {
                seen[next.getReachableBlock()] = true;
                waiting.push_back({next.getReachableBlock(), 0});
            }
    }
    return false;
}

}  // namespace penstock::compiler
