// The file system as GPU threads see it: tables in device memory, the request queue, and the words
// that the host writes.
//
// Pointers are addresses that GPU threads can load. src/page_cache/layout.cc and src/service build
// the tables; the device half is include/penstock/device. Each field names its writer. "Host" means
// that the host writes before any kernel uses the field, or before the completion of the control
// call that asked for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/async_call.h"
#include "penstock/abi/limits.h"
#include "penstock/abi/page_entry.h"
#include "penstock/abi/readahead.h"
#include "penstock/abi/request.h"
#include "penstock/abi/write_back.h"

namespace penstock {

// A file slot, in device memory, read by GPU threads. The host writes it, except where noted. If
// the host cannot address device memory, it writes a copy, which the copy engine transfers. Device
// scope, relaxed: a descriptor is handed out only after the slot that it names is written.
struct alignas(128) FileState {
    uint64_t generation;  // of the open descriptors of this slot, odd while open; 0: never used
    uint64_t directory_first;  // index of this file's first word in FileSystemState::directory
    uint64_t directory_count;  // number of its words: one for each leaf of 512 pages
    uint64_t epoch;  // grows when pages are dropped because the file may have changed, and when the
                     // file is opened while it is not open, or first for writing: results of
                     // earlier requests are not used any more. By the host
    int64_t modified_ns;  // st_mtim, for gstat
    uint64_t mode;        // file type bits of st_mode, for gstat
    uint64_t writing;     // 0: not opened for writing; else kWriting and the flags below

    // Bytes; read at every use. It shrinks when a read finds that a file which is open for reading
    // only is shorter. While the file is open for writing, GPU threads raise it, and truncation
    // sets it.
    uint64_t size;
    // The host may have bytes of the file up to here: pages beyond need not be read. While the file
    // is open for writing, GPU threads raise it before they request a write.
    uint64_t stored;
    uint64_t advice;         // see make_advice(); written by GPU threads, relaxed
    uint64_t device, inode;  // identity, for gstat
    // 1: the OS page cache lacked a part of what windows requested last, so that more windows at
    // once keep storage busy. The host writes it where it can address it; it is 0 elsewhere.
    uint64_t missing;
    uint64_t error;  // failed write-backs 32 | errno of the last one 16 | errno of the first one
                     // since the error was last taken 16, from the high end; GPU threads write it
    uint64_t held;   // 0 or 1: a group truncates the file or discards its dirty pages, and no
                     // write-back of the file begins; GPU threads write it
    uint64_t cuts;   // truncations so far; used as `epoch`, but written by GPU threads
};
static_assert(sizeof(FileState) == 128);

// Fields of FileState::error.
constexpr uint64_t kFileErrnoMask = 0xffff, kFileLastErrno = 0x10000, kFileFailure = 0x100000000;

// Flags of FileState::writing.
constexpr uint64_t kWriting = 1;        // a descriptor for writing is open, or was since the open
constexpr uint64_t kWritesOnce = 2;     // kOpenWriteOnce
constexpr uint64_t kWritesScratch = 4;  // kOpenNoSync
constexpr uint64_t kHasWriters = 8;     // a descriptor for writing is open now

// Flags of gopen. Those with a counterpart in open(2) have its number: O_RDONLY, O_WRONLY, O_RDWR,
// O_CREAT, O_EXCL, O_TRUNC and O_APPEND.
constexpr int kOpenReadOnly = 0, kOpenWriteOnly = 1, kOpenReadWrite = 2, kOpenAccess = 3;
constexpr int kOpenCreate = 0100, kOpenExclusive = 0200, kOpenTruncate = 01000, kOpenAppend = 02000;
// The file is written once, and only by GPU threads of this file system. No page is read, and bytes
// that are not written keep the file's value. Used with kOpenWriteOnly.
constexpr int kOpenWriteOnce = 1 << 28;
// A scratch file: neither close nor sync writes it back, only eviction does.
constexpr int kOpenNoSync = 1 << 29;

// A kernel's handle of an open file: slot, generation, file system and access in one number; or
// -errno.
using Descriptor = int64_t;
constexpr int kDescriptorSlotBits = 16;
constexpr int kDescriptorSystemBits = 12;
constexpr uint32_t kDescriptorSystemMax = (1u << kDescriptorSystemBits) - 1;
// How the file was opened. Without any of these bits: for reading.
constexpr Descriptor kMayWrite = int64_t{1} << 60, kMayNotRead = int64_t{1} << 61,
                     kAppends = int64_t{1} << 62;
PENSTOCK_BOTH constexpr Descriptor make_descriptor(uint32_t system, uint32_t slot,
                                                   uint64_t generation, Descriptor access = 0) {
    return static_cast<Descriptor>((uint64_t{system & kDescriptorSystemMax} << 48) |
                                   ((generation & 0xffffffff) << 16) | slot) |
           access;
}
PENSTOCK_BOTH constexpr uint32_t descriptor_slot(Descriptor descriptor) {
    return static_cast<uint32_t>(descriptor & 0xffff);
}
PENSTOCK_BOTH constexpr uint64_t descriptor_generation(Descriptor descriptor) {
    return static_cast<uint64_t>(descriptor >> 16) & 0xffffffff;
}
PENSTOCK_BOTH constexpr uint32_t descriptor_system(Descriptor descriptor) {
    return static_cast<uint32_t>(static_cast<uint64_t>(descriptor) >> 48) & kDescriptorSystemMax;
}

enum class Advice : uint32_t {
    kNormal,
    kSequential,
    kRandom,
    kWillNeed,
    kDontNeed,
    kNoReuse,
    kStrided
};
// The last advice for the whole file (FileState::advice): Advice + 1 4 | low bits of
// FileState::generation 16 | stride in bytes, signed, 44, from the low end. It ends when the last
// descriptor of the file is closed.
constexpr int kAdviceOpenedShift = 4, kAdviceStrideShift = 20;
constexpr int64_t kAdviceStrideMax = (int64_t{1} << 43) - 1;
PENSTOCK_BOTH constexpr uint64_t make_advice(Advice advice, uint64_t generation, int64_t stride) {
    return (static_cast<uint64_t>(stride) << kAdviceStrideShift) |
           (generation & 0xffff) << kAdviceOpenedShift | (static_cast<uint64_t>(advice) + 1);
}
PENSTOCK_BOTH constexpr Advice advice_of(uint64_t word, uint64_t generation) {
    const bool given = (word & 15) != 0 &&
                       (word >> kAdviceOpenedShift & 0xffff) == (generation & 0xffff);
    return given ? static_cast<Advice>((word & 15) - 1) : Advice::kNormal;
}
PENSTOCK_BOTH constexpr int64_t stride_of_advice(uint64_t word) {
    return static_cast<int64_t>(word) >> kAdviceStrideShift;
}

// Control calls: operations that only the host can do. They are the payload of a port, in mapped
// host memory. The GPU thread that holds the port's lock writes all fields except `result`; the
// host reads them after kCall.
enum class ControlCall : uint64_t {
    kNone,
    kOpen,
    kClose,     // `flags`: make_close(); the answer may be kWriteBackFirst or kForgetFirst
    kSync,      // makes durable what was written back
    kTruncate,  // sets the size of the file to `size` bytes
    kUnlink,
    kWrite,       // writes bytes to the file at once
    kInvalidate,  // pages of slot `size` may hold bytes that are in no file
};

// The progress of a group that closes a descriptor, and the host's answers if it is the last
// descriptor that may write the file. kWriteBackFirst: write the file back and call again, with
// kHasWritten or kCannotWrite. For kCannotWrite, and for a scratch file, all dirty pages are held
// then, so that no write-back of the file is in flight. kForgetFirst: the host lets no open through
// until the group has dropped the held pages and calls again with kHasForgotten. It calls with
// kHasLeft if other groups have some of these pages pinned: then this slot is never opened again.
enum class Closing : uint32_t { kAsks, kHasWritten, kCannotWrite, kHasForgotten, kHasLeft };
constexpr int64_t kWriteBackFirst = 1, kForgetFirst = 2;
// The caller of an open or close: a kernel, which may forget to close; the host; or the host when
// it reclaims what kernels have left open, which closes nothing.
enum class Opener : uint32_t { kKernel, kHost, kReclaim };
PENSTOCK_BOTH constexpr int make_close(Closing how, Opener opener) {
    return static_cast<int>(how) | static_cast<int>(opener) << 8;
}
PENSTOCK_BOTH constexpr Closing closing_of(int flags) { return static_cast<Closing>(flags & 0xff); }
PENSTOCK_BOTH constexpr Opener opener_of(int flags) { return static_cast<Opener>(flags >> 8); }
struct alignas(64) ControlPort {
    Descriptor descriptor;  // argument of close, sync, truncate and write
    int64_t result;         // a descriptor, 0 or -errno; the host writes it, read after kRespond
    uint64_t size;  // argument of truncate and invalidate; of write: offset of the first byte
    int32_t flags;  // argument of open and close; of write: number of bytes
    char path[limits::kPathSizeMax];  // of write: the bytes
};
static_assert(sizeof(ControlPort) == 4160);

// Words that the host writes and waiting GPU threads read. Only `abort` has other writers. Mapped
// host memory, system scope, relaxed: they publish no other memory.
struct alignas(64) HostWords {
    uint64_t abort;  // 0, or the errno with which every wait ends from now on; a GPU thread also
                     // writes it when it gives up what the host waits for
    uint64_t heartbeat;  // counts up every kHeartbeatPeriodNs while the host serves
};

// A copy of the host's words in device memory. A waiting GPU thread refreshes it for all others,
// because the reads of one host word by many SMs are served one after another, in about 1 us each.
struct alignas(64) HostWordsCache {
    uint64_t time_ns;  // time of the copy
    HostWords words;
};

// One demand ring. `slots` lies in mapped host memory: the GPU writes, the host reads. `tail` and
// `doorbell` lie in device memory: GPU threads write; the host reads them where it can.
struct alignas(64) RingState {
    uint64_t tail;                  // next ticket
    uint64_t* slots;                // 4 words for each slot; constant
    uint64_t* answers;              // one for each slot, device memory; the host writes
                                    // (make_answer). Constant; null: pages are not pulled
    int32_t shift;                  // slots = 1 << shift; constant
    uint32_t bells;                 // 1: workers of the CPU backend sleep on `doorbell`; constant
    alignas(64) uint64_t doorbell;  // counts submissions
};

// Owner of a frame (FileSystemState::owners): slot 16 | page 48, or one of these.
constexpr uint64_t kFrameFree = ~0ull;
// A team holds the frame, between its old page and its new one.
constexpr uint64_t kFrameTaken = ~0ull - 1;
PENSTOCK_BOTH constexpr uint64_t make_owner(uint32_t slot, PageIndex page) {
    return (uint64_t{slot} << 48) | page;
}

// Pins that outlast the call that took them (FileSystemState::held_pins): views 32 | pages of
// asynchronous calls 32, from the low end.
constexpr uint64_t kViewPin = 1;
constexpr uint64_t kAsyncPin = 1ull << 32;
PENSTOCK_BOTH constexpr uint64_t views_held(uint64_t pins) { return pins & 0xffffffff; }
PENSTOCK_BOTH constexpr uint64_t async_pages_held(uint64_t pins) { return pins >> 32; }
PENSTOCK_BOTH constexpr uint64_t pages_held(uint64_t pins) {
    return views_held(pins) + async_pages_held(pins);
}

// The n-th write-back: low bits of n + 1 19 | its number 17 | frame 28, from the high end.
constexpr unsigned kOrderFrameBits = 28, kOrderNumberBits = 17;
static_assert(limits::kFrameBits <= kOrderFrameBits, "a word names any frame");
PENSTOCK_BOTH constexpr uint64_t make_write_order(uint64_t n, uint64_t number, FrameIndex frame) {
    return (n + 1) << (kOrderFrameBits + kOrderNumberBits) | number << kOrderFrameBits | frame;
}
PENSTOCK_BOTH constexpr bool is_write_order(uint64_t word, uint64_t n) {
    return word >> (kOrderFrameBits + kOrderNumberBits) ==
           make_write_order(n, 0, 0) >> (kOrderFrameBits + kOrderNumberBits);
}
PENSTOCK_BOTH constexpr uint64_t number_of_write_order(uint64_t word) {
    return word >> kOrderFrameBits & ((1ull << kOrderNumberBits) - 1);
}
PENSTOCK_BOTH constexpr FrameIndex frame_of_write_order(uint64_t word) {
    return static_cast<FrameIndex>(word & ((1ull << kOrderFrameBits) - 1));
}

// Which frames are evicted when none is free.
enum class ReplacementPolicy : uint32_t {
    kRings,      // the oldest of the team's own ring (seed 000, section 5)
    kGlobalLra,  // the oldest of all, used or not: the original
    kClock,      // the oldest of all that was not used since the clock hand last passed
};

// The file system's state that kernels receive, in device memory. Each pointer says in which memory
// its words lie; docs/abi.md names their writers and readers.
struct FileSystemState {
    // Constant after creation.
    uint32_t system;      // number of the file system in the process; part of each descriptor
    uint32_t page_shift;  // page size = 1 << page_shift
    uint32_t frame_count;
    uint32_t leaf_count;
    uint32_t ring_count;  // 1, or one for each worker (the seed's static map)
    uint32_t views_max;   // views that may be mapped at once
    uint32_t held_max;    // pages that views and asynchronous calls may hold together: the other
                          // frames are for calls that wait
    uint32_t async_pages_max;  // pages that asynchronous calls may hold
    uint32_t async_count;      // entries of `async_calls`
    uint64_t directory_size;   // words in `directory`
    ReplacementPolicy policy;
    uint32_t one_by_one;   // a read requests one page and waits for it before the next request
    uint32_t place_count;  // entries of `places`: teams that can be resident
    uint32_t slab_frames;  // frames of a slab of a ring
    uint32_t slab_count;
    uint32_t mark_words;       // words of marks of a frame
    uint32_t write_backs_max;  // write-backs in flight at once
    uint32_t sequence_count;   // entries of `sequences`, a power of two
    ReadaheadSettings readahead;
    std::byte* frames;      // frame_count << page_shift bytes, device memory, 2 MiB aligned
    uint64_t* completions;  // one for each frame, device memory; the host or a pulling team writes
    uint64_t* owners;       // one for each frame, device memory
    PageEntry* leaves;      // leaf_count * kLeafEntries, device memory
    uint64_t* leaf_owners;  // directory index + 1, or 0, device memory
    uint64_t* leaf_locks;   // 0 or 1, device memory
    uint64_t* directory;    // leaf + 1, or 0; device memory
    FileState* files;       // kFilesMax, device memory
    uint64_t* port_locks;   // kPortsMax, device memory
    uint64_t* port_requests;   // kPortsMax: sequence << 8 | ControlCall, mapped; GPU writes
    uint64_t* port_responses;  // kPortsMax: the sequence answered, mapped; host writes
    ControlPort* ports;        // kPortsMax, mapped
    HostWords* host;           // mapped
    AsyncCall* async_calls;    // async_count, device memory
    FileTotals* totals;        // kFilesMax, device memory
    ReadaheadPlace* places;    // place_count and one more, whose ring holds pages that blocks read
                               // together; device memory
    Window* windows;           // readahead.windows_max for each stream of each place, device memory
    // Of each frame, in device memory (abi/write_back.h); snapshots are as large as the marks.
    uint64_t* marks;              // mark_words: dirty granules
    uint64_t* snapshots;          // mark_words: granules that a write-back takes; the host reads
    uint64_t* write_backs;        // the write-back word
    uint64_t* write_completions;  // completion of the last write-back; the host writes
    uint64_t* write_order;        // write_backs_max: the last write-backs, make_write_order()
    uint64_t* sequences;          // sequence_count: write sequences of groups of 64 pages
    uint64_t* slab_next;          // slab_count, device memory: the next newer slab of its ring
    uint64_t* slab_owners;        // slab_count, device memory: place + 1
    // Written by GPU threads, on lines of their own.
    alignas(64) uint64_t clock_hand;     // frames that CLOCK has examined
    alignas(64) uint64_t leaf_hand;      // leaves examined for reuse
    uint64_t leaves_in_use;              // leaves that a directory word names
    uint64_t renewals;                   // of page entries (device/page_entry.cuh: renew)
    alignas(64) uint64_t held_pins;      // kViewPin for each view, kAsyncPin for each page that an
                                         // asynchronous call holds
    uint64_t calls_outside;              // blocks that left while an asynchronous call was in
                                         // flight
    alignas(64) uint64_t port_hand;      // ports tried
    alignas(64) uint64_t slab_hand;      // slabs taken so far, fresh ones and reused ones
    uint64_t fresh_hand;                 // fresh slabs among them
    uint64_t ring_hand;                  // slabs examined to take one from another ring
    uint64_t rings_in_use;               // places with a slab
    alignas(64) uint64_t window_frames;  // frames that windows hold
    alignas(64) uint64_t dirty_pages;
    alignas(64) uint64_t write_backs_begun;  // write-backs in flight
    uint64_t write_hand;                     // frames examined for pages to write back
    uint64_t write_order_tail;               // write-backs entered in `write_order` so far
    uint64_t write_order_head;            // write-backs among them that were examined to be ended
    uint64_t writes_done, writes_failed;  // write-backs that have ended
    uint64_t write_error;                 // errno of the last one that failed
    HostWordsCache host_words_cache;      // unused on the CPU backend
    RingState rings[limits::kRingsMax];
    RingState background;  // requests that no call waits for yet
};

// Returns the windows of a stream of a place.
PENSTOCK_BOTH inline Window* windows_of(const FileSystemState& system, uint64_t place,
                                        uint64_t stream) {
    return system.windows + (place * limits::kStreamsMax + stream) * system.readahead.windows_max;
}

}  // namespace penstock
