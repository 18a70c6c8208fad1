// A batch of pages in a team's hands: pinned, asked for, waited for, let go.
//
// GPU end of the page cache; the state machine of one page is in page_entry.cuh, where frames come
// from in replacement.cuh. Rules that keep it free of deadlock: who waits for a frame or a leaf
// holds no pin and no claim; a frame is taken before its page is claimed; every claim is submitted
// before anything is waited for.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/group.cuh"
#include "penstock/device/replacement.cuh"
#include "penstock/device/request_queue.cuh"
#include "penstock/device/wait.cuh"

namespace penstock::device {

// Up to kPages neighbouring pages; lane l of the team has pages l, l + lanes, ... of them.
template <class Team>
struct Batch {
    static constexpr unsigned kPages = Team::kWidth * Team::kPagesPerLane;
    static_assert(kPages <= limits::kBatchPagesMax, "the cap on a team's outstanding requests");

    PageIndex first = 0;
    unsigned count = 0;
    PinnedEntry pages[Team::kPagesPerLane];

    PENSTOCK_DEVICE unsigned index_of(const Team& team, unsigned k) const {
        return team.lane() + k * team.lanes();
    }
};

// Lets go of the pages from `from` on.
template <class Team>
PENSTOCK_DEVICE void unpin_pages(const Team& team, Batch<Team>& batch, unsigned from) {
    for (unsigned k = 0; k < Team::kPagesPerLane; ++k) {
        const unsigned i = batch.index_of(team, k);
        if (i < batch.count && i >= from && batch.pages[k].entry != nullptr) {
            unpin<DeviceWords>(*batch.pages[k].entry);
            batch.pages[k].entry = nullptr;
        }
    }
    if (batch.count > from) batch.count = from;
}

// Pins the batch's pages. Shortens it to those before the first that has no leaf just now; returns
// whether all of them are VALID already.
template <class Team>
PENSTOCK_DEVICE bool pin_pages(const Team& team, FileSystemState& system, const FileState& file,
                               Batch<Team>& batch) {
    unsigned missing = batch.count;
    bool valid = true;
    for (unsigned k = 0; k < Team::kPagesPerLane; ++k) {
        const unsigned i = batch.index_of(team, k);
        batch.pages[k] = {};
        if (i >= batch.count || missing < batch.count) continue;
        batch.pages[k] = pin_page(system, file, batch.first + i);
        PageEntry* entry = batch.pages[k].entry;
        const uint64_t seen = batch.pages[k].seen;
        if (entry == nullptr) {
            missing = i;
        } else if (state_of(seen) != PageState::kValid) {
            valid = false;
        } else if ((seen & kTouchedBit) == 0) {
            DeviceWords::fetch_or(*entry, kTouchedBit, site::kRelaxed);
        }
    }
    if (team.any(missing < batch.count)) unpin_pages(team, batch, team.lowest(missing));
    return !team.any(!valid);
}

// Waits until a pinned page is VALID (0) or FAILED (-errno). `seen` is the newest entry.
PENSTOCK_DEVICE inline int wait_for_page(FileSystemState& system, PageEntry& entry,
                                         uint64_t& seen) {
    Wait wait(system);
    for (;;) {
        seen = DeviceWords::load(entry, site::kLook);
        const FrameIndex frame = frame_of(seen);
        uint64_t completion = 0;
        if (state_of(seen) == PageState::kFetching || state_of(seen) == PageState::kFailed) {
            completion = SystemWords::load(system.completions[frame], site::kCompletion);
            seen = publish<DeviceWords>(entry, seen, completion);
        }
        if (state_of(seen) == PageState::kValid) return 0;
        if (state_of(seen) == PageState::kFailed &&
            generation_of(seen) == completion_generation(completion)) {
            return -static_cast<int>(completion_error(completion));
        }
        if (const int error = wait.step(&system.completions[frame], completion); error != 0)
            return error;
    }
}

// Waits for the pages from `from` on that are being fetched, whatever becomes of them: a team takes
// no more tickets while requests of its last ones are out.
template <class Team>
PENSTOCK_DEVICE void settle_pages(const Team& team, FileSystemState& system, Batch<Team>& batch,
                                  unsigned from) {
    for (unsigned k = 0; k < Team::kPagesPerLane; ++k) {
        PinnedEntry& page = batch.pages[k];
        const unsigned i = batch.index_of(team, k);
        if (i < from || i >= batch.count || page.entry == nullptr) continue;
        if (state_of(page.seen) == PageState::kFetching) {
            (void)wait_for_page(system, *page.entry, page.seen);
        }
    }
    team.sync();
}

// Takes the page of one pinned entry into FETCHING if it is for this team to fetch. `need_frame`
// in: EMPTY was seen; out: no frame could be had. Returns whether the team now owes a request for
// it.
PENSTOCK_DEVICE inline bool claim_page(FileSystemState& system, PinnedEntry& page, uint64_t owner,
                                       uint64_t hint, bool& need_frame) {
    if (!need_frame) return claim_again<DeviceWords>(*page.entry, page.seen);
    FrameIndex frame = 0;
    if (!take_frame(system, hint, frame)) return false;
    need_frame = false;
    if (claim<DeviceWords>(*page.entry, page.seen, frame, next_generation(system, frame))) {
        DeviceWords::store(system.owners[frame], owner, site::kRelaxed);
        return true;
    }
    give_frame_back(system, frame);
    return false;
}

// Submits the requests that this lane owes (bit k of `owed`): all of the team's in adjacent
// tickets.
template <class Team>
PENSTOCK_DEVICE void submit_pages(const Team& team, FileSystemState& system, uint32_t file_slot,
                                  const Batch<Team>& batch, uint64_t owed) {
    unsigned total = 0;
    const unsigned before = team.count_before(static_cast<unsigned>(__popcll(owed)), total);
    if (total == 0) return;
    const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    // One ring for all; or the seed's map, where a block's slot decides which worker it waits for.
    const uint32_t ring_index = system.ring_count == 1
                                    ? 0
                                    : block % limits::kStaticSlots * system.ring_count /
                                          limits::kStaticSlots;
    RingState& ring = system.rings[ring_index];
    uint64_t ticket = 0;
    if (team.lane() == 0) ticket = take_tickets<DeviceWords>(ring.tail, total);
    ticket = team.broadcast(ticket, 0) + before;
    for (unsigned k = 0; k < Team::kPagesPerLane; ++k) {
        if ((owed >> k & 1) == 0) continue;
        const uint64_t seen = batch.pages[k].seen;
        Request request;
        request.file_slot = file_slot;
        request.generation = generation_of(seen);
        request.page = batch.first + batch.index_of(team, k);
        request.frame = frame_of(seen);
        request.block = block;
        submit<SystemWords>(ring.slots, ring.shift, ticket++, request);
    }
    team.sync();
    if (team.lane() == 0) {
        DeviceWords::fetch_add(system.files[file_slot].misses, total, site::kRelaxed);
        device::ring(ring.doorbell);
    }
}

// Asks for every page of the batch that nobody has asked for. Shortens the batch to the pages
// before the first that has no frame just now; what it asked for beyond is waited for and let go.
template <class Team>
__noinline__ PENSTOCK_DEVICE void fetch_pages(const Team& team, FileSystemState& system,
                                              uint32_t file_slot, Batch<Team>& batch) {
    uint64_t wanted = 0, failed = 0;
    for (unsigned k = 0; k < Team::kPagesPerLane; ++k) {
        PinnedEntry& page = batch.pages[k];
        if (page.entry == nullptr) continue;
        page.seen = publish_if_complete(system, *page.entry, page.seen);
        if (state_of(page.seen) == PageState::kEmpty) wanted |= 1ull << k;
        if (state_of(page.seen) == PageState::kFailed) failed |= 1ull << k;
    }
    unsigned total = 0;
    const unsigned before = team.count_before(static_cast<unsigned>(__popcll(wanted)), total);
    uint64_t hand = 0;
    if (team.lane() == 0 && total > 0)
        hand = DeviceWords::fetch_add(system.clock_hand, total, site::kRelaxed);
    hand = team.broadcast(hand, 0) + before;
    uint64_t owed = 0;
    unsigned missing = batch.count;
    for (unsigned k = 0; k < Team::kPagesPerLane; ++k) {
        const unsigned i = batch.index_of(team, k);
        bool need_frame = (wanted >> k & 1) != 0;
        if ((!need_frame && (failed >> k & 1) == 0) || missing < i) continue;
        const uint64_t owner = make_owner(file_slot, batch.first + i);
        if (claim_page(system, batch.pages[k], owner, hand, need_frame)) owed |= 1ull << k;
        if (need_frame) missing = i;
        ++hand;
    }
    submit_pages(team, system, file_slot, batch, owed);
    if (!team.any(missing < batch.count)) return;
    missing = team.lowest(missing);
    settle_pages(team, system, batch, missing);
    unpin_pages(team, batch, missing);
}

// One step of waiting for a frame or a leaf, with nothing in hand: every miss of another team moves
// the hand.
PENSTOCK_DEVICE inline int wait_for_room(const FileSystemState& system, Wait& wait) {
    return wait.step(&system.clock_hand, DeviceWords::load(system.clock_hand, site::kRelaxed));
}

}  // namespace penstock::device
