// A batch of pages that a team works on: it pins them, requests them, waits for them and unpins
// them.
//
// This is the GPU end of the page cache. The state machine of one page is in page_entry.cuh;
// frames come from replacement.cuh. Three rules prevent deadlock: a team that waits for a frame or
// a leaf holds no pin and no claim; a frame is taken before its page is claimed; every claim is
// submitted before the team waits for anything.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/answers.cuh"
#include "penstock/device/group.cuh"
#include "penstock/device/replacement.cuh"
#include "penstock/device/request_queue.cuh"
#include "penstock/device/wait.cuh"
#include "penstock/device/window_runs.cuh"

namespace penstock::device {

// Up to kPages adjacent pages; lane l of the team has pages l, l + lanes, ... of them.
template <class Team>
struct Batch {
    static constexpr unsigned kPages = Team::kWidth * Team::kPagesPerLane;
    static_assert(kPages <= limits::kBatchPagesMax, "the cap on a team's outstanding requests");

    PageIndex first = 0;
    unsigned count = 0;
    PinnedEntry pages[Team::kPagesPerLane];  // of this lane: the first mine() are used
    uint64_t owed = 0;                       // bit k: this lane must pull pages[k]
    uint64_t own = 0;                        // bit k: this lane fills pages[k] if it is absent
    uint64_t filled = 0;                     // bit k: this lane has claimed pages[k] to fill it
    uint64_t ticket = 0;                     // of the first page that the team must pull

    // Returns an upper limit for the number of the lane's pages in the batch.
    PENSTOCK_DEVICE unsigned mine(const Team& team) const {
        return Team::kPagesPerLane == 1 ? 1 : (count + team.lanes() - 1) / team.lanes();
    }
    PENSTOCK_DEVICE unsigned index_of(const Team& team, unsigned k) const {
        return team.lane() + k * team.lanes();
    }
};

// Unpins the pages from `from` on.
template <class Team>
PENSTOCK_DEVICE void unpin_pages(const Team& team, Batch<Team>& batch, unsigned from) {
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        const unsigned i = batch.index_of(team, k);
        if (i < batch.count && i >= from && batch.pages[k].entry != nullptr) {
            unpin<DeviceWords>(*batch.pages[k].entry);
            batch.pages[k].entry = nullptr;
        }
    }
    if (batch.count > from) batch.count = from;
}

// Returns whether a page that was found VALID earns a second chance by this use.
PENSTOCK_BOTH inline bool is_second_use(const FileSystemState& system, const FileState& file,
                                        const ReadaheadPlace* place, FrameIndex frame) {
    const bool together = place != nullptr && place->shares != 0 && in_common_ring(system, frame);
    const bool second = system.policy == ReplacementPolicy::kRings
                            ? !in_ring(system, place, frame) && !together
                            : system.policy == ReplacementPolicy::kClock;
    return second && given_advice(file).advice != Advice::kNoReuse;
}

// Marks a page as read that was requested ahead for all blocks, and that this lane has just pinned.
// Also publishes it, in the same step, if it has arrived. Returns whether the caller is its first
// reader.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline bool take_unread(FileSystemState& system,
                                                          PinnedEntry& page) {
    if (state_of(page.seen) == PageState::kEmpty || !in_common_ring(system, frame_of(page.seen)))
        return false;
    if (state_of(page.seen) == PageState::kFetching) {
        const Completion completion = SystemWords::load(system.completions[frame_of(page.seen)],
                                                        site::kCompletion);
        uint64_t seen = page.seen;
        const uint64_t valid = (seen & ~kStateMask & ~kTouchedBit) |
                               static_cast<uint64_t>(PageState::kValid);
        const bool good = completion_generation(completion) == generation_of(seen) &&
                          completion_error(completion) == 0;
        if (good && DeviceWords::compare_exchange(*page.entry, seen, valid, site::kPublish)) {
            page.seen = valid;
            return true;
        }
    }
    const uint64_t before = DeviceWords::fetch_and(*page.entry, ~kTouchedBit, site::kRelaxed);
    page.seen &= ~kTouchedBit;
    return (before & kTouchedBit) != 0;
}

// Counts the pages for which take_unread() returned true in this lane. `place` is the call's.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void count_taken(const Team& team, FileSystemState& system,
                                                   const FileState& file, ReadaheadPlace* place,
                                                   unsigned used, unsigned late) {
    if (place == nullptr || place->shares == 0) return;
    FileCounts& counts = counts_of(system, place, static_cast<uint32_t>(&file - system.files));
    unsigned total = 0;
    (void)team.count_before(used, total);
    if (team.lane() == 0) add_count(counts.used, total);
    (void)team.count_before(late, total);
    if (team.lane() == 0) add_count(counts.late, total);
}

// Pins the batch's pages. Shortens the batch to the pages before the first one that has no leaf
// now. Returns whether all of them are VALID already.
template <class Team>
PENSTOCK_DEVICE bool pin_pages(const Team& team, FileSystemState& system, const FileState& file,
                               ReadaheadPlace* place, Batch<Team>& batch) {
    bool valid = true;
    unsigned used = 0, late = 0;
    for (bool installed = false;; installed = true) {
        unsigned missing = batch.count;
        for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
            const unsigned i = batch.index_of(team, k);
            PinnedEntry& page = batch.pages[k];
            if (installed && page.entry != nullptr) continue;
            page = {};
            if (i >= batch.count || missing < batch.count) continue;
            page = pin_page(system, file, batch.first + i, false);
            if (page.entry == nullptr) {
                missing = i;
                continue;
            }
            if ((page.seen & kTouchedBit) != 0 && place != nullptr && place->shares != 0 &&
                take_unread(system, page)) {
                ++used;
                late += state_of(page.seen) == PageState::kFetching;
            }
            const bool there = state_of(page.seen) == PageState::kValid;
            valid = valid && there;
            if (there && (page.seen & kTouchedBit) == 0 &&
                is_second_use(system, file, place, frame_of(page.seen))) {
                DeviceWords::fetch_or(*page.entry, kTouchedBit, site::kRelaxed);
            }
        }
        if (!team.any(missing < batch.count)) break;
        if (installed) {
            unpin_pages(team, batch, team.lowest(missing));
            break;
        }
        // One lane installs leaves. If each lane tried, each would take a leaf from other pages,
        // and all but one in vain.
        if (team.lane() == 0) install_leaves(system, file, batch.first, batch.count);
        team.sync();
    }
    count_taken(team, system, file, place, used, late);
    return !team.any(!valid);
}

// Waits until a pinned page is VALID (0) or FAILED (-errno). `seen` becomes the newest entry.
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

// Waits for the pages from `from` on that are being fetched, with or without success. A team takes
// no more tickets while requests of its last ones are in flight.
template <class Team>
PENSTOCK_DEVICE void settle_pages(const Team& team, FileSystemState& system, Batch<Team>& batch,
                                  unsigned from) {
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        PinnedEntry& page = batch.pages[k];
        const unsigned i = batch.index_of(team, k);
        if (i < from || i >= batch.count || page.entry == nullptr) continue;
        if (state_of(page.seen) == PageState::kFetching) {
            (void)wait_for_page(system, *page.entry, page.seen);
        }
    }
    team.sync();
}

// Claims the page of one pinned entry (FETCHING) if this team must fetch it. `need_frame`: on entry
// whether EMPTY was seen, on return whether no frame was free. Returns whether the team now owes a
// request for the page.
PENSTOCK_DEVICE inline bool claim_page(FileSystemState& system, PinnedEntry& page, uint64_t owner,
                                       uint64_t hint, bool& need_frame) {
    if (!need_frame) return claim_again<DeviceWords>(*page.entry, page.seen);
    // Another team may have been first: then no page is evicted for this one.
    page.seen = DeviceWords::load(*page.entry, site::kLook);
    FrameIndex frame = 0;
    need_frame = state_of(page.seen) == PageState::kEmpty && !take_frame(system, hint, frame);
    if (need_frame || state_of(page.seen) != PageState::kEmpty) return false;
    if (claim<DeviceWords>(*page.entry, page.seen, frame, next_generation(system, frame))) {
        DeviceWords::store(system.owners[frame], owner, site::kRelaxed);
        return true;
    }
    give_frame_back(system, frame);
    return false;
}

// Submits the requests that this lane owes (bit k of `owed`). All requests of the team have
// adjacent tickets; returns the first.
template <class Team>
PENSTOCK_DEVICE uint64_t submit_pages(const Team& team, FileSystemState& system, uint32_t file_slot,
                                      ReadaheadPlace* place, const Batch<Team>& batch,
                                      uint64_t owed, RequestKind kind) {
    unsigned total = 0;
    const unsigned before = team.count_before(static_cast<unsigned>(__popcll(owed)), total);
    if (total == 0) return 0;
    const uint32_t block = number_of_block();
    RingState& ring = ring_of_block(system, block);
    uint64_t first = 0;
    if (team.lane() == 0) first = take_tickets<DeviceWords>(ring.tail, total);
    first = team.broadcast(first, 0);
    uint64_t ticket = first + before;
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        if ((owed >> k & 1) == 0) continue;
        const uint64_t seen = batch.pages[k].seen;
        Request request;
        request.kind = kind;
        request.file_slot = file_slot;
        request.generation = generation_of(seen);
        request.page = batch.first + batch.index_of(team, k);
        request.frame = frame_of(seen);
        request.block = block;
        submit<SystemWords>(ring.slots, ring.shift, ticket++, request);
    }
    team.sync();
    if (team.lane() == 0) {
        add_count(counts_of(system, place, file_slot).misses, total);
        device::ring(ring);
    }
    return first;
}

// Copies the pages that the team has requested into their frames as their answers come, and
// publishes them, in the order of their tickets. The host waits for its memory, and a worker takes
// an earlier ticket before a later one.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void pull_pages(const Team& team, FileSystemState& system,
                                                  uint32_t file_slot, ReadaheadPlace* place,
                                                  Batch<Team>& batch) {
    const RingState& ring = ring_of_block(system, number_of_block());
    const uint64_t page_size = 1ull << system.page_shift;
    uint64_t stalled_ns = 0;
    for (unsigned i = 0; i < batch.count; ++i) {
        const unsigned owner = i % team.lanes(), k = i / team.lanes();
        const bool mine = team.lane() == owner && (batch.owed >> k & 1) != 0;
        if (!team.any(mine)) continue;
        const uint64_t ticket = batch.ticket++;
        PinnedEntry& page = batch.pages[Team::kPagesPerLane == 1 ? 0 : k];
        const std::byte* from = nullptr;
        if (mine) {
            const uint64_t began = now_ns();
            from = bytes_of_answer(wait_for_answer(system, ring, ticket, frame_of(page.seen),
                                                   generation_of(page.seen)));
            stalled_ns += now_ns() - began;
        }
        from = team.broadcast(from, owner);
        const uint64_t seen = team.broadcast(page.seen, owner);
        team.sync();  // after this all lanes have acquired what the waiting lane has
        if (from != nullptr) {
            team.copy(system.frames + (uint64_t{frame_of(seen)} << system.page_shift), from,
                      page_size);
            team.sync();
        }
        if (mine && from != nullptr) {
            const Completion word = make_completion(generation_of(seen), 0,
                                                    static_cast<uint32_t>(page_size));
            DeviceWords::store(system.completions[frame_of(seen)], word, site::kComplete);
            page.seen = publish<DeviceWords>(*page.entry, seen, word);
            give_answer_back(ring, ticket);
        }
    }
    batch.owed = 0;
    if (stalled_ns != 0) add_count(counts_of(system, place, file_slot).stalled_ns, stalled_ns);
}

// Returns one more frame, where a team's ranges did not suffice: slabs are small, or other teams
// of the block used the rest. Any other frame may hold a page while the cache has free frames.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline uint64_t next_frame(FileSystemState& system,
                                                             ReadaheadPlace* place) {
    return next_frames(system, place, 1, 1).first;
}

// Requests every page of the batch that no team has requested, except those that the team fills
// itself, up to the first that has no free frame. Returns the index of that page, or the batch's
// size. Records in the batch which pages are pulled; only a team that waits for all of them pulls.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE unsigned claim_pages(const Team& team, FileSystemState& system,
                                                       uint32_t file_slot, ReadaheadPlace* place,
                                                       Batch<Team>& batch, bool waits) {
    uint64_t wanted = 0, failed = 0;
    unsigned used = 0, late = 0;
    const bool windows = place != nullptr && place->current != kNoStream;
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        PinnedEntry& page = batch.pages[k];
        if (page.entry == nullptr) continue;
        if (windows && state_of(page.seen) == PageState::kEmpty) {
            const PageIndex index = batch.first + batch.index_of(team, k);
            const Taken taken = take_from_windows(system, *place, system.files[file_slot],
                                                  make_owner(file_slot, index), index, page);
            used += taken != Taken::kNot;
            late += taken == Taken::kLate;
        }
        page.seen = publish_if_complete(system, *page.entry, page.seen);
        if (state_of(page.seen) == PageState::kEmpty) wanted |= 1ull << k;
        if (state_of(page.seen) == PageState::kFailed) failed |= 1ull << k;
    }
    unsigned total = 0;
    if (windows) {
        (void)team.count_before(late, total);
        if (team.lane() == 0 && total > 0)
            add_count(counts_of(system, place, file_slot).late, total);
        (void)team.count_before(used, total);
        if (team.lane() == 0 && total > 0)
            add_count(counts_of(system, place, file_slot).used, total);
    }
    const unsigned before = team.count_before(static_cast<unsigned>(__popcll(wanted)), total);
    FrameRange range, more;  // the frames may extend over the end of a slab
    if (team.lane() == 0 && total > 0) {
        range = next_frames(system, place, total, 1);
        if (range.count < total) more = next_frames(system, place, total - range.count, 1);
    }
    range.first = team.broadcast(range.first, 0);
    range.count = team.broadcast(range.count, 0);
    more.first = team.broadcast(more.first, 0);
    more.count = team.broadcast(more.count, 0);
    const auto hint_of = [&](unsigned nth) -> uint64_t {
        if (nth < range.count) return uint64_t{range.first} + nth;
        nth -= range.count;
        return nth < more.count ? uint64_t{more.first} + nth : kNoHint;
    };
    unsigned tried = before;
    uint64_t owed = 0;
    unsigned missing = batch.count;
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        const unsigned i = batch.index_of(team, k);
        bool need_frame = (wanted >> k & 1) != 0;
        if ((!need_frame && (failed >> k & 1) == 0) || missing < i) continue;
        const uint64_t owner = make_owner(file_slot, batch.first + i);
        uint64_t hint = hint_of(tried);
        if (need_frame) ++tried;
        if (need_frame && hint == kNoHint) hint = next_frame(system, place);
        if (claim_page(system, batch.pages[k], owner, hint, need_frame)) owed |= 1ull << k;
        if (need_frame) missing = i;
    }
    batch.filled = owed & batch.own;
    owed &= ~batch.own;
    const bool pulls = waits && Batch<Team>::kPages > 1 && system.rings[0].answers != nullptr;
    batch.ticket = submit_pages(team, system, file_slot, place, batch, owed,
                                pulls ? RequestKind::kPullPage : RequestKind::kReadPages);
    batch.owed = pulls ? owed : 0;
    return team.any(missing < batch.count) ? team.lowest(missing) : batch.count;
}

// Shortens the batch to the pages before `missing`. Waits for the later pages that were requested,
// and unpins them.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void shorten(const Team& team, FileSystemState& system,
                                               Batch<Team>& batch, unsigned missing) {
    settle_pages(team, system, batch, missing);
    unpin_pages(team, batch, missing);
}

// Requests every page of the batch that no team has requested. Shortens the batch to the pages
// before the first one that has no free frame. `waits`: the team will wait for all of them.
template <class Team>
PENSTOCK_DEVICE void fetch_pages(const Team& team, FileSystemState& system, uint32_t file_slot,
                                 ReadaheadPlace* place, Batch<Team>& batch, bool waits) {
    const unsigned missing = claim_pages(team, system, file_slot, place, batch, waits);
    if (team.any(batch.owed != 0)) pull_pages(team, system, file_slot, place, batch);
    if (missing < batch.count) shorten(team, system, batch, missing);
}

}  // namespace penstock::device
