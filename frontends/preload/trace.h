// Records accesses in the project's text form (src/access/trace.h), for all processes of a command.
//
// The file of a trace is mapped and shared: what was recorded is there however a process ends, by
// _exit, a signal or exec, and no descriptor of the program's is in use. Beside FILE lies
// FILE.cursor, 8 bytes: the size of the recorded part. A process adds the size of a line to it, and
// writes the line at the old value. FILE has zero bytes after the recorded part, and where a
// process was killed while it wrote a line.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "descriptors.h"

namespace penstock::preload {

// Begins to record into `path`, an absolute path. Creates the file and its cursor if they are
// missing. Returns an errno; 0: it has begun.
int begin_trace(const char* path);
// The caller is the child of a fork: its thread has another number.
void forget_thread();
// Returns whether accesses are recorded.
inline std::atomic<bool> recording{false};
inline bool traces() { return recording.load(std::memory_order_relaxed); }
// Records an access of the calling thread. Records nothing if the disk is full. Leaves errno.
void record(char operation, const FileName& file, uint64_t offset, uint64_t size);
// Records a transfer of `moved` bytes that ended at the position of the descriptor. Returns
// `moved`. Leaves errno.
ssize_t record_at_position(char operation, int fd, ssize_t moved);

}  // namespace penstock::preload
