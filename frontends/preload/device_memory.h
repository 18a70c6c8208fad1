// Calls of the program whose memory is a GPU's.
//
// The kernel refuses memory that it cannot address with EFAULT, before it has moved a byte. Only
// then is the driver asked whose memory that is. So a program that uses host memory pays nothing,
// and no table of allocations can be out of date. Later calls with memory near what was once a
// GPU's ask first, since the kernel would read the file in vain.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>

namespace penstock::preload {

// The addresses between the lowest and the highest that were in device memory.
inline std::atomic<uintptr_t> device_memory_begin{UINTPTR_MAX};
inline std::atomic<uintptr_t> device_memory_end{0};

inline bool may_be_device_memory(const void* memory) {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    return at >= device_memory_begin.load(std::memory_order_relaxed) &&
           at < device_memory_end.load(std::memory_order_relaxed);
}

// Moves bytes between a file and device memory; `offset` is -1 at the descriptor's position.
// Returns the bytes moved, or -1 with errno; EFAULT: `memory` is not in device memory.
ssize_t move_device_memory(int fd, void* memory, size_t size, off_t offset, bool write);
// The same for several pieces, of which any may be in host memory.
ssize_t move_pieces(int fd, const iovec* pieces, int count, off_t offset, bool write);

// Closes what is open for descriptors that the program is about to close.
void release_device_files(unsigned first, unsigned last);

}  // namespace penstock::preload
