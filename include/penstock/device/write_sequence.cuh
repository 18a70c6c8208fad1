// Write sequences: how a window that was read before a write of its pages is told from one that was
// not. Writers count them up; who takes pages out of a window compares.
//
// A page of a window:
//   absent --[stamp taken, then asked for]--> on its way --[answered]--> arrived
//   on its way, arrived --[seen absent, the stamp is as it was: adopt]--> in the cache
//   on its way, arrived --[not so]--> goes with its window
//
// Invariants:
//   1. A page leaves the cache (evict) only when the file has its bytes (dirty_page.cuh).
//   2. Who writes a page holds it, pinned and not absent; then counts its sequence up; then stores.
//   3. Who asks for a window takes its stamp first and looks then which pages are absent: others
//      are not in it.
//   4. Who takes a page out of a window sees it absent (acquire), then finds the stamp as it was,
//      then adopts it from the very word that he saw.
//   5. Truncation counts the file's cuts up behind the host's cut, then renews the entries of
//      absent pages beyond, to words that none had before.
// So what is adopted is what the file has. A write since the stamp held the page. Does it still,
// the page is not absent. Did the page leave before it was seen absent, the count is seen, too:
// unpin releases, evict goes on from there, and the look acquires. Did it come and leave between
// look and adopt, the entry names another fill, and adopt fails. A write before the stamp was taken
// whose page was absent behind it is in the file, by 1.
#pragma once

#include "penstock/device/windows.cuh"

namespace penstock::device {

// Counts a write in the sequences of `count` pages, at most 65, of which none is absent now but
// those that are not written after all. One lane.
PENSTOCK_DEVICE inline void count_write(FileSystemState& system, const FileState& file,
                                        PageIndex first, unsigned count) {
    if (count == 0) return;
    const uint64_t directory = DeviceWords::load(file.directory_first, site::kRelaxed);
    const uint64_t begin = sequence_index(directory, first, system.sequence_count);
    const uint64_t last = sequence_index(directory, first + count - 1, system.sequence_count);
    DeviceWords::fetch_add(system.sequences[begin], 1, site::kCountWrite);
    if (last != begin) DeviceWords::fetch_add(system.sequences[last], 1, site::kCountWrite);
}

// The sum of the sequences of a window's pages: it is as it was if each of them is.
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

// What a window's bytes may be trusted by, as long as it does not change: the file's epoch, its
// cuts and, where it is open for writing, the sequences of the window's pages. kTakeCounts: before
// the pages are looked at; kRelaxed: behind.
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
