// Streams of stdio whose reads are served from a file cache.
//
// stdio reads by inner calls of libc, which no wrapper sees. So a stream that reads a served file
// is made by fopencookie(3), and libc calls the functions here to read, seek and close. They do
// what the wrappers of read(2), lseek(2) and close(2) do, by the stream's own descriptor, so the
// position is in one place for the stream and for calls on the descriptor. libc's FILE has the
// descriptor too, for fileno().
//
// Where such a stream would not be as a usual one, it becomes a usual one before:
//
//     served -> ordinary  [make_ordinary: wide characters, no buffer, freopen, a file that grows]
//
// An ordinary stream reads from the kernel. A stream of fopencookie() has no data for wide
// characters: it is given that of another stream, its donor.
#pragma once

#include <stdio.h>

#include "cached_files.h"

namespace penstock::preload {

struct Stream;  // what is known of a stream that is served, or was

namespace internal {
bool may_serve(const char* path, const char* mode);
bool make_ordinary(FILE* file);
size_t read_long(FILE* file, void* to, size_t size, size_t count, bool locks);
bool knows_orientation(FILE* file, int wanted, int* found);
}  // namespace internal

// Returns whether fopen() should try open_stream(). Cost without a cache: a load.
inline bool may_serve(const char* path, const char* mode) {
    return internal::caching.load(std::memory_order_relaxed) && internal::may_serve(path, mode);
}
// Opens a file that may_serve() returned true for, as fopen(3) does. `served` tells how.
FILE* open_stream(const char* path, const char* mode, bool* served);
// Returns a served stream for a descriptor; null: an ordinary one must be made. Leaves errno.
FILE* served_stream(int fd, const char* mode);
// Returns whether a stream is served. Then the descriptor is closed by the function that libc
// calls.
bool is_served_stream(const FILE* file);
// Forgets an ordinary stream that is being closed. Returns what must be freed when it is closed.
Stream* forget_stream(FILE* file);
void free_stream(Stream* stream);  // leaves errno

// Lets libc read a stream of its own accord from now on, if it was served. Returns false if memory
// is short. Leaves errno.
inline bool make_ordinary(FILE* file) {
    return !internal::caching.load(std::memory_order_relaxed) || internal::make_ordinary(file);
}
// Does what a long fread() does for an ordinary stream: it reads past the stream's buffer, and asks
// again at the end of a file. Returns kNotCached if libc's fread() must be called.
inline size_t read_long(FILE* file, void* to, size_t size, size_t count, bool locks) {
    return internal::caching.load(std::memory_order_relaxed)
               ? internal::read_long(file, to, size, count, locks)
               : static_cast<size_t>(kNotCached);
}
// Answers fwide(3) in `found` for a stream that stays served. Returns false if libc knows the
// answer.
inline bool knows_orientation(FILE* file, int wanted, int* found) {
    return internal::caching.load(std::memory_order_relaxed) &&
           internal::knows_orientation(file, wanted, found);
}

}  // namespace penstock::preload
