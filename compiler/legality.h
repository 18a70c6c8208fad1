// Whether a block may leave at the points of an instantiation, and what the kernel uses of its
// block.
//
// Checks that all threads reach a point together, that no read is in flight into memory of the
// block, and that nothing of the block is out of the compiler's sight.
#pragma once

#include "compiler/body.h"

namespace penstock::compiler {

// A point that --hoist takes out of divergent flow.
struct Move {
    Span statement;
    unsigned to = 0;  // the offset behind the condition
};

class Legality {
public:
    // `moves`: if it is not null, points that can be moved are listed there, and are no errors.
    Legality(const SourceText& text, const Kernel& kernel, Callees& callees,
             Diagnostics& diagnostics, std::vector<Move>* moves)
        : text_(text),
          kernel_(kernel),
          callees_(callees),
          diagnostics_(diagnostics),
          moves_(moves) {}

    // Reports what is not legal, and returns whether the instantiation can be analysed.
    bool check(const Body& body);

    [[nodiscard]] bool uses_dynamic_shared() const { return uses_dynamic_shared_; }
    [[nodiscard]] bool returns_diverge() const { return returns_diverge_; }
    [[nodiscard]] bool reads_block() const { return reads_block_; }

private:
    void check_divergence(const Body& body, const Point& point, const clang::CallExpr* call);
    [[nodiscard]] bool move(const Body& body, const Point& point, const clang::CallExpr* call);
    void check_arguments(const Body& body, const clang::CallExpr* call);
    void check_in_flight(const Body& body);
    void check_calls(const Body& body);
    void check_call(const clang::Expr* call, const clang::FunctionDecl* callee);
    void check_jumps(const Body& body);
    [[nodiscard]] bool is_fresh(const clang::FunctionDecl* callee, const clang::VarDecl* shared);
    void error(clang::SourceLocation at, const std::string& text, const std::string& hint);

    const SourceText& text_;
    const Kernel& kernel_;
    Callees& callees_;
    Diagnostics& diagnostics_;
    std::vector<Move>* moves_;
    std::set<unsigned> told_;  // offsets of errors: instantiations repeat them
    bool uses_dynamic_shared_ = false, returns_diverge_ = false, reads_block_ = false;
};

}  // namespace penstock::compiler
