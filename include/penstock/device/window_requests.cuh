// Requests windows of pages: finds absent pages, takes adjacent frames for them, and submits the
// requests.
//
// The caller holds `busy` of the place; nothing here waits.
#pragma once

#include "penstock/device/answers.cuh"
#include "penstock/device/group.cuh"
#include "penstock/device/read_streams.cuh"
#include "penstock/device/request_queue.cuh"

namespace penstock::device {

// Checks which pages are absent. It reads the directory once for consecutive pages of a leaf.
class AbsenceWalk {
public:
    PENSTOCK_DEVICE bool is_absent(const FileSystemState& system, const FileState& file,
                                   PageIndex page) {
        const uint64_t index = page / limits::kLeafEntries;
        if (index != index_) {
            index_ = index;
            leaf_ = leaf_word(system, file, page);
        }
        if (leaf_ == 0) return true;
        const PageEntry& entry = *entry_in_leaf(system, leaf_, page);
        return state_of(DeviceWords::load(entry, site::kRelaxed)) == PageState::kEmpty;
    }

private:
    uint64_t index_ = ~0ull, leaf_ = 0;
};
PENSTOCK_DEVICE inline bool is_absent(const FileSystemState& system, const FileState& file,
                                      PageIndex page) {
    return AbsenceWalk().is_absent(system, file, page);
}

// The first unbroken run of ones in `bits`, as (first, count).
struct Stretch {
    uint32_t first, count;
};
PENSTOCK_DEVICE inline Stretch first_stretch(uint64_t bits) {
    if (bits == 0) return {0, 0};
    const auto first = static_cast<uint32_t>(__ffsll(static_cast<long long>(bits)) - 1);
    const uint64_t rest = ~(bits >> first);
    const uint32_t count = rest == 0
                               ? 64
                               : static_cast<uint32_t>(__ffsll(static_cast<long long>(rest)) - 1);
    return {first, count < 64 - first ? count : 64 - first};
}

// Prefetches what taking adjacent frames touches: their words, and the entries of their pages,
// which are mostly adjacent too.
template <class Team>
PENSTOCK_DEVICE void fetch_frames(const Team& team, FileSystemState& system,
                                  const FrameRange& frames) {
    if (!Team::kAlone || frames.count == 0) return;
    team.fetch(system.owners + frames.first, frames.count);
    team.fetch(system.completions + frames.first, frames.count);
    const uint64_t owner = DeviceWords::load(system.owners[frames.first], site::kRelaxed);
    if (owner == kFrameFree || owner == kFrameTaken) return;
    const PageEntry* entry = entry_of_owner(system, owner);
    const uint64_t in_leaf = limits::kLeafEntries - owner % limits::kLeafEntries;
    if (entry != nullptr) team.fetch(entry, frames.count < in_leaf ? frames.count : in_leaf);
}

// Prefetches what the next window will most likely touch. The current one has `count` pages before
// `page`, in frames before `frame`.
template <class Team>
PENSTOCK_DEVICE void fetch_next_window(const Team& team, FileSystemState& system,
                                       const FileState& file, PageIndex page, FrameIndex frame,
                                       uint32_t count) {
    if (!Team::kAlone || frame >= system.frame_count) return;
    const uint64_t frames_left = system.frame_count - frame;
    fetch_frames(team, system,
                 {frame, count < frames_left ? count : static_cast<uint32_t>(frames_left)});
    const uint64_t leaf = leaf_word(system, file, page);
    const uint64_t in_leaf = limits::kLeafEntries - page % limits::kLeafEntries;
    if (leaf != 0) team.fetch(entry_in_leaf(system, leaf, page), count < in_leaf ? count : in_leaf);
}

// Takes adjacent frames for a window, up to `want` and at most 64, and frees the others that it
// took. `once`: from the frames that take turns; if all of them are in use, it tries the other
// frames of the ring.
template <class Team>
PENSTOCK_DEVICE FrameRange take_adjacent_frames(const Team& team, FileSystemState& system,
                                                ReadaheadPlace& place, uint32_t want,
                                                ReadOnce once) {
    constexpr unsigned kTries = 4;
    for (unsigned tries = 0; tries < kTries; ++tries) {
        FrameRange range;
        const bool turns = once != ReadOnce::kNo;
        if (team.lane() == 0) range = next_frames(system, &place, want, (want + 1) / 2, turns);
        range.first = team.broadcast(range.first, 0);
        range.count = team.broadcast(range.count, 0);
        fetch_frames(team, system, range);
        uint64_t mine = 0;
        OwnerWalk walk;
        for (uint32_t i = team.lane(); i < range.count; i += team.lanes()) {
            if (take_frame_at(system, range.first + i, walk, turns)) mine |= 1ull << i;
        }
        Stretch stretch = first_stretch(team.unite(mine));
        // Blocks that lag behind have left holes in the frames that take turns.
        if (turns && place.once == ReadOnce::kNo && 2 * stretch.count < want) {
            stretch.count = 0;
            once = ReadOnce::kNo;
        }
        for (uint32_t i = team.lane(); i < range.count; i += team.lanes()) {
            const bool kept = i >= stretch.first && i < stretch.first + stretch.count;
            if ((mine >> i & 1) != 0 && !kept) give_frame_back(system, range.first + i);
        }
        // Lane 0 stores to frames that other lanes took: after all that those lanes acquired.
        team.sync();
        if (stretch.count > 0) return {range.first + stretch.first, stretch.count};
        if (tries == kTries / 2 && once == ReadOnce::kOutrun) once = ReadOnce::kNo;
    }
    return {};
}

// Returns one generation for adjacent frames that none of them has now. It is above all of theirs,
// so that each frame's generations increase until they wrap.
template <class Team>
PENSTOCK_DEVICE uint32_t common_generation(const Team& team, const FileSystemState& system,
                                           const FrameRange& frames) {
    uint32_t highest = 0;
    for (uint32_t i = team.lane(); i < frames.count; i += team.lanes()) {
        const uint32_t last = completion_generation(
            SystemWords::load(system.completions[frames.first + i], site::kRelaxed));
        if (last > highest) highest = last;
    }
    uint32_t generation = Team::kAlone ? highest : 0;
    for (int bit = Team::kAlone ? -1 : static_cast<int>(limits::kGenerationBits) - 1; bit >= 0;
         --bit) {
        // The highest of all lanes, bit by bit: a lane that differs in a higher bit is out.
        const bool in = highest >> (bit + 1) == generation >> (bit + 1);
        if (team.any(in && (highest >> bit & 1) != 0)) generation |= 1u << bit;
    }
    if (generation < kGenerationMax) return generation + 1;
    for (;;) {
        generation = (generation + 1) & static_cast<uint32_t>(kGenerationMax);
        bool taken = false;
        for (uint32_t i = team.lane(); i < frames.count; i += team.lanes()) {
            taken = taken || has_arrived(system, frames.first + i, generation);
        }
        if (!team.any(taken)) return generation;
    }
}

// Makes the request for places [p, p + count) of a window, which are adjacent in the file.
PENSTOCK_DEVICE inline Request request_of_window(RequestKind kind, uint64_t file,
                                                 const Window& window, uint64_t p, uint64_t count) {
    Request request;
    request.kind = kind;
    request.file_slot = descriptor_slot(static_cast<Descriptor>(file));
    request.opened = static_cast<uint32_t>(file >> kDescriptorSlotBits) & 0xffff;
    request.generation = static_cast<uint32_t>(window.generation);
    request.page = page_of(window, p);
    request.frame = static_cast<FrameIndex>(window.frame + p);
    request.page_count = static_cast<uint32_t>(count);
    request.block = number_of_block();
    return request;
}

// Submits the requests of a window that `teams` teams pull, one for each team with a part. All
// lanes submit, because each store that publishes a request waits until those before it reach the
// host.
template <class Team>
PENSTOCK_DEVICE void submit_pull(const Team& team, FileSystemState& system, ReadaheadPlace& place,
                                 const StreamRead& read, const Window& window, unsigned teams) {
    RingState& ring = ring_of_block(system, number_of_block());
    const uint64_t part = (window.count + teams - 1) / teams;
    const uint64_t parts = (window.count + part - 1) / part;
    uint64_t ticket = 0;
    if (team.lane() == 0) ticket = take_tickets<DeviceWords>(ring.tail, parts);
    ticket = team.broadcast(ticket, 0);
    for (uint64_t i = team.lane(); i < parts; i += team.lanes()) {
        const uint64_t p = i * part, left = window.count - p;
        Request request = request_of_window(RequestKind::kPullWindow, read.file, window, p,
                                            left < part ? left : part);
        request.behind = static_cast<uint32_t>(parts - 1 - i);
        submit<SystemWords>(ring.slots, ring.shift, ticket + i, request);
    }
    team.sync();
    if (team.lane() != 0) return;
    WindowPull& pull = place.pulls[place.pull_count++];
    pull.ticket = ticket;
    pull.part = part;
    pull.count = window.count;
    pull.frame = window.frame;
    pull.generation = window.generation;
    device::ring(ring);
    const uint64_t needed = read.last < window.first ? 0 : read.last - window.first + 1;
    const uint32_t slot = descriptor_slot(static_cast<Descriptor>(read.file));
    add_count(counts_of(system, &place, slot).late, needed < window.count ? needed : window.count);
}

// Submits the requests of a window: one, or one for each run. The caller calls announce_windows()
// after the last window.
PENSTOCK_DEVICE inline void submit_window(FileSystemState& system, uint64_t file,
                                          const Window& window) {
    const bool adjacent = window.step == static_cast<int64_t>(window.run);
    const uint64_t length = adjacent ? window.count : window.run;
    RingState& ring = system.background;
    uint64_t ticket = take_tickets<DeviceWords>(ring.tail, window.count / length);
    for (uint64_t p = 0; p < window.count; p += length) {
        const Request request = request_of_window(RequestKind::kReadWindow, file, window, p,
                                                  length);
        submit<SystemWords>(ring.slots, ring.shift, ticket++, request);
    }
}
PENSTOCK_DEVICE inline void announce_windows(FileSystemState& system, uint64_t file) {
    device::ring(system.rings[0]);
    const FileState& state = system.files[descriptor_slot(static_cast<Descriptor>(file))];
    if (DeviceWords::load(state.missing, site::kRelaxed) != 0) start_reads(system.rings[0]);
}

}  // namespace penstock::device
