// Readahead state of each team that can be resident: the streams it follows, the windows in flight
// for it, and its ring of frames.
//
// Device memory. A resident team normally has its place for itself, but teams may share a place, so
// `busy` guards it. Only GPU threads write; the host adds up the counters. The protocols are in
// device/readahead.cuh and device/frame_ring.cuh. Source: seed 000, sections 4 and 5.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/limits.h"
#include "penstock/abi/page_entry.h"

namespace penstock {

// A window: pages that were requested before any call read them. They lie in adjacent frames, which
// the window owns (kFrameTaken) until a page is taken into the page table.
//
// Place p of a window is page first + p / run * step + p % run, in frame `frame` + p.
struct alignas(64) Window {
    uint64_t first;       // page of place 0
    int64_t step;         // pages from the first page of a run to that of the next run
    uint64_t run;         // pages of a run
    uint64_t count;       // places; 0: no window
    uint64_t frame;       // frame of place 0
    uint64_t generation;  // the frames' completion words have it when the bytes have arrived
    uint64_t stamp;       // stamp of its pages at the request (device/write_sequence.cuh)
    uint64_t left;  // bit p: place p has not been taken; teams of one block clear bits together
};
static_assert(sizeof(Window) == 64);

// Whether a stream reads more than its ring of frames holds.
enum class Outrun : uint16_t {
    kNo = 0,
    kBefore = 1,  // the earlier stream of the same file did
    kDoes = 2,
};

// A stream: reads of one file that follow each other without a gap, or at equal distances.
struct alignas(64) ReadStream {
    uint64_t file;     // file of its reads: descriptor bits 0 to 47; 0: no stream
    uint64_t offset;   // bytes; of the last read
    uint64_t size;     // bytes; of the last read
    int64_t delta;     // bytes from the read before to the last read
    uint64_t streak;   // reads in a row that came as expected
    uint64_t used_at;  // ReadaheadPlace::calls at its last read
    uint32_t oldest;   // index of its oldest window in `windows`, a ring
    uint32_t window_count;
    uint64_t given_up;  // windows lost for want of room since the last judgement
    // Matching a read to a stream loads the cache line above of each stream; the line below is
    // loaded only for the stream that matches.
    uint64_t needed;        // reads in a row before the stream requests anything
    uint64_t window_pages;  // pages of the next window
    uint64_t ahead_pages;   // pages that should lie ahead of the reader
    uint64_t frontier;      // first page that was not requested; at equal distances: in that order
    uint64_t seen_at;       // `used_at` when another place last looked for windows to evict
    uint64_t began;         // page from which on all pages were read in sequence
    uint32_t ahead_left;    // on a GPU: windows to request ahead before the next one is pulled
    uint16_t windows_max;   // length of `windows`; 0: the stream has not begun
    Outrun outrun;
    Window* windows;  // its part of FileSystemState::windows
};
static_assert(sizeof(ReadStream) == 128);

// A window that the teams of the current call pull; team i pulls the places from i * part on. It
// copies all that it needs of the window, because a team that is done with its part may drop the
// window.
struct alignas(64) WindowPull {
    uint64_t ticket;             // ticket of team 0's request; the other teams' tickets follow
    uint64_t part;               // places of a team
    uint64_t count;              // places
    uint64_t frame, generation;  // as in the window
    uint64_t spare[3];
};
static_assert(sizeof(WindowPull) == 64);

// Counts for one file: all in pages, except `stalled_ns` and `whose`. GPU threads count, relaxed,
// at a place. Only the place's team adds to the counts, until another file needs the row. The host
// adds up all places. Pages in no other count were found in the cache.
struct alignas(64) FileCounts {
    uint64_t pages;       // pages that calls wanted, each time
    uint64_t misses;      // pages requested from the host by calls that wait
    uint64_t prefetched;  // pages that windows requested
    uint64_t used;        // pages taken from windows
    uint64_t late;        // pages among them that had not arrived when they were taken
    uint64_t wasted;      // pages of windows that were dropped, not taken
    uint64_t stalled_ns;  // time that teams waited for pages and for room; summed over teams
    uint64_t whose;       // at a place: slot of the file + 1; 0: no file
};
static_assert(sizeof(FileCounts) == 64);
// Calls `visit(word)` for a pointer to each count.
template <class Visit>
PENSTOCK_BOTH void for_each_count(Visit visit) {
    visit(&FileCounts::pages);
    visit(&FileCounts::misses);
    visit(&FileCounts::prefetched);
    visit(&FileCounts::used);
    visit(&FileCounts::late);
    visit(&FileCounts::wasted);
    visit(&FileCounts::stalled_ns);
}

// The totals of a file for all time; the counts at places come on top of them.
struct alignas(64) FileTotals {
    FileCounts counts;
    uint64_t advised;  // pages that gadvise(kWillNeed) requested
    uint64_t learned;  // pages requested ahead of a launch, because the kernel's last launch missed
                       // them; also counted in misses
    uint64_t frontier;  // page up to which windows of all blocks were requested; not a count
};

// Why pages count as read once, so that they take turns in a few frames.
enum class ReadOnce : uint16_t {
    kNo = 0,
    kAdvised = 1,  // gadvise(kNoReuse)
    kOutrun = 2,   // their stream has read more than its ring of frames holds
};

struct alignas(64) ReadaheadPlace {
    uint64_t busy;        // 0 or 1: a call uses the streams
    uint64_t calls;       // reads so far
    uint64_t current;     // index of the current call's stream, if that stream has windows
    ReadOnce once;        // whether the current call reads pages that are read once
    uint16_t pull_count;  // entries of `pulls` that the current call has
    uint16_t vain;        // reads in a row that continued no stream; counts up to kVainReads
    uint16_t shares;      // 0 or 1: the current call may be one of many blocks' that read together
    // Requests of kWillNeed that may be in flight: frame 32 | generation that its completion word
    // had before 31 | 1; 0: none.
    uint64_t advised[limits::kAdvisedMax];
    // The ring of frames: slabs, oldest first.
    uint64_t ring_busy;       // 0 or 1: the list is being changed
    uint64_t cursor;          // slab + 1 << 32 | frames of it handed out; less: no slab
    uint64_t slab_count;      // slabs in the ring
    uint64_t oldest, newest;  // slabs
    uint64_t turn;            // number of the last slab that it took or reused
    uint64_t once_cursor;     // as `cursor`, for pages that are read once
    uint64_t once_turn;       // how many of `once_slabs` were begun
    uint64_t once_slabs[limits::kOnceSlabsMax];  // slab + 1; for such pages, used in turn
    WindowPull pulls[limits::kSentWindowsMax];   // of the current call
    FileCounts counts[limits::kCountedMax];      // file slot s has row s % kCountedMax
    ReadStream streams[limits::kStreamsMax];
};
static_assert(offsetof(ReadaheadPlace, streams) ==
              192 + 64 * (limits::kSentWindowsMax + limits::kCountedMax));

// Settings of windows. Constant after creation.
struct ReadaheadSettings {
    uint64_t enabled;           // 0 or 1
    uint64_t prefetch_pages;    // 0: windows grow and shrink; else pages prefetched behind every
                                // miss (seed 000)
    uint64_t window_pages_min;  // pages of the first window
    uint64_t window_pages_max;
    uint64_t ahead_pages_max;      // limit ahead of a reader; 0: blocks help
    uint64_t ahead_pages_missing;  // the limit where windows wait for storage
    uint64_t windows_max;          // windows of a stream
    uint64_t once_slabs;           // slabs of a ring in which pages that are read once take turns
    uint64_t outrun_slabs;         // least slabs of a ring that a stream can outrun
                                   // (device/frame_ring.cuh)
    uint64_t frames_max;           // frames that all windows may hold
};

}  // namespace penstock
