// What can be chosen about devices, file systems and host reads. Plain values; 0 means "choose for
// me" where it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "penstock/route.h"

namespace penstock {

// All but the first two are choices of the CPU backend; a CUDA device ignores them.
struct DeviceOptions {
    // Parameters that affect behaviour.
    bool runs_kernels = true;    // "auto" takes a CUDA device only if it can run this program's
                                 // kernels, and they are loaded when it is opened; false: any
                                 // device, host reads need only its memory
    bool second_context = true;  // CUDA: pages for kernels are copied in a context of our own, made
                                 // when the device is opened to run kernels (500 MiB of device
                                 // memory), so that the program may free memory or load kernels
                                 // while kernels read files. false: in the program's context;
                                 // kernels whose pages are held up for 4 s get EDEADLK then
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

// What kernels' reads ask for beyond what they want.
enum class Readahead : uint8_t {
    kAuto,    // windows for streams of reads, which grow and shrink by their use
    kOff,     // nothing
    kStatic,  // prefetch_size bytes behind every miss (seed 000, section 4.1)
    kSeed,    // nothing, and a read asks for page after page, none of them merged: the original
};
// Who gives up a frame when none is free.
enum class Replacement : uint8_t {
    kRings,      // each resident block its own oldest, second chance for what others use
    kGlobalLra,  // the oldest of all, used or not: the original
    kClock,      // the oldest of all that was not used since
};

struct FileSystemOptions {
    // Parameters that affect behaviour.
    StorageKind storage = StorageKind::kAuto;
    // For studies: every storage operation takes at least the latency, and all of them together
    // move at most so many 10^6 bytes a second. 0: not slowed.
    double throttle_latency_us = 0;
    double throttle_bandwidth_mbs = 0;
    // Parameters that affect performance.
    // Bytes, a power of two from 4 KiB to 4 MiB. Tables take 112 bytes of device memory for each
    // page of 4 KiB (28 MiB for 1 GiB of frames), 352 bytes for each of 64 KiB (5.5 MiB), and 10
    // MiB more, on a GPU 230 MiB. A view (gmmap) lies in one page.
    uint32_t page_size = 4096;
    size_t cache_size = 0;  // bytes of frames; 0: half of the device memory that is free
    unsigned workers = 0;   // threads that serve requests, 1 to 16; 0: 4, on a GPU up to 16, three
                            // quarters of the CPUs. None where blocks help
    bool helping = true;    // CPU backend: a block that waits serves requests itself
    RequestMap map = RequestMap::kShared;
    Readahead readahead = Readahead::kAuto;
    uint64_t prefetch_size = 0;  // bytes; kStatic only: a multiple of the page, at most 63 of them
                                 // and 1 MiB, or one page; with the page that is missed at most a
                                 // quarter of the cache. A read that misses several pages has what
                                 // is left of 64 behind them. 0: 60 KiB, rounded up to whole pages
    Replacement replacement = Replacement::kRings;
    uint32_t log_events = 0;  // what is served is kept for FileSystem::take_log(), up to so many
                              // events of 64 bytes; 0: none, else at most 2^22
};

// What a read or write does to the OS page cache.
enum class CachePolicy : uint8_t {
    kAuto,    // what is cached is used and stays; what is not takes the cheapest route; what is
              // written goes there
    kKeep,    // everything goes through the cache and stays there, as far as the kernel lets it
    kDrop,    // what was not in the cache is not left there, as far as the kernel lets it. What is
              // below 32 KiB, cannot be read direct or is written goes by calls that leave nothing
              // (RWF_DONTCACHE, Linux 6.14); where it takes none, as of FUSE, it may stay (kNoDrop)
    kBypass,  // direct wherever direct I/O can, also for what is cached and clean; of a write whole
              // pages
};

struct ReadOptions {
    CachePolicy cache = CachePolicy::kAuto;
    std::optional<Route> route;  // take this one wherever it can be taken; else what `cache` says
    bool strict = false;         // a range that cannot take `route`, or with kBypass cannot go past
                                 // the cache, or with kDrop may stay there, is an error,
                                 // EOPNOTSUPP, not a fallback. Of a write nothing is written then.
                                 // With kDrop reads below 32 KiB go past the cache too
    // Of CUDA device memory: a transfer begins to read or write it when what the program has queued
    // so far on `stream` is over: a cudaStream_t as a number, or kNoStream, which waits for
    // nothing. Without one: on the legacy default stream, with all streams that synchronise with
    // it, and on `owner_stream`, if that is not 0. A stream that is being captured into a graph is
    // EBUSY.
    static constexpr uintptr_t kNoStream = UINTPTR_MAX;
    std::optional<uintptr_t> stream = {};
    uintptr_t owner_stream = 0;
};
// The same choices.
using WriteOptions = ReadOptions;

struct FileOptions {
    // Parameters that affect behaviour.
    // As open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT (mode 0666), O_EXCL and O_TRUNC.
    int open_flags = 0;
    ReadOptions reading;   // of reads that do not bring their own
    WriteOptions writing;  // of writes that do not
    // PENSTOCK_ROUTE (auto, cached, direct, peer) decides for `reading` and `writing` where those
    // name no route, PENSTOCK_STRICT (1, 0) where they are not strict.
    bool route_of_environment = true, strict_of_environment = true;
    StorageKind storage = StorageKind::kAuto;  // kAuto: see StorageKind
    double throttle_latency_us = 0;            // for studies; as in FileSystemOptions
    double throttle_bandwidth_mbs = 0;
    // Parameters that affect performance.
    unsigned threads = 0;  // that read and write, beside the caller; 0: PENSTOCK_THREADS, else as
                           // many as CPUs, up to 16, for a GPU three quarters of them
};

}  // namespace penstock
