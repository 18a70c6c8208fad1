// Options of devices, file systems and host reads and writes. Plain values. Where a comment says
// so, 0 lets the library choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "penstock/route.h"
#include "penstock/status.h"

namespace penstock {

// Only the first two options concern a CUDA device; the others are for the CPU backend alone.
struct DeviceOptions {
    // Parameters that affect behaviour.
    bool runs_kernels = true;    // "auto" chooses a CUDA device only if it can run the kernels of
                                 // this program. The kernels are loaded when the device is opened.
                                 // false: any device; host reads need only its memory
    bool second_context = true;  // CUDA: pages for kernels are copied in a second context, made
                                 // when the device is opened to run kernels (500 MiB of device
                                 // memory). Then the program may free memory or load kernels while
                                 // kernels read files. false: copies use the program's context, and
                                 // kernels whose pages are blocked for 4 s get EDEADLK
    double watchdog_seconds = 60;  // time after which a block that reaches no barrier, wait or exit
                                   // fails; 0: never
    // Parameters that affect performance.
    unsigned permits = 0;    // blocks resident at once; 0: the number of CPUs
    size_t memory_size = 0;  // bytes of device memory; 0: a quarter of RAM, at most 4 GiB
    // The link model slows copies down to this link; timings are then simulated. Both 0: no model.
    double link_latency_us = 0;
    double link_bandwidth_gbs = 0;  // 10^9 bytes a second
};

// How the bytes of files are read. kAuto reads cached bytes with posix calls, and other bytes with
// io_uring, past the page cache, where the kernel permits it. kUring fails where it does not.
enum class StorageKind : uint8_t { kAuto, kPosix, kUring };

// Which worker serves a request: any worker that is free, or the one that the seed's static map of
// block ids to workers gives (seed 000, section 3.3).
enum class RequestMap : uint8_t { kShared, kStatic };

// Options for studies and tests of a File, a FileSystem or calibrate(). No program needs them.
struct StudyOptions {
    // Each storage operation takes at least this latency, and all operations together move at most
    // this many 10^6 bytes a second. 0: no throttle. At most 3.6e9 each, and a bandwidth of at
    // least 1e-6; EINVAL otherwise.
    double throttle_latency_us = 0;
    double throttle_bandwidth_mbs = 0;
    RequestMap map = RequestMap::kShared;  // read by a FileSystem only
};

// What the reads of kernels request beyond the bytes that they want.
enum class Readahead : uint8_t {
    kAuto,    // windows for streams of reads; they grow and shrink with their use
    kOff,     // nothing
    kStatic,  // prefetch_size bytes behind every miss (seed 000, section 4.1)
    kSeed,    // nothing; a read requests one page after another and merges none, as the original
};
// Which frame is evicted when none is free.
enum class Replacement : uint8_t {
    kRings,      // the oldest in the ring of the resident block that needs it; pages that other
                 // blocks use get a second chance
    kGlobalLra,  // the oldest of all, used or not, as in the original
    kClock,      // the oldest of all that was not used since
};
// Options of a FileSystem.
struct FileSystemOptions {
    // Parameters that affect behaviour.
    StorageKind storage = StorageKind::kAuto;
    // Parameters that affect performance.
    // Bytes, a power of two from 4 KiB to 4 MiB. For each page of 4 KiB tables take 112 bytes of
    // device memory (28 MiB for 1 GiB of frames), for each page of 64 KiB 352 bytes (5.5 MiB). They
    // take 10 MiB more, on a GPU 230 MiB. A view (gmmap) lies in one page.
    uint32_t page_size = 4096;
    size_t cache_size = 0;  // bytes of frames; 0: half of the device memory that is free
    unsigned workers = 0;   // threads that serve requests, 1 to 16; 0: 4, on a GPU three quarters
                            // of the CPUs, up to 16. There are none where blocks help
    bool helping = true;    // CPU backend: a block that waits serves requests itself
    Readahead readahead = Readahead::kAuto;
    uint64_t prefetch_size = 0;  // bytes, kStatic only. A multiple of the page size, at most 63
                                 // pages and at most 1 MiB, or one page. With the missed page at
                                 // most a quarter of the cache. A read that misses n pages
                                 // prefetches at most 64 - n. 0: 60 KiB, rounded up to whole pages
    Replacement replacement = Replacement::kRings;
    uint32_t log_events = 0;  // size of the log for FileSystem::take_log(), in events of 64 bytes;
                              // 0: no log, else at most 2^22
    StudyOptions study = {};
};

// What a read or write does to the OS page cache.
enum class CachePolicy : uint8_t {
    kAuto,    // reads use cached bytes and leave them in the cache; other bytes take the cheapest
              // route. Writes go into the cache
    kKeep,    // all bytes go through the cache and stay there, as far as the kernel permits
    kDrop,    // bytes that were not in the cache are not left there, as far as the kernel permits.
              // Writes, reads below 32 KiB and ranges that cannot be read direct use calls that
              // leave nothing (RWF_DONTCACHE, Linux 6.14). A file system without these calls, such
              // as FUSE, may leave bytes in the cache (kNoDrop)
    kBypass,  // direct wherever direct I/O is possible, also for bytes that are cached and clean;
              // of a write only whole pages
};

// Options of one read, or the defaults of a File's reads.
struct ReadOptions {
    CachePolicy cache = CachePolicy::kAuto;
    std::optional<Route> route;  // take this route wherever possible; none: `cache` decides
    bool strict = false;         // fail with EOPNOTSUPP instead of a fallback, when a range cannot
                                 // take `route`, cannot bypass the cache with kBypass, or may stay
                                 // there with kDrop. A write that fails so writes nothing. With
                                 // kDrop reads below 32 KiB bypass the cache too
    // For CUDA device memory: the transfer first accesses the memory when all work that the program
    // has queued so far on `stream` has ended. `stream` is a cudaStream_t as a number, or
    // kNoStream, which waits for nothing. Without a value it is the legacy default stream, with all
    // streams that synchronise with it, and `owner_stream` unless that is 0. Errors: EBUSY when the
    // stream is being captured into a graph.
    static constexpr uintptr_t kNoStream = UINTPTR_MAX;
    std::optional<uintptr_t> stream = {};
    uintptr_t owner_stream = 0;
};
// The options of a write are the same.
using WriteOptions = ReadOptions;

// Options of File::open.
struct FileOptions {
    // Parameters that affect behaviour.
    // As for open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT (mode 0666), O_EXCL, O_TRUNC and
    // O_APPEND. With O_APPEND every write goes to the end of the file: see File::write().
    int open_flags = 0;
    ReadOptions reading;   // for reads without options of their own
    WriteOptions writing;  // for writes without options of their own
    // Whether the environment decides for `reading` and `writing`: PENSTOCK_ROUTE (auto, cached,
    // direct, peer) where they name no route, PENSTOCK_STRICT (1, 0) where they are not strict.
    bool route_of_environment = true, strict_of_environment = true;
    // Whether a line on standard error tells what became of each read and write; none:
    // PENSTOCK_EXPLAIN (1, 0) decides. The line of an asynchronous call may follow its result.
    std::optional<bool> explain = {};
    StorageKind storage = StorageKind::kAuto;  // kAuto: see StorageKind
    // Parameters that affect performance.
    bool read_ahead = true;  // small reads with gaps, backward or in nested loops: announce to the
                             // OS page cache the pieces that the calling thread reads next. Reads
                             // that continue forward are left to the readahead of the kernel
    unsigned threads = 0;  // threads that read and write, besides the caller; 0: PENSTOCK_THREADS,
                           // else the number of CPUs, for a GPU three quarters of it, up to 16
    StudyOptions study = {};
};

// Completes `options` from PENSTOCK_ROUTE, PENSTOCK_STRICT and PENSTOCK_EXPLAIN, where `options`
// leaves that to the environment. File::open() does so itself. The result is final: later changes
// of the environment do not affect it. A variable that is not set changes nothing. Any thread,
// while no other thread changes the environment. Errors: EINVAL when a variable has an invalid
// value; the origin of the status is the variable's name.
Status fill_from_environment(FileOptions* options);

}  // namespace penstock
