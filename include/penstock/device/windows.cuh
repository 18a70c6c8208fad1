// Windows of readahead: which pages they have, when they end, and what that says about the next.
//
// A window owns its frames until a page is taken (docs/design/0008-readahead-on-the-gpu.md). The
// caller holds `busy` of the place, except where only `left` is used. One lane calls; nothing here
// waits.
//
//   window:  --[open_window]--> requested --[all pages taken]-----------------> gone
//                                   '-------[the reader is past it, all arrived]--^  (wasted)
//
// Invariants: 1. A frame of a window is kFrameTaken until the thread that takes or frees it clears
// its place's bit in `left`. 2. Only the holder of `busy` writes a place's words, except `left`.
// 3. A frame is freed, or used again, only after its completion.
#pragma once

#include "penstock/device/counts.cuh"
#include "penstock/device/replacement.cuh"
#include "penstock/language/cuda.h"

namespace penstock::device {

constexpr uint64_t kNoStream = ~0ull;
constexpr uint64_t kNeededMax = 64;  // reads in a row before a stream that wasted much is trusted
constexpr uint64_t kIdleReads = 64;  // reads of its place after which a stream counts as ended
constexpr uint16_t kVainReads = 64;  // reads without a stream after which a place's are random
// Of random reads, how many in a row are watched (three show equal distances), and how often.
constexpr uint64_t kWatchedReads = 4, kWatchPeriod = 32;

// A read, and its file as one lane saw it.
struct StreamRead {
    uint64_t file;          // descriptor bits 0 to 47
    uint64_t offset, size;  // bytes, cut at the end of the file
    PageIndex first, last;  // pages
    PageIndex page_count;   // pages of the file
};

PENSTOCK_DEVICE inline uint64_t file_of_stream(Descriptor descriptor) {
    return static_cast<uint64_t>(descriptor) & ((1ull << 48) - 1);
}

// Returns the place of a page in a window; `count` or more if the page is not in it.
PENSTOCK_DEVICE inline uint64_t place_of(const Window& window, PageIndex page) {
    const auto distance = static_cast<int64_t>(page - window.first);
    if (window.step == static_cast<int64_t>(window.run))
        return distance < 0 ? window.count : static_cast<uint64_t>(distance);
    int64_t runs = distance / window.step;
    int64_t rest = distance % window.step;
    if (rest < 0) {  // the page of a backward stream, or before the window
        const int64_t length = window.step < 0 ? -window.step : window.step;
        rest += length;
        runs += window.step < 0 ? 1 : -1;
    }
    if (runs < 0 || rest >= static_cast<int64_t>(window.run)) return window.count;
    return static_cast<uint64_t>(runs) * window.run + static_cast<uint64_t>(rest);
}
PENSTOCK_DEVICE inline PageIndex page_of(const Window& window, uint64_t place) {
    if (window.step == static_cast<int64_t>(window.run)) return window.first + place;
    return window.first + (place / window.run) * static_cast<uint64_t>(window.step) +
           place % window.run;
}

PENSTOCK_DEVICE inline bool has_arrived(const FileSystemState& system, FrameIndex frame,
                                        uint64_t generation) {
    return completion_generation(SystemWords::load(system.completions[frame], site::kCompletion)) ==
           generation;
}

// The result of dropping a window: pages in flight still stay with it.
struct GivenUp {
    uint64_t freed = 0;
    bool all = true;
};

// Frees the remaining pages of a window.
PENSTOCK_DEVICE inline GivenUp give_up_window(FileSystemState& system, ReadaheadPlace& place,
                                              uint64_t file, Window& window) {
    uint64_t left = DeviceWords::fetch_and(window.left, 0, site::kTakeFrame);
    uint64_t stays = 0, freed = 0;
    for (uint64_t p = 0; left != 0; ++p, left >>= 1) {
        if ((left & 1) == 0) continue;
        const auto frame = static_cast<FrameIndex>(window.frame + p);
        if (has_arrived(system, frame, window.generation)) {
            DeviceWords::store(system.owners[frame], kFrameFree, site::kFreeFrame);
            ++freed;
        } else {
            stays |= 1ull << p;
        }
    }
    add_count(counts_of(system, &place, descriptor_slot(static_cast<Descriptor>(file))).wasted,
              freed);
    if (stays != 0) DeviceWords::fetch_or(window.left, stays, site::kRelaxed);
    return {freed, stays == 0};
}

PENSTOCK_DEVICE inline Window& window_of(ReadStream& stream, uint64_t index) {
    const uint64_t place = stream.oldest + index;
    return stream.windows[place < stream.windows_max ? place : place - stream.windows_max];
}

// Adapts the size of the next windows to the stream's oldest window, which has ended.
PENSTOCK_DEVICE inline void judge_window(const FileSystemState& system, ReadStream& stream,
                                         uint64_t count, uint64_t wasted) {
    const ReadaheadSettings& settings = system.readahead;
    if (settings.prefetch_pages != 0) return;
    if (2 * wasted > count) {
        stream.streak = 0;
        if (stream.window_pages > settings.window_pages_min) {
            stream.window_pages /= 2;
            if (stream.window_pages < settings.window_pages_min)
                stream.window_pages = settings.window_pages_min;
        } else {  // wasted more than the end of a useful stream
            stream.needed = stream.needed == 0 ? 1 : 2 * stream.needed;
            if (stream.needed > kNeededMax) stream.needed = kNeededMax;
        }
        stream.ahead_pages = stream.window_pages;
        return;
    }
    if (wasted != 0) return;
    if (stream.needed > 1) stream.needed /= 2;
    if (stream.window_pages < settings.window_pages_max) {
        stream.window_pages *= 2;
        if (stream.window_pages > settings.window_pages_max)
            stream.window_pages = settings.window_pages_max;
        stream.ahead_pages = stream.window_pages;
    } else {
        const uint32_t slot = descriptor_slot(static_cast<Descriptor>(stream.file));
        const bool missing = DeviceWords::load(system.files[slot].missing, site::kRelaxed) != 0;
        const uint64_t most = missing ? settings.ahead_pages_missing : settings.ahead_pages_max;
        // At most as much ahead as was read.
        stream.ahead_pages += stream.window_pages;
        if (stream.ahead_pages > most) stream.ahead_pages = most;
        if (stream.ahead_pages < stream.window_pages) stream.ahead_pages = stream.window_pages;
    }
}

// Drops the windows that are used up or, by `passed`, over. Returns false if one of the latter is
// still in flight.
template <class Passed>
PENSTOCK_DEVICE bool drop_windows(FileSystemState& system, ReadaheadPlace& place,
                                  ReadStream& stream, Passed passed) {
    bool judged = false;  // windows that remain at the end of a stream count as one waste
    // So do windows that were lost for want of room: that is no reason to request more.
    const bool given_up = DeviceWords::load(stream.given_up, site::kRelaxed) != 0;
    while (stream.window_count > 0) {
        Window& window = window_of(stream, 0);
        const uint64_t left = DeviceWords::load(window.left, site::kRelaxed);
        if (left != 0) {
            if (!passed(window)) return true;
            if (!give_up_window(system, place, stream.file, window).all) return false;
        }
        const uint64_t wasted = given_up ? window.count : static_cast<uint64_t>(__popcll(left));
        if (!judged || wasted == 0) judge_window(system, stream, window.count, wasted);
        judged = judged || wasted != 0;
        if (given_up) DeviceWords::store(stream.given_up, 0, site::kRelaxed);
        DeviceWords::fetch_sub(system.window_frames, window.count, site::kRelaxed);
        window.count = 0;
        if (++stream.oldest == stream.windows_max) stream.oldest = 0;
        --stream.window_count;
    }
    return true;
}

}  // namespace penstock::device
