// Copies of the file's device functions that read blockIdx or gridDim: f__preemptible.
//
// A block that has come back runs at another place of another grid. The copies take the block's own
// position from `penstock_run`, which is their last parameter.
#pragma once

#include <set>
#include <vector>

#include "compiler/body.h"
#include "compiler/diagnostics.h"
#include "compiler/edits.h"

namespace penstock::compiler {

class PositionCopies {
public:
    PositionCopies(const SourceText& text, Callees& callees, Diagnostics& diagnostics)
        : text_(text), callees_(callees), diagnostics_(diagnostics) {}

    // Edits the calls of such functions in `function`, and gives lambdas that read the position
    // what they need. `before` is the offset behind which the copies must be.
    void edit_calls(const clang::FunctionDecl* function, unsigned before, Edits& edits);
    // Returns the text of a function's copy, and the offset behind which it stands.
    struct Copy {
        unsigned offset = 0;
        std::string text;
    };
    [[nodiscard]] std::vector<Copy> copies(const std::string& presumed_file);

private:
    [[nodiscard]] bool reads_block(const clang::FunctionDecl* callee);
    [[nodiscard]] bool is_edited_lambda(const clang::FunctionDecl* callee,
                                        const clang::FunctionDecl* function) const;
    void refuse(clang::SourceLocation at, const clang::FunctionDecl* callee,
                const std::string& why);
    void edit_call(const clang::CallExpr* call, const clang::FunctionDecl* function,
                   unsigned before, Edits& edits);
    void edit_lambda(const clang::LambdaExpr* lambda, Edits& edits);
    [[nodiscard]] bool reads_position(const clang::Stmt* statement) const;
    [[nodiscard]] bool calls_copy(const clang::Stmt* statement);

    const SourceText& text_;
    Callees& callees_;
    Diagnostics& diagnostics_;
    std::set<unsigned> edited_;
    std::vector<const clang::FunctionDecl*> wanted_;  // texts, each once
};

// The text ahead of code and behind it, in which blockIdx and gridDim are the block's own.
std::string position_begin();
std::string position_end();
extern const char* const kPositionVariables;

}  // namespace penstock::compiler
