// Truncates or extends a file: drops what lies beyond its new end, in the cache and on the host.
//
// One group at a time for each file. The order: the file is held, so that no write-back of it
// begins; write-backs beyond the new end are held, after those in flight have ended; the host
// truncates; the size is set; held pages become clean, or stay dirty if the host failed; then pages
// that were read meanwhile are cleared. Nothing changes before the host has truncated. Concurrent
// writes of other groups may survive or not.
#pragma once

#include "penstock/device/control_port.cuh"
#include "penstock/device/sync.cuh"

namespace penstock::device {

// Clears the bytes of a page from `from` on, if it is in the cache. If it is not, prevents its
// adoption from a window. One lane calls; waits for a read of the page in flight.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline int clear_page(FileSystemState& system,
                                                        const FileState& file, PageIndex page,
                                                        uint64_t from) {
    PinnedEntry pinned{};
    for (Wait wait(system); pinned.entry == nullptr;) {
        if (!has_leaf(system, file, page)) return 0;
        pinned = pin_page(system, file, page);
        if (pinned.entry != nullptr) break;
        // Its leaf is being emptied, or is about to return.
        const uint64_t hand = DeviceWords::load(system.leaf_hand, site::kRelaxed);
        if (const int error = wait.step(&system.leaf_hand, hand); error != 0) return error;
    }
    // A window may have been read before the host truncated the file. The page could be adopted
    // from it until the entry is another word.
    const uint64_t number = DeviceWords::fetch_add(system.renewals, 1, site::kRelaxed);
    pinned.seen = renew<DeviceWords>(*pinned.entry, number);
    int error = 0;
    if (state_of(pinned.seen) == PageState::kFetching) {
        error = wait_for_page(system, *pinned.entry, pinned.seen);
        if (state_of(pinned.seen) == PageState::kFailed) error = 0;
    }
    if (state_of(pinned.seen) == PageState::kValid) {
        std::byte* frame = system.frames + (uint64_t{frame_of(pinned.seen)} << system.page_shift);
        LoneTeam<1>().zero(frame + from, (1ull << system.page_shift) - from);
    }
    unpin<DeviceWords>(*pinned.entry);
    return error;
}

// Lowers a word to `value` if it is larger.
PENSTOCK_BOTH inline void lower_to(uint64_t& word, uint64_t value) {
    uint64_t seen = DeviceWords::load(word, site::kRelaxed);
    while (seen > value && !DeviceWords::compare_exchange(word, seen, value, site::kRelaxed)) {
    }
}

// Does one team's part of clearing what the cache has beyond `size`.
template <class Team>
PENSTOCK_DEVICE int clear_beyond(const Team& team, unsigned index, unsigned teams,
                                 FileSystemState& system, uint32_t slot, uint64_t size) {
    const FileState& file = system.files[slot];
    const uint64_t in_page = (1ull << system.page_shift) - 1;
    const PageIndex first = size >> system.page_shift;
    const PageIndex stop = team.broadcast(pages_of_file(file), 0);
    int result = 0;
    for_each_page<kBehindCut>(team, index, teams, system, slot, first, stop, [&](PageIndex page) {
        const bool last = page == first && (size & in_page) != 0;
        if (!last) (void)drop_page(system, file, page);
        const int error = clear_page(system, file, page, last ? size & in_page : 0);
        if (error != 0) result = error;
    });
    return result_of_lanes(team, result);
}

// Truncates a file. A whole group calls. Returns 0 or -errno, in all threads.
template <class Group>
PENSTOCK_DEVICE int64_t truncate(DeviceFileSystem fs, Descriptor descriptor, uint64_t size,
                                 Group group) {
    FileSystemState& system = *fs.state;
    const uint32_t slot = descriptor_slot(descriptor);
    FileState& file = system.files[slot];
    const PageIndex first = size >> system.page_shift;
    const int64_t allowed = group.once([&]() -> int64_t {
        const uint64_t size_max = DeviceWords::load(file.directory_count, site::kRelaxed) *
                                      limits::kLeafEntries
                                  << system.page_shift;
        if (find_file(system, descriptor) == nullptr || (descriptor & kMayWrite) == 0)
            return -kErrorBadDescriptor;
        return size > size_max ? -kErrorFileTooBig : 0;
    });
    if (allowed != 0) return allowed;
    if (const int64_t held = hold_file(fs, descriptor, first, group); held != 0) return held;
    const int64_t cut = group.once([&]() -> int64_t {
        ControlRequest request{ControlCall::kTruncate, descriptor};
        request.size = size;
        const int64_t answer = control_call(system, request);
        if (answer == 0) {
            uint64_t seen = DeviceWords::load(file.size, site::kRelaxed);
            while (!DeviceWords::compare_exchange(file.size, seen, size, site::kRelaxed)) {
            }
            lower_to(file.stored, size);
        }
        DeviceWords::fetch_add(file.cuts, 1, site::kPublish);
        return answer;
    });
    // The page in which the file ends keeps its bytes before the end.
    const PageIndex beyond = (size + (1ull << system.page_shift) - 1) >> system.page_shift;
    const int64_t error = release_file(
        fs, descriptor, first, cut == 0 ? beyond : ~0ull, group, [](const SeenPage&) {},
        [&](const auto& team, unsigned index, unsigned teams) -> int64_t {
            return cut == 0 ? clear_beyond(team, index, teams, system, slot, size) : 0;
        });
    return cut != 0 ? cut : error;
}

}  // namespace penstock::device
