// What can be chosen about devices and file systems. Plain values; 0 means "choose for me" where it
// says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock {

// Only the CPU backend has choices; a CUDA device ignores them.
struct DeviceOptions {
    // Parameters that affect behaviour.
    double watchdog_seconds = 60;  // a block without barrier, wait or exit for so long; 0: never
    // Parameters that affect performance.
    unsigned permits = 0;    // blocks resident at once; 0: as many as CPUs
    size_t memory_size = 0;  // bytes of device memory; 0: a quarter of RAM, at most 4 GiB
    // The link model paces copies, and figures are then simulated. Both 0: off.
    double link_latency_us = 0;
    double link_bandwidth_gbs = 0;  // 10^9 bytes a second
};

// What reads the bytes of files. kAuto reads what is cached by posix and the rest past the cache by
// io_uring where the kernel lets it; kUring is an error where it does not.
enum class StorageKind : uint8_t { kAuto, kPosix, kUring };
// Which worker a request goes to: whoever is free, or the seed's fixed map of block id to worker
// (seed 000, 3.3).
enum class RequestMap : uint8_t { kShared, kStatic };

struct FileSystemOptions {
    // Parameters that affect behaviour.
    StorageKind storage = StorageKind::kAuto;
    // For studies: every storage operation takes at least the latency, and all of them together
    // move at most so many 10^6 bytes a second. 0: not slowed.
    double throttle_latency_us = 0;
    double throttle_bandwidth_mbs = 0;
    // Parameters that affect performance.
    uint32_t page_size = 64 << 10;  // bytes, a power of two from 4 KiB to 4 MiB
    size_t cache_size = 0;          // bytes of frames; 0: half of the device memory that is free
    unsigned workers = 0;  // threads that serve requests, 1 to 16; 0: 4. None where blocks help
    bool helping = true;   // CPU backend: a block that waits serves requests itself
    RequestMap map = RequestMap::kShared;
};

}  // namespace penstock
