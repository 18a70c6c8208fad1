// Caches what the program's descriptors stand for; the kernel has the truth.
//
// An entry is made when a descriptor is first used for a transfer, and dropped by each call that
// gives its number another meaning. A meaning that changes without such a call is seen at the next
// open that returns the number. Positions stay with the kernel, so descriptors that share one by
// dup or fork need no counting. Look-ups take no lock: signal handlers and children of vfork may
// make them.
#pragma once

#include <stddef.h>

namespace penstock::preload {

inline constexpr int kDescriptorsMax = 1 << 16;  // larger numbers are served without an entry

// The name of a regular file. It lives as long as the process.
struct FileName {
    const char* text = "";  // as a trace writes it, escaped
    size_t size = 0;
};

// Begins to keep entries, in this process: call it at start, and in a child that fork() has made.
void begin_descriptors();
// Returns whether the caller is a child of vfork: it has the parent's memory, but descriptors of
// its own.
bool is_child_of_vfork();
// Returns the name of the regular file behind a descriptor. Returns null for anything else, and if
// memory is short. Leaves errno as it is.
const FileName* file_of(int fd);
// Drops what is known of a descriptor, or of all from `first` to `last`.
void forget(int fd);
void forget_range(unsigned first, unsigned last);

}  // namespace penstock::preload
