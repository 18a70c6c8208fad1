// The file system as GPU threads see it: tables in device memory, the request queue, and the host's
// words.
//
// Pointers are addresses that GPU threads can load. Built by src/page_cache/layout.cc and
// src/service; the device half is include/penstock/device. Who writes what is said at each field;
// "host" before any kernel that uses it, or behind the completion of the control call that asked
// for it.
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

// A file slot, device memory, read by GPU threads. Written by the host (where it cannot address
// device memory: its copy, which the copy engine brings over), except where noted. Device scope,
// relaxed: a descriptor is handed out behind what it names.
struct alignas(128) FileState {
    uint64_t generation;  // of the open descriptors of this slot, odd while open; 0: never used
    uint64_t directory_first;  // index of this file's first word in FileSystemState::directory
    uint64_t directory_count;  // its words: one for each leaf of 512 pages
    uint64_t epoch;  // counts up when pages are dropped because the file may have changed, and when
                     // it is opened while nobody has it open, or first for writing: what was asked
                     // for before is not taken any more. By the host
    int64_t modified_ns;  // st_mtim, for gstat
    uint64_t mode;        // file type bits of st_mode, for gstat
    uint64_t writing;     // 0: nobody has opened it for writing; else 1 and the flags below

    // Bytes; read at every use. Shrinks when a read finds a file shorter that is open for reading
    // only. While it is open for writing, GPU threads raise it, and truncation sets it.
    uint64_t size;
    // Up to here the host may have something of the file: pages beyond need not be read. While it
    // is open for writing, GPU threads raise it before they ask for a write.
    uint64_t stored;
    uint64_t advice;         // see make_advice(); written by GPU threads, relaxed
    uint64_t device, inode;  // identity, for gstat
    // 1: the OS page cache had not all of what windows asked for last, so that more of them at once
    // keep storage busy. Written where the host can address it, and 0 elsewhere.
    uint64_t missing;
    uint64_t error;  // write-backs that failed 32 | errno of the last 16 | of the first since
                     // somebody took it 16, from the high end; GPU threads
    uint64_t held;  // 0 or 1: somebody truncates it, or gives up what is dirty: no write-back of it
                    // begins; GPU threads
    uint64_t cuts;  // truncations so far: as `epoch`, by GPU threads
};
static_assert(sizeof(FileState) == 128);

// FileState::error.
constexpr uint64_t kFileErrnoMask = 0xffff, kFileLastErrno = 0x10000, kFileFailure = 0x100000000;

// FileState::writing.
constexpr uint64_t kWriting = 1;     // somebody has it open for writing, or had since it was opened
constexpr uint64_t kWritesOnce = 2;  // kOpenWriteOnce
constexpr uint64_t kWritesScratch = 4;  // kOpenNoSync
constexpr uint64_t kHasWriters = 8;     // somebody has it open for writing now

// Flags of gopen beside those of open(2), whose numbers O_RDONLY, O_WRONLY, O_RDWR, O_CREAT,
// O_EXCL, O_TRUNC and O_APPEND have.
constexpr int kOpenReadOnly = 0, kOpenWriteOnly = 1, kOpenReadWrite = 2, kOpenAccess = 3;
constexpr int kOpenCreate = 0100, kOpenExclusive = 0200, kOpenTruncate = 01000, kOpenAppend = 02000;
// Written once, by GPU threads of this file system alone: no page is read, what was not written
// keeps the file's bytes. With kOpenWriteOnly.
constexpr int kOpenWriteOnce = 1 << 28;
// A scratch file: neither close nor sync writes it back, only who needs room.
constexpr int kOpenNoSync = 1 << 29;

// What a kernel holds of an open file: slot, generation, file system and how it was opened, in one
// number; or -errno.
using Descriptor = int64_t;
constexpr int kDescriptorSlotBits = 16;
constexpr int kDescriptorSystemBits = 12;
constexpr uint32_t kDescriptorSystemMax = (1u << kDescriptorSystemBits) - 1;
// How it was opened; none of them: for reading.
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
// The last advice that is for the whole file (FileState::advice): Advice + 1 4 | low bits of
// FileState::generation 16 | stride in bytes, signed, 44, from the low end. It ends with the file
// being closed by all who had it open.
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

// Control calls: what only the host can do. The payload of a port, in mapped host memory: written
// by the GPU thread that holds the port's lock (but `result`), read by the host behind kCall.
enum class ControlCall : uint64_t {
    kNone,
    kOpen,
    kClose,     // `flags`: make_close(); may be answered kWriteBackFirst or kForgetFirst
    kSync,      // what was written back becomes durable
    kTruncate,  // the file gets `size` bytes
    kUnlink,
    kWrite,     // bytes go to the file at once
    kDistrust,  // pages of slot `size` may have what is in no file
};

// How far the group is that closes a descriptor, and what it is told where that is the last that
// may write its file: kWriteBackFirst, write it back and come again (kCannotWrite, or of a scratch
// file: with all that is dirty held, so that nothing of it is under way); kForgetFirst, nobody
// opens the file until that is over: forget what is held and come again, with kHasForgotten, or
// kHasLeft if others have some of those pages pinned: nobody opens this slot any more then.
enum class Closing : uint32_t { kAsks, kHasWritten, kCannotWrite, kHasForgotten, kHasLeft };
constexpr int64_t kWriteBackFirst = 1, kForgetFirst = 2;
// Who opens or closes a file: a kernel, which may forget to close it; the host; or the host that
// gives up what kernels have left open, by which nothing is closed.
enum class Opener : uint32_t { kKernel, kHost, kReclaim };
PENSTOCK_BOTH constexpr int make_close(Closing how, Opener opener) {
    return static_cast<int>(how) | static_cast<int>(opener) << 8;
}
PENSTOCK_BOTH constexpr Closing closing_of(int flags) { return static_cast<Closing>(flags & 0xff); }
PENSTOCK_BOTH constexpr Opener opener_of(int flags) { return static_cast<Opener>(flags >> 8); }
struct alignas(64) ControlPort {
    Descriptor descriptor;  // argument of close, sync, truncate and write
    int64_t result;         // a descriptor, 0 or -errno; written by the host, read behind kRespond
    uint64_t size;  // argument of truncate and distrust; of write: the first byte in the file
    int32_t flags;  // argument of open and close; of write: bytes
    char path[limits::kPathSizeMax];  // of write: the bytes
};
static_assert(sizeof(ControlPort) == 4160);

// Words that the host (but for `abort` nobody else) writes and waiting GPU threads read; mapped
// host memory, system scope, relaxed: nothing hangs on what was written before them.
struct alignas(64) HostWords {
    uint64_t abort;      // 0, or the errno with which every wait ends from now on; written by a GPU
                         // thread, too, that has given up what the host waits for
    uint64_t heartbeat;  // counts up every kHeartbeatPeriodNs while the host serves
};

// What the host's words said when one of the GPU threads that wait looked last, for all the others;
// device memory. Reads of one host word by many SMs are done one after another, a microsecond each.
struct alignas(64) HostGlance {
    uint64_t time_ns;  // when somebody looked
    HostWords words;
};

// One demand ring. `slots` in mapped host memory (GPU writes, host reads); `tail` and `doorbell` in
// device memory (GPU threads write; where it can, the host reads).
struct alignas(64) RingState {
    uint64_t tail;                  // next ticket
    uint64_t* slots;                // 4 words for each slot; constant
    uint64_t* answers;              // one for each slot, device memory, host writes (make_answer);
                                    // constant, null: nobody pulls pages
    int32_t shift;                  // slots = 1 << shift; constant
    uint32_t bells;                 // 1: workers of the CPU backend sleep on `doorbell`; constant
    alignas(64) uint64_t doorbell;  // counts submissions
};

// Owner of a frame (FileSystemState::owners): slot 16 | page 48, or one of these.
constexpr uint64_t kFrameFree = ~0ull;
// In some team's hands, between its old page and its new one.
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

// Who gives up frames when none is free.
enum class ReplacementPolicy : uint32_t {
    kRings,      // each team its own oldest (seed 000, section 5)
    kGlobalLra,  // the oldest of all, used or not: the original
    kClock,      // the oldest of all that was not used since the hand came by last
};

// What a kernel is given, device memory. Pointers say where the words lie that they point to;
// docs/abi.md has who writes and reads each.
struct FileSystemState {
    // Constant after creation.
    uint32_t system;      // which file system of the process; part of each descriptor
    uint32_t page_shift;  // page size = 1 << page_shift
    uint32_t frame_count;
    uint32_t leaf_count;
    uint32_t ring_count;  // 1, or one for each worker (the seed's static map)
    uint32_t views_max;   // views that may be mapped at once
    uint32_t held_max;    // pages that views and asynchronous calls may hold together: the rest
                          // of the frames is for calls that wait
    uint32_t async_pages_max;  // that asynchronous calls may hold
    uint32_t async_count;      // of `async_calls`
    uint64_t directory_size;   // words in `directory`
    ReplacementPolicy policy;
    uint32_t one_by_one;    // a read asks for one page and waits for it before it asks for the next
    uint32_t place_count;   // of `places`: teams that can be resident
    uint32_t chunk_frames;  // frames of a chunk of a ring
    uint32_t chunk_count;
    uint32_t mark_words;       // of a frame
    uint32_t write_backs_max;  // under way at once
    uint32_t sequence_count;   // a power of two
    ReadaheadSettings readahead;
    std::byte* frames;        // frame_count << page_shift bytes, device memory, 2 MiB aligned
    uint64_t* completions;    // one for each frame, device memory; host writes, or who pulls a page
    uint64_t* owners;         // one for each frame, device memory
    PageEntry* leaves;        // leaf_count * kLeafEntries, device memory
    uint64_t* leaf_owners;    // directory index + 1, or 0, device memory
    uint64_t* leaf_locks;     // 0 or 1, device memory
    uint64_t* directory;      // leaf + 1, or 0; device memory
    FileState* files;         // kFilesMax, device memory
    uint64_t* port_locks;     // kPortsMax, device memory
    uint64_t* port_requests;  // kPortsMax: sequence << 8 | ControlCall, mapped; GPU writes
    uint64_t* port_responses;  // kPortsMax: the sequence answered, mapped; host writes
    ControlPort* ports;        // kPortsMax, mapped
    HostWords* host;           // mapped
    AsyncCall* async_calls;    // async_count, device memory
    FileTotals* totals;        // kFilesMax, device memory
    ReadaheadPlace* places;    // place_count and one more, whose ring is of pages that blocks read
                               // together; device memory
    Window* windows;           // readahead.windows_max for each stream of each place, device memory
    // Of each frame, in device memory (abi/write_back.h); snapshots are as large as the marks.
    uint64_t* marks;              // mark_words: dirty granules
    uint64_t* snapshots;          // mark_words: those that a write-back takes; the host reads them
    uint64_t* write_backs;        // whether one is under way
    uint64_t* write_completions;  // of the last one; the host writes
    uint64_t* write_order;        // write_backs_max: the last ones, make_write_order()
    uint64_t* sequences;          // sequence_count: write sequences of groups of 64 pages
    uint64_t* chunk_next;         // chunk_count, device memory: the next newer one of its ring
    uint64_t* chunk_owners;       // chunk_count, device memory: place + 1
    // Written by GPU threads, on lines of their own.
    alignas(64) uint64_t clock_hand;     // frames looked at by CLOCK
    alignas(64) uint64_t leaf_hand;      // leaves looked at for reuse
    uint64_t leaves_in_use;              // that a directory word names
    uint64_t renewals;                   // of page entries (device/page_entry.cuh: renew)
    alignas(64) uint64_t held_pins;      // kViewPin for each view, kAsyncPin for each page that an
                                         // asynchronous call holds
    alignas(64) uint64_t port_hand;      // ports tried
    alignas(64) uint64_t chunk_hand;     // chunks taken so far, fresh ones and used again
    uint64_t fresh_hand;                 // of those, fresh ones
    uint64_t ring_hand;                  // chunks looked at to take one from another ring
    uint64_t rings_in_use;               // places with a chunk
    alignas(64) uint64_t window_frames;  // that windows hold
    alignas(64) uint64_t dirty_pages;
    alignas(64) uint64_t write_backs_begun;  // that are not over
    uint64_t write_hand;                     // frames looked at for pages to write back
    uint64_t last_write;                     // a frame that was being written back lately
    uint64_t write_order_tail;               // write-backs in `write_order` so far
    uint64_t write_order_head;               // of those, looked at to be ended
    uint64_t writes_done, writes_failed;     // write-backs that are over
    uint64_t write_error;                    // errno of the last one that failed
    HostGlance glance;                       // not on the CPU backend
    RingState rings[limits::kRingsMax];
    RingState background;  // what nobody waits for yet
};

// Where the windows of a place's stream lie.
PENSTOCK_BOTH inline Window* windows_of(const FileSystemState& system, uint64_t place,
                                        uint64_t stream) {
    return system.windows + (place * limits::kStreamsMax + stream) * system.readahead.windows_max;
}

}  // namespace penstock
