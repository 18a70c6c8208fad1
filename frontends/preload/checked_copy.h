// Copies between the program's memory and this library's, where the kernel would answer EFAULT for
// memory that cannot be used (docs/design/0019).
#pragma once

#include <stddef.h>

namespace penstock::preload {

// Copies `size` bytes. `theirs` is the one of `to` and `from` that is the program's. Returns false
// if that memory may not be used so, or if it is not known: the kernel must make the call then, and
// answers with EFAULT. Some of `to` may be written before. Leaves errno. Any thread may call it,
// and signal handlers.
//
// Cost: a system call of 90 ns for each two pages, or one of 160 ns and 15 ns for each page.
bool copy_checked(char* to, const char* from, size_t size, const char* theirs);

}  // namespace penstock::preload
