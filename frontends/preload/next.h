// The functions that the wrappers go on to: those of the next library that has them, which is libc
// or another preloaded library.
//
// They are resolved when this library starts, or earlier if a constructor of another library calls
// a wrapper first. dlsym may allocate, and so come back into a wrapper: until the resolving thread
// is done, its wrappers get null, and use the kernel's call themselves.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

namespace penstock::preload {

struct Next {
#define CALL(class, result, name, parameters, arguments) result(*name) parameters;
#include "calls.def"
#undef CALL
};

// Returns the functions, after resolving them where that is still to be done. Null while the
// calling thread resolves them. Leaves errno as it is. Cost: two loads.
const Next* next();

// What the calls return that must work while next() is null. They set errno as libc does.
namespace kernel {
ssize_t read(int fd, void* to, size_t size);
ssize_t write(int fd, const void* from, size_t size);
ssize_t pread(int fd, void* to, size_t size, off_t offset);
int openat(int folder, const char* path, int flags, mode_t mode);
int close(int fd);
int fcntl(int fd, int command, void* argument);
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset);
int munmap(void* begin, size_t size);
}  // namespace kernel

}  // namespace penstock::preload
