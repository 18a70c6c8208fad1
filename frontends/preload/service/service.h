// The functions of libpenstock-preload-service.so: the part of the preload front that needs
// libpenstock. libpenstock-preload.so loads it into the processes that need it.
#pragma once

#include <stdint.h>
#include <sys/types.h>

extern "C" {

// Moves up to `size` bytes between a file and device memory, as read(), pread() and their writes do
// with host memory.
//   memory  where the bytes go, or come from
//   offset  in the file; -1: at the position of the descriptor, which moves on
// Blocks. Returns the bytes moved, or -1 with errno; EFAULT: `memory` is not in device memory, or
// the descriptor is of a kind whose bytes the kernel may have dropped with its own EFAULT.
[[gnu::visibility("default")]] ssize_t penstock_preload_move(int fd, void* memory, size_t size,
                                                             off_t offset, bool write);

// Reports that the program reads a part of a regular file, and announces to the OS page cache what
// it reads next.
//   meaning  changes whenever `fd` gets another meaning
// Opens nothing, and starts no thread. One thread at a time. Returns how many of the next reads by
// this descriptor need not be reported; UINT64_MAX: none of them.
[[gnu::visibility("default")]] uint64_t penstock_preload_observe(int fd, unsigned meaning,
                                                                 off_t offset, size_t size);

// Gives access programs of an earlier run, before the first report. The text must stay.
[[gnu::visibility("default")]] void penstock_preload_expect(const char* text, size_t size);

// Closes what this library has open for the program's descriptors from `first` to `last`, which the
// program closes. Does not wait.
[[gnu::visibility("default")]] void penstock_preload_forget(unsigned first, unsigned last);
}
