// What the functions that a kernel calls read of the thread's position, also through others.
//
// Looks into every body that the compiler has seen. Caches what it finds; one thread.
#pragma once

#include <clang/AST/Decl.h>

#include <map>
#include <set>
#include <vector>

namespace penstock::compiler {

struct CalleeSummary {
    bool reads_thread = false;  // the result may differ between the threads of a block
    bool reads_block = false;   // blockIdx or gridDim
    bool reads_memory = false;  // loads through pointers or of global variables
    bool uses_dynamic_shared = false;
    const clang::VarDecl* static_shared = nullptr;  // a shared variable of its own
    const clang::FunctionDecl* unknown = nullptr;   // a function without a body that it calls
};

class Callees {
public:
    // Returns what is known of a function with all that it calls.
    const CalleeSummary& summary(const clang::FunctionDecl* function);

private:
    std::map<const clang::FunctionDecl*, CalleeSummary> summaries_;
};

// Returns the function's body as the compiler may read it, or null.
const clang::Stmt* body_of(const clang::FunctionDecl* function);

// Returns whether a function computes its result from values alone: of the C library's mathematics,
// or a function of which only the declaration is seen, with numbers as parameters.
bool is_function_of_values(const clang::FunctionDecl* function);

}  // namespace penstock::compiler
