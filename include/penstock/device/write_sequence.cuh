// Write sequences tell whether a window was read before or after a write to its pages. Writers
// count them up; a thread that takes pages out of a window compares.
//
// A page of a window:
//   absent --[stamp taken, then requested]--> in flight --[answered]--> arrived
//   in flight, arrived --[seen absent, the stamp is unchanged: adopt]--> in the cache
//   in flight, arrived --[otherwise]--> dropped with its window
//
// Invariants:
//   1. A page leaves the cache (evict) only when the file has its bytes (dirty_page.cuh).
//   2. A writer holds the page, pinned and not absent; then counts its sequence up; then stores.
//   3. A thread that requests a window first takes its stamp and then checks which pages are
//      absent: only these are in the window.
//   4. A thread that takes a page out of a window sees it absent (acquire), then finds the stamp
//      unchanged, then adopts the page from the very word that it saw.
//   5. Truncation counts the file's cuts up after the host's cut. Then it renews the entries of
//      absent pages beyond, to words that no entry had before.
// So an adopted page has the file's bytes. A write since the stamp held the page. If it still holds
// the page, the page is not absent. If the page left before it was seen absent, the count is seen,
// too: unpin releases, evict continues that chain, and the look acquires. If the page came and left
// between look and adopt, the entry names another fill, and adopt fails. If a write came before the
// stamp was taken and its page was absent afterwards, its bytes are in the file, by 1.
#pragma once

#include "penstock/device/windows.cuh"

namespace penstock::device {

// Counts a write in the sequences of `count` pages, at most 65. None of them may be absent, except
// those that are not written after all. One lane calls.
PENSTOCK_DEVICE inline void count_write(FileSystemState& system, const FileState& file,
                                        PageIndex first, unsigned count) {
    if (count == 0) return;
    const uint64_t directory = DeviceWords::load(file.directory_first, site::kRelaxed);
    const uint64_t begin = sequence_index(directory, first, system.sequence_count);
    const uint64_t last = sequence_index(directory, first + count - 1, system.sequence_count);
    DeviceWords::fetch_add(system.sequences[begin], 1, site::kCountWrite);
    if (last != begin) DeviceWords::fetch_add(system.sequences[last], 1, site::kCountWrite);
}

// Returns the sum of the sequences of a window's pages. It is unchanged if each of them is.
template <Site kOrder>
PENSTOCK_NOINLINE PENSTOCK_DEVICE uint64_t sum_sequences(const FileSystemState& system,
                                                         const FileState& file,
                                                         const Window& window) {
    const uint64_t directory = DeviceWords::load(file.directory_first, site::kRelaxed);
    uint64_t sum = 0, last = ~0ull;
    for (uint64_t p = 0; p < window.count; ++p) {
        const uint64_t index = sequence_index(directory, page_of(window, p), system.sequence_count);
        if (index == last) continue;
        sum += DeviceWords::load(system.sequences[index], kOrder);
        last = index;
    }
    return sum;
}

// Returns the stamp of a window: its bytes are current as long as the stamp does not change. It
// combines the file's epoch, its cuts and, if the file is open for writing, the sequences of the
// window's pages. Use kTakeCounts before the pages are checked, kRelaxed after.
template <Site kOrder>
PENSTOCK_DEVICE uint64_t window_stamp(const FileSystemState& system, const FileState& file,
                                      const Window& window) {
    uint64_t stamp = DeviceWords::load(file.epoch, kOrder);
    if (DeviceWords::load(file.writing, site::kRelaxed) == 0) return stamp << 1;
    stamp += DeviceWords::load(file.cuts, kOrder) + sum_sequences<kOrder>(system, file, window);
    return stamp << 1 | 1;
}
PENSTOCK_DEVICE inline bool is_current(const FileSystemState& system, const FileState& file,
                                       const Window& window) {
    return window_stamp<site::kRelaxed>(system, file, window) == window.stamp;
}

}  // namespace penstock::device
