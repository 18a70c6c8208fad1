// The analyses of one instantiation of a kernel, together.
#pragma once

#include "compiler/accesses.h"
#include "compiler/callees.h"
#include "compiler/flow_graph.h"
#include "compiler/kernels.h"
#include "compiler/liveness.h"
#include "compiler/recreation.h"
#include "compiler/uniformity.h"

namespace penstock::compiler {

// Requires graph.is_built() before anything but `function` and `graph` is used.
struct Body {
    Body(const clang::FunctionDecl* function_, Callees& callees)
        : function(function_),
          accesses(function_),
          graph(function_),
          liveness(accesses, graph),
          uniformity(accesses, graph, callees),
          recreation(accesses, graph, callees, function_->getASTContext()) {}

    // Returns the call of a point in this instantiation, or null if it has none there.
    [[nodiscard]] const clang::CallExpr* call_at(const SourceText& text, unsigned key) const;
    // The variables that are in scope at a statement, in order; not the parameters.
    [[nodiscard]] std::vector<const clang::VarDecl*> in_scope(const clang::Stmt* statement) const;
    // Returns whether a path from the start to a statement may write a shared variable.
    [[nodiscard]] bool is_written_before(const clang::VarDecl* shared,
                                         const clang::Stmt* statement) const;

    const clang::FunctionDecl* function;
    Accesses accesses;
    FlowGraph graph;
    Liveness liveness;
    Uniformity uniformity;
    Recreation recreation;
};

}  // namespace penstock::compiler
