// The kernels of the file, with their points, and what is wrong about either.
//
// A kernel template has one text and several instantiations; the text is edited once, and each
// instantiation is analysed. Positions in the text tie the two together.
#pragma once

#include <clang/AST/DeclTemplate.h>

#include <map>
#include <string>
#include <vector>

#include "compiler/diagnostics.h"
#include "compiler/directives.h"
#include "compiler/language.h"
#include "compiler/source_text.h"

namespace penstock::compiler {

// A place where a block may leave.
struct Point {
    unsigned number = 0;  // from 1, in the order of the text
    Call kind = Call::kNone;
    unsigned key = 0;  // the offset where the call begins
    unsigned line = 0;
    const clang::Stmt* statement = nullptr;  // of the text's own AST
    const clang::CallExpr* call = nullptr;
    Span pragma;  // the directive's line, if there is one
};

// PENSTOCK_KERNEL(text): the function's name ends at name_end in it, and the macro before `behind`.
struct Registration {
    std::string text;
    unsigned name_end = 0;
    unsigned behind = 0;
};

struct Kernel {
    const clang::FunctionDecl* pattern = nullptr;
    const clang::FunctionTemplateDecl* head = nullptr;  // null: not a template
    std::vector<const clang::FunctionDecl*> instances;
    std::vector<Registration> registrations;
    std::vector<Point> points;
    [[nodiscard]] std::string name() const { return pattern->getNameAsString(); }
};

// Finds the kernels that have points. Reports a point that is at a place where none may be.
std::vector<Kernel> find_kernels(const SourceText& text, const Directives& directives,
                                 Diagnostics& diagnostics);

// Returns the offset that names a declaration in the text and in all instantiations.
unsigned key_of(const SourceText& text, const clang::Decl* declaration);
unsigned key_of(const SourceText& text, const clang::CallExpr* call);

// Returns the call that an expression is, without casts and parentheses, or null.
const clang::CallExpr* call_in(const clang::Expr* expression);

}  // namespace penstock::compiler
