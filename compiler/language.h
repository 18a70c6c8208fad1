// Names of the CUDA language and of Penstock's device calls, as the compiler sees them in the AST.
//
// Under PENSTOCK_COMPILER_TOOL, language/cuda.h turns the qualifiers into annotations. Nothing here
// keeps state.
#pragma once

#include <clang/AST/Decl.h>
#include <clang/AST/Expr.h>
#include <clang/AST/ExprCXX.h>

#include <string>

namespace penstock::compiler {

bool has_annotation(const clang::Decl* declaration, const char* annotation);
bool is_kernel(const clang::FunctionDecl* function);
bool is_shared(const clang::VarDecl* variable);
// Returns whether the variable is dynamic shared memory: extern __shared__ T name[].
bool is_dynamic_shared(const clang::VarDecl* variable);
// Returns whether a variable has one storage for each activation of the function: no static, no
// extern, and no shared variable.
bool is_frame_variable(const clang::VarDecl* variable);

// What a member expression reads of the block's or the thread's position.
enum class Position {
    kNone,
    kThread,
    kBlockIndex,
    kGrid,
    kBlockDimensions,
    kDynamicShared,
    kOther
};
Position position_of(const clang::Expr* expression);

// The functions of Penstock that the compiler knows.
enum class Call { kNone, kRead, kWait, kReadAsync, kPoint, kYield, kYieldUntil, kVote, kUniform };
Call call_of(const clang::FunctionDecl* function);
// Returns the same of a call whose callee may depend on template parameters: by its name.
Call call_of(const clang::CallExpr* call);

// Returns the callee's name, also if it is unresolved.
std::string callee_name(const clang::CallExpr* call);
const clang::Expr* plain(const clang::Expr* expression);

// Returns whether values of a type may hold the address of a variable.
bool may_hold_address(clang::QualType type);
// Returns the record of a type, or null.
const clang::CXXRecordDecl* record_of(clang::QualType type);

}  // namespace penstock::compiler
