// A batch of pages in a team's hands: pinned, asked for, waited for, let go.
//
// GPU end of the page cache; the state machine of one page is in page_entry.cuh, where frames come
// from in replacement.cuh. Rules that keep it free of deadlock: who waits for a frame or a leaf
// holds no pin and no claim; a frame is taken before its page is claimed; every claim is submitted
// before anything is waited for.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/answers.cuh"
#include "penstock/device/group.cuh"
#include "penstock/device/replacement.cuh"
#include "penstock/device/request_queue.cuh"
#include "penstock/device/wait.cuh"
#include "penstock/device/window_runs.cuh"

namespace penstock::device {

// Up to kPages neighbouring pages; lane l of the team has pages l, l + lanes, ... of them.
template <class Team>
struct Batch {
    static constexpr unsigned kPages = Team::kWidth * Team::kPagesPerLane;
    static_assert(kPages <= limits::kBatchPagesMax, "the cap on a team's outstanding requests");

    PageIndex first = 0;
    unsigned count = 0;
    PinnedEntry pages[Team::kPagesPerLane];  // of this lane: as many as mine() says
    uint64_t owed = 0;                       // bit k: pages[k] is this lane's to pull
    uint64_t own = 0;                        // bit k: pages[k], if it is absent, is its to fill
    uint64_t filled = 0;                     // bit k: it has claimed it for that
    uint64_t ticket = 0;                     // of the first that the team is to pull

    // How many of the lane's places the batch reaches to, at most.
    PENSTOCK_DEVICE unsigned mine(const Team& team) const {
        return Team::kPagesPerLane == 1 ? 1 : (count + team.lanes() - 1) / team.lanes();
    }
    PENSTOCK_DEVICE unsigned index_of(const Team& team, unsigned k) const {
        return team.lane() + k * team.lanes();
    }
};

// Lets go of the pages from `from` on.
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

// Whether a page that was found VALID has earned a second chance by that.
PENSTOCK_BOTH inline bool is_second_use(const FileSystemState& system, const FileState& file,
                                        const ReadaheadPlace* place, FrameIndex frame) {
    const bool together = place != nullptr && place->shares != 0 && in_common_ring(system, frame);
    const bool second = system.policy == ReplacementPolicy::kRings
                            ? !in_ring(system, place, frame) && !together
                            : system.policy == ReplacementPolicy::kClock;
    return second && given_advice(file).advice != Advice::kNoReuse;
}

// A page that was asked for ahead of all blocks, and pinned now by the first that reads it: it is
// not unread any more, and published, where it has arrived, in the same step. Whether the caller
// was that first one.
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

// Counts the pages of which take_unread() said so in this lane. `place`: the call's.
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

// Pins the batch's pages. Shortens it to those before the first that has no leaf just now; returns
// whether all of them are VALID already.
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
        // By one lane: each that tried would take one from other pages, and all but one for
        // nothing.
        if (team.lane() == 0) install_leaves(system, file, batch.first, batch.count);
        team.sync();
    }
    count_taken(team, system, file, place, used, late);
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

// Takes the page of one pinned entry into FETCHING if it is for this team to fetch. `need_frame`
// in: EMPTY was seen; out: no frame could be had. Returns whether the team now owes a request for
// it.
PENSTOCK_DEVICE inline bool claim_page(FileSystemState& system, PinnedEntry& page, uint64_t owner,
                                       uint64_t hint, bool& need_frame) {
    if (!need_frame) return claim_again<DeviceWords>(*page.entry, page.seen);
    // Others may have been first: then no page is evicted for it.
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

// Submits the requests that this lane owes (bit k of `owed`): all of the team's in adjacent
// tickets. The first of them.
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

// Brings the pages that the team has asked for to their frames as their answers come, and announces
// them, in the order of their tickets: the host waits for its memory, and an earlier ticket is in a
// worker's hands before a later one.
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
        team.sync();  // what the lane that waited has acquired, all have
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

// One more, where a team's ranges did not suffice: chunks are small, or other teams of the block
// had the rest. Any other frame may have a page while the cache has free ones.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline uint64_t next_frame(FileSystemState& system,
                                                             ReadaheadPlace* place) {
    return next_frames(system, place, 1, 1).first;
}

// Asks for every page of the batch that nobody has asked for, but those that the team fills itself,
// before the first that has no frame just now; its index, or the batch's size. What is to be
// pulled, which only a team may that waits for all of it, is noted in the batch.
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
    FrameRange range, more;  // what is asked for may reach over the end of a chunk
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

// Shortens the batch to the pages before `missing`; what was asked for beyond is waited for and let
// go.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void shorten(const Team& team, FileSystemState& system,
                                               Batch<Team>& batch, unsigned missing) {
    settle_pages(team, system, batch, missing);
    unpin_pages(team, batch, missing);
}

// Asks for every page of the batch that nobody has asked for. Shortens the batch to the pages
// before the first that has no frame just now. `waits`: the team will wait for all of them.
template <class Team>
PENSTOCK_DEVICE void fetch_pages(const Team& team, FileSystemState& system, uint32_t file_slot,
                                 ReadaheadPlace* place, Batch<Team>& batch, bool waits) {
    const unsigned missing = claim_pages(team, system, file_slot, place, batch, waits);
    if (team.any(batch.owed != 0)) pull_pages(team, system, file_slot, place, batch);
    if (missing < batch.count) shorten(team, system, batch, missing);
}

}  // namespace penstock::device
