// Calls of the program whose memory is a GPU's.
//
// The kernel refuses memory that it cannot address with EFAULT. Only then is the driver asked whose
// memory that is. So a program that uses host memory pays a load, and no table of allocations can
// be out of date. Calls with memory of the last transfers ask first, since the kernel would read
// the file in vain.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>

namespace penstock::preload {

// Where the last transfers of device memory were.
struct DeviceRange {
    std::atomic<uintptr_t> begin{0}, end{0};
};
inline constexpr unsigned kDeviceRanges = 16;
inline DeviceRange device_ranges[kDeviceRanges];
inline std::atomic<bool> has_device_ranges{false};

inline bool may_be_device_memory(const void* memory) {
    if (!has_device_ranges.load(std::memory_order_relaxed)) [[likely]]
        return false;
    const auto at = reinterpret_cast<uintptr_t>(memory);
    for (const DeviceRange& range : device_ranges) {
        if (at >= range.begin.load(std::memory_order_relaxed) &&
            at < range.end.load(std::memory_order_relaxed))
            return true;
    }
    return false;
}

// Moves bytes between a file and device memory; `offset` is -1 at the descriptor's position.
// Returns the bytes moved, or -1 with errno; EFAULT: `memory` is not in device memory.
ssize_t move_device_memory(int fd, void* memory, size_t size, off_t offset, bool write);
// The same for several pieces, of which any may be in host memory.
ssize_t move_pieces(int fd, const iovec* pieces, int count, off_t offset, bool write);

// Closes what is open for descriptors that the program is about to close.
void release_device_files(unsigned first, unsigned last);
inline void release_device_file(int fd) {
    if (fd >= 0) release_device_files(static_cast<unsigned>(fd), static_cast<unsigned>(fd));
}

}  // namespace penstock::preload
