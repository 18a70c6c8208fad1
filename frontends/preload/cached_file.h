// What the parts of the file cache's client share: the state of a descriptor.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "cache_connections.h"

namespace penstock::preload {

// What a position is that this library does not have. Below kGiving it is the position itself.
inline constexpr uint64_t kKernelsForGood = UINT64_MAX;  // the kernel has it; others may use it
inline constexpr uint64_t kStdios = UINT64_MAX - 2;      // the kernel has it; stdio may use it
// The kernel has it. The low bits count the calls under way that move it, and those above differ
// each time: so no thread takes a position that it has asked for before such a call.
inline constexpr uint64_t kKernels = uint64_t{1} << 63;
inline constexpr uint64_t kMoversMax = 0xffff, kTurn = kMoversMax + 1;
// A thread gives the position, which is in the other bits, to the kernel now.
inline constexpr uint64_t kGiving = uint64_t{1} << 62;

[[nodiscard]] inline bool is_owned(uint64_t position) { return position < kGiving; }
[[nodiscard]] inline bool is_kernels(uint64_t position) {
    return position >= kKernels && position < kStdios;
}

// An atomic position. Its complement is kept: zeros stand for kKernelsForGood.
class Position {
public:
    [[nodiscard]] uint64_t load() const { return ~bits_.load(std::memory_order_acquire); }
    uint64_t exchange(uint64_t next) { return ~bits_.exchange(~next); }
    bool compare_exchange(uint64_t& seen, uint64_t next) {
        uint64_t bits = ~seen;
        const bool done = bits_.compare_exchange_strong(bits, ~next);
        seen = ~bits;
        return done;
    }

private:
    std::atomic<uint64_t> bits_{0};
};

// The kernel judges offsets beyond: file systems have limits.
inline constexpr off_t kOffsetMax = off_t{1} << 42;
// The kernel moves no more by one call, and judges sizes beyond.
inline constexpr size_t kMoveMax = 0x7ffff000;

enum State : uint32_t { kUnknown, kIgnored, kServed, kWritten };

struct alignas(64) CachedFile {
    Position position;
    std::atomic<uint32_t> state{kUnknown};
    std::atomic<uint32_t> slot{0};
    std::atomic<uint32_t> rest{0};         // next calls that go to the kernel
    std::atomic<uint32_t> cache{0};        // number of the mapping
    std::atomic<bool> only_writes{false};  // the kernel refuses its reads
    std::atomic<bool> has_written{false};  // since the last sync: a service that dies loses it
    std::atomic<uint32_t> turn{0};         // of kTurn, for the next value of `position`
    std::atomic<uint64_t> device{0}, inode{0};
    std::atomic<uint64_t> shown_device{0};  // as fstat(2) tells it: that of a mount is another
    // The last error of write-backs that it was told, or that there was at its open; 0: not known.
    std::atomic<uint64_t> told{0};

    // Makes this the state of a file in a slot of a mapping.
    void use(uint32_t its_slot, uint64_t its_device, uint64_t its_inode, uint32_t mapping,
             uint64_t its_shown_device) {
        slot.store(its_slot);
        device.store(its_device);
        inode.store(its_inode);
        cache.store(mapping);
        shown_device.store(its_shown_device);
        only_writes.store(false);
    }
};

// Returns the state of a descriptor; null: its number is too high.
CachedFile* file_at(int fd);
// Returns whether the descriptor's file can be read by the table now, and asks for it if not.
bool is_served(int fd, CachedFile& file);
// Takes the position from the kernel. Returns false if others may use it.
bool own_position(int fd, CachedFile& file, uint64_t* position);
// Copies bytes of the table. Returns how many; fewer where some are not cached or are not the
// file's.
size_t read_table(const CacheMapping& cache, const CachedFile& file, char* to, size_t size,
                  uint64_t offset, bool* first_use);

}  // namespace penstock::preload
