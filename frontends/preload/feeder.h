// Reads large mapped files into the OS page cache ahead of a program, where their storage is slow.
//
// A program that walks through a mapping waits once for each page fault, and the kernel reads
// little ahead. For a large read-only mapping whose storage answers slowly, threads of this library
// read the file in order, in the program's own process. Where the first pages come quickly, because
// they are cached or the disk is quick, nothing happens. How slow storage is, is measured: the kind
// of the file system says nothing.
#pragma once

#include <stddef.h>
#include <sys/types.h>

namespace penstock::preload {

// Begins to serve mappings.
void begin_feeding();
// Considers a mapping that the program has made. Leaves errno.
void mapped(void* begin, size_t size, int protection, int flags, int fd, off_t offset);
// Ends the feeding of a mapping that the program removes.
void unmapped(const void* begin);

}  // namespace penstock::preload
