// Builds the control flow graph with every expression in it.
#include "compiler/flow_graph.h"

#include <set>

namespace penstock::compiler {

FlowGraph::FlowGraph(const clang::FunctionDecl* function)
    : contexts_(std::make_unique<clang::AnalysisDeclContextManager>(function->getASTContext())) {
    clang::CFG::BuildOptions& options = contexts_->getCFGBuildOptions();
    options.setAllAlwaysAdd();
    options.PruneTriviallyFalseEdges = false;
    options.AddImplicitDtors = false;
    options.AddInitializers = true;
    context_ = contexts_->getContext(function);
    graph_ = context_->getCFG();
    if (graph_ == nullptr) return;
    dependencies_ = std::make_unique<clang::ControlDependencyCalculator>(graph_);
    for (const clang::CFGBlock* block : *graph_)
        for (unsigned i = 0; i < block->size(); ++i)
            if (const clang::Stmt* statement = statement_of((*block)[i])) {
                places_.emplace(statement, Place{block, i});
                // A statement with several declarators has an element for each.
                const auto* declarations = llvm::dyn_cast<clang::DeclStmt>(statement);
                if (declarations == nullptr) continue;
                for (const auto* one : declarations->decls())
                    if (const auto* variable = llvm::dyn_cast<clang::VarDecl>(one))
                        declarations_.emplace(variable, Place{block, i});
            }
}

Place FlowGraph::place(const clang::Stmt* statement) const {
    const auto found = places_.find(statement);
    return found == places_.end() ? Place{} : found->second;
}

Place FlowGraph::declaration(const clang::VarDecl* variable) const {
    const auto found = declarations_.find(variable);
    return found == declarations_.end() ? Place{} : found->second;
}

std::vector<const clang::Expr*> FlowGraph::conditions(const clang::CFGBlock* block) const {
    std::vector<const clang::Expr*> found;
    if (dependencies_ == nullptr) return found;
    std::set<const clang::CFGBlock*> seen;
    std::vector<const clang::CFGBlock*> waiting{block};
    while (!waiting.empty()) {
        const clang::CFGBlock* at = waiting.back();
        waiting.pop_back();
        const auto deciders = dependencies_->getControlDependencies(
            const_cast<clang::CFGBlock*>(at));
        for (const clang::CFGBlock* decider : deciders) {
            if (!seen.insert(decider).second) continue;
            waiting.push_back(decider);
            const auto* condition = decider->getLastCondition();
            if (condition == nullptr)
                condition = llvm::dyn_cast_or_null<clang::Expr>(
                    decider->getTerminatorCondition(false));
            if (condition != nullptr) found.push_back(condition);
        }
    }
    return found;
}

std::vector<const clang::CFGBlock*> FlowGraph::returns() const {
    std::vector<const clang::CFGBlock*> found;
    for (const auto& before : graph_->getExit().preds())
        if (const clang::CFGBlock* block = before.getReachableBlock())
            for (const clang::CFGElement& element : *block)
                if (const clang::Stmt* statement = statement_of(element))
                    if (llvm::isa<clang::ReturnStmt>(statement)) {
                        found.push_back(block);
                        break;
                    }
    return found;
}

}  // namespace penstock::compiler
