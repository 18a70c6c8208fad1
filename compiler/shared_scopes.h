// Shared variables of an inner scope whose values last across a point outside of it.
//
// A shared variable keeps its value while the block runs. Behind a point the text that is written
// must load it by its name, so its declaration moves to the top of the kernel.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "compiler/body.h"

namespace penstock::compiler {

// Returns whether the declaration means the same at the top of the kernel.
bool may_move_to_top(const SourceText& text, const Body& body, const clang::VarDecl* shared);

// Returns the statements of a kernel's text that declare variables with these keys.
std::vector<const clang::DeclStmt*> declarations_of(const SourceText& text,
                                                    const clang::FunctionDecl* pattern,
                                                    const std::set<unsigned>& keys);

}  // namespace penstock::compiler
