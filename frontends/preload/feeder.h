// Reads large mapped files into the OS page cache ahead of a program, where their storage is slow.
//
// A program that walks through a mapping waits once for each page fault, and the kernel reads
// little ahead. For a large read-only mapping on slow storage, threads of this library read the
// file in order, in the program's process. Storage is slow if single pages take long. If they come
// quickly, from the cache or a fast disk, nothing is read ahead. The kind of the file system is not
// considered.
#pragma once

#include <stddef.h>
#include <sys/types.h>

namespace penstock::preload {

// Switches reading ahead on.
void begin_feeding();
// Makes the threads for mappings that were made before this library was initialized.
void feed_mappings();
// The caller is the child of a fork: it has none of the threads.
void forget_feeds();
// Considers a mapping that the program has made. Leaves errno.
void mapped(void* begin, size_t size, int protection, int flags, int fd, off_t offset);
// Ends the feeding of a mapping that the program removes.
void unmapped(const void* begin);

}  // namespace penstock::preload
