// What readahead keeps for each team that can be resident: the streams it follows, the windows that
// are on their way to it, and its ring of frames.
//
// Device memory. A team's place is its own while it is resident; `busy` guards it all the same,
// since teams may share a place. Written by GPU threads only; the host adds up the counters. The
// protocols are in device/readahead.cuh and device/frame_ring.cuh. Seed 000, sections 4 and 5.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/limits.h"
#include "penstock/abi/page_entry.h"

namespace penstock {

// Pages that were asked for before anybody read them, in adjacent frames that the window owns
// (kFrameTaken) until a page of it is taken into the page table.
//
// Place p of a window is page first + p / run * step + p % run, in frame `frame` + p.
struct alignas(64) Window {
    uint64_t first;       // page of place 0
    int64_t step;         // pages from the first page of a run to that of the next
    uint64_t run;         // pages of a run
    uint64_t count;       // places; 0: no window
    uint64_t frame;       // of place 0
    uint64_t generation;  // that the frames' completion words carry when the bytes are there
    uint64_t stamp;       // of its pages when it was asked for (device/write_sequence.cuh)
    uint64_t left;  // bit p: place p has not been taken; teams of one block clear them together
};
static_assert(sizeof(Window) == 64);

// Whether a stream reads more than its ring of frames holds.
enum class Outrun : uint16_t {
    kNo = 0,
    kBefore = 1,  // the stream of the same file before it did
    kDoes = 2,
};

// Reads of one file that come one behind the other, or at equal distances.
struct alignas(64) ReadStream {
    uint64_t file;     // of its reads: descriptor bits 0 to 47; 0: no stream
    uint64_t offset;   // bytes; of the last read
    uint64_t size;     // bytes; of the last read
    int64_t delta;     // bytes from the read before to it
    uint64_t streak;   // reads in a row that came as expected
    uint64_t used_at;  // ReadaheadPlace::calls when it was read last
    uint32_t oldest;   // its first window in `windows`, a ring
    uint32_t window_count;
    uint64_t given_up;  // windows that went for want of room since the last were judged
    // To find out which stream a read belongs to takes a line of each; from here on only of that
    // one.
    uint64_t needed;        // reads in a row before anything is asked for
    uint64_t window_pages;  // of the next window
    uint64_t ahead_pages;   // that should lie ahead of the reader
    uint64_t frontier;      // page from which on nothing was asked for; of equal distances: in that
                            // order
    uint64_t seen_at;       // `used_at` when another place looked for windows to let go
    uint64_t began;         // page from which on all was read, one behind the other
    uint32_t ahead_left;    // on a GPU: windows that are asked for ahead before one is pulled again
    uint16_t windows_max;   // of `windows`; 0: the stream has not begun
    Outrun outrun;
    Window* windows;  // its part of FileSystemState::windows
};
static_assert(sizeof(ReadStream) == 128);

// A window that the teams of the call under way pull, team i the places from i * part on. What it
// needs of the window is copied: a team that is done with its part may give the window up.
struct alignas(64) WindowPull {
    uint64_t ticket;             // of team 0's request; the other teams' are behind it
    uint64_t part;               // places of a team
    uint64_t count;              // places
    uint64_t frame, generation;  // as of the window
    uint64_t spare[3];
};
static_assert(sizeof(WindowPull) == 64);

// What was done with one file. Pages, but for the last. Counted by GPU threads, relaxed: at a
// place, where only its team adds to them, until the row is wanted for another file; added up over
// all places by the host. What is in no other count was found in the cache.
struct alignas(64) FileCounts {
    uint64_t pages;       // that calls wanted, each time
    uint64_t misses;      // asked of the host by calls that wait
    uint64_t prefetched;  // asked for by windows
    uint64_t used;        // taken from windows
    uint64_t late;        // of those, not there yet when they were taken
    uint64_t wasted;      // of windows that were given up, not taken
    uint64_t stalled_ns;  // that teams waited for pages and for room; summed over teams
    uint64_t whose;       // at a place: slot of the file + 1; 0: nobody's
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

// A file's own, for all time; what is counted at places comes on top.
struct alignas(64) FileTotals {
    FileCounts counts;
    uint64_t advised;   // asked for by gadvise(kWillNeed)
    uint64_t learned;   // asked for ahead of a launch, since the kernel's last one missed them;
                        // among the misses, too
    uint64_t frontier;  // page up to which windows of all blocks were asked for; not a count
};

// Why pages are taken to be read once, so that they take turns in a few frames.
enum class ReadOnce : uint16_t {
    kNo = 0,
    kAdvised = 1,  // gadvise(kNoReuse)
    kOutrun = 2,   // their stream has read more than its ring of frames holds
};

struct alignas(64) ReadaheadPlace {
    uint64_t busy;        // 0 or 1: a call uses the streams
    uint64_t calls;       // reads that came by
    uint64_t current;     // index of the stream of the call that is under way, if it has windows
    ReadOnce once;        // whether that call is of pages that are read once
    uint16_t pull_count;  // of `pulls`, that call's
    uint16_t vain;        // reads in a row that went on with no stream; counts up to kVainReads
    uint16_t shares;      // 0 or 1: that call may be one of many blocks' that read together
    // Requests of kWillNeed that are on their way, as far as is known: frame 32 | generation that
    // its completion word had before 31 | 1; 0: none.
    uint64_t advised[limits::kAdvisedMax];
    // The ring of frames: chunks, oldest first.
    uint64_t ring_busy;       // 0 or 1: the list is being changed
    uint64_t cursor;          // chunk + 1 << 32 | frames of it that were handed out; less: no chunk
    uint64_t chunk_count;     // in the ring
    uint64_t oldest, newest;  // chunks
    uint64_t turn;            // number of the last chunk that it took or used again
    uint64_t once_cursor;     // as `cursor`, for pages that are read once
    uint64_t once_turn;       // of `once_chunks`, how many were begun
    uint64_t once_chunks[limits::kOnceChunksMax];  // chunk + 1; those of such pages, in turn
    WindowPull pulls[limits::kSentWindowsMax];     // of the call that is under way
    FileCounts counts[limits::kCountedMax];        // of file slot s: s % kCountedMax
    ReadStream streams[limits::kStreamsMax];
};
static_assert(offsetof(ReadaheadPlace, streams) ==
              192 + 64 * (limits::kSentWindowsMax + limits::kCountedMax));

// How windows are asked for. Constant after creation.
struct ReadaheadSettings {
    uint64_t enabled;           // 0 or 1
    uint64_t prefetch_pages;    // 0: windows grow and shrink; else behind every miss so many (seed
                                // 000)
    uint64_t window_pages_min;  // of the first window
    uint64_t window_pages_max;
    uint64_t ahead_pages_max;  // of a reader, and where windows wait for storage; 0: blocks help
    uint64_t ahead_pages_missing;
    uint64_t windows_max;    // of a stream
    uint64_t once_chunks;    // of a ring, that pages which are read once take turns in
    uint64_t outrun_chunks;  // of a ring at least that a stream can outrun (device/frame_ring.cuh)
    uint64_t frames_max;     // that all windows may hold
};

}  // namespace penstock
