// The preprocessor's directives that matter: pragmas, includes, conditions, PENSTOCK_KERNEL.
//
// Filled while the file is read. A place in another file is kept too: a point there is an error.
#pragma once

#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Preprocessor.h>

#include <memory>
#include <string>
#include <vector>

namespace penstock::compiler {

struct IncludeDirective {
    clang::SourceRange name;  // with its quotes
    std::string path;         // the file that was found
};

// #if or #ifdef that names a macro that the compilers define differently.
struct CompilerCondition {
    clang::SourceLocation at;
    std::string macro;
};

struct Directives {
    std::vector<clang::SourceLocation> points;  // #pragma preempt
    std::vector<IncludeDirective> includes;     // #include "..." of the file itself
    std::vector<CompilerCondition> conditions;
    std::vector<clang::SourceRange> kernels;  // uses of PENSTOCK_KERNEL

    // Begins to fill this while `preprocessor` reads.
    void observe(clang::Preprocessor& preprocessor);
};

}  // namespace penstock::compiler
