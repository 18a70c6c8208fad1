// Implements how lanes meet: the rendezvous of a block and of a warp, the values exchanged there,
// and mismatches.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "backend/cpu/lanes.h"
#include "penstock/abi/qualifiers.h"

namespace penstock::backend::cpu {
namespace {

// Parks `lane` until the rendezvous is over. The code after it calls this_lane() again, because a
// value kept over the switch would take more of each lane's stack. Returns true if an exit
// completed the rendezvous, so that this lane must end it.
PENSTOCK_UNINSTRUMENTED inline bool park(BlockState& block, LaneState& lane,
                                         Rendezvous& rendezvous) {
    rendezvous.parked.append(&lane);
    sanitizer::release(&lane);  // partners: take_parked, abandon_lanes
    switch_away(block, lane);
    LaneState& resumed = *this_lane();
    sanitizer::acquire(&resumed);  // partner: let_go
    if (!resumed.runs_body) [[likely]]
        return false;
    resumed.runs_body = false;
    return true;
}

// Takes the lanes that are parked at a finished rendezvous. `exits` stands for the lanes that have
// exited instead of coming.
PENSTOCK_UNINSTRUMENTED inline LaneList take_parked(Rendezvous& rendezvous, void* exits) {
    const LaneList others = rendezvous.parked;
    rendezvous = Rendezvous{};
    sanitizer::acquire(exits);  // partner: complete_without
    if constexpr (kThreadSanitizer) {
        LaneState* lane = others.first;
        for (unsigned i = 0; i < others.count; ++i, lane = lane->next) sanitizer::acquire(lane);
    }
    return others;
}

// Makes the lanes ready.
PENSTOCK_UNINSTRUMENTED inline void let_go(BlockState& block, LaneList& others) {
    if constexpr (kThreadSanitizer) {
        LaneState* lane = others.first;
        for (unsigned i = 0; i < others.count; ++i, lane = lane->next) sanitizer::release(lane);
    }
    block.ready.splice(others);
}

// Barriers of one block match only if they are at the same place in the source.
PENSTOCK_UNINSTRUMENTED inline bool same_site(const char* a, const char* b) {
    return a == b || std::strcmp(a, b) == 0;
}

// CUDA lets the lanes of a warp meet from different lines, in the same kind of call. The kind is
// the last word of the site.
PENSTOCK_UNINSTRUMENTED bool same_kind(const char* a, const char* b) {
    if (a == b) return true;
    const char* kind_a = std::strrchr(a, ' ');
    const char* kind_b = std::strrchr(b, ' ');
    return std::strcmp(kind_a == nullptr ? a : kind_a, kind_b == nullptr ? b : kind_b) == 0;
}

[[noreturn]] PENSTOCK_UNINSTRUMENTED void stop_different(BlockState& block, const LaneState& lane,
                                                         const char* site, const LaneState& other) {
    char text[sizeof block.stop_text];
    std::snprintf(text, sizeof text, "barrier mismatch: thread %u waits at %s, thread %u at %s",
                  lane.rank, site, other.rank, other.site);
    stop_with_text(block, EDEADLK, text);
}

// Lanes at a meeting of the block are at its site and do not record it each.
PENSTOCK_UNINSTRUMENTED void tell_sites(const Rendezvous& meeting) {
    LaneState* lane = meeting.parked.first;
    for (unsigned i = 0; i < meeting.parked.count; ++i, lane = lane->next)
        lane->site = meeting.site;
}

PENSTOCK_UNINSTRUMENTED void unlink(BlockState& block, unsigned warp, WarpWait* wait) {
    WarpWait** link = &block.warp_waits[warp];
    while (*link != wait) link = &(*link)->next;
    *link = wait->next;
}

// Lets the parked lane that waited longest end the rendezvous when it runs.
PENSTOCK_UNINSTRUMENTED void hand_over(BlockState& block, Rendezvous& rendezvous) {
    LaneState* lane = rendezvous.parked.take_first();
    lane->runs_body = true;
    block.ready.append(lane);
}

// Continues in the next lane of a round.
PENSTOCK_UNINSTRUMENTED inline void pass_on(BlockState& block, LaneState& lane) {
    LaneState* next = lane.next;
    __atomic_store_n(&block.round.arrived, &lane, __ATOMIC_RELAXED);
    if (!fits_into_cache(block) && next != block.round.last) fetch_ahead(*next->next);
    language::current_lane = next;
    jump(lane, *next);
}

// Begins a round, if the first lane at a meeting finds all others ready. Returns false if not.
PENSTOCK_UNINSTRUMENTED inline bool begin_round(BlockState& block, LaneState& lane,
                                                const char* site) {
    // TSan must be told of each lane, and a lane in wait_step is in no round.
    if (kThreadSanitizer || block.ready.count == 0 || block.ready.count + 1 != block.live_count ||
        block.ready_waiter_count != 0)
        return false;
    lane.next = block.ready.first;
    block.round = {site, &lane, block.ready.last, &lane};
    block.ready = LaneList{};
    return true;
}

// Ends a round: all lanes but the running one, which is the last, have come.
PENSTOCK_UNINSTRUMENTED void end_round(BlockState& block) {
    Round& round = block.round;
    block.gathered = LaneList{round.first, round.arrived, block.live_count - 1};
    round.site = nullptr;
}

// Ends the meeting as the last to arrive, because an exit made this lane the last one.
PENSTOCK_UNINSTRUMENTED PENSTOCK_NOINLINE bool end_meeting() {
    BlockState& block = *this_block();
    this_lane()->runs_body = false;
    block.gathered = take_parked(block.meeting, &block.meeting);
    return true;
}

// What becomes of a lane that is not just another one of a round: kPassOn, it has begun one.
enum class Gathered : uint8_t { kMet, kAll, kPassOn };

PENSTOCK_UNINSTRUMENTED PENSTOCK_NOINLINE Gathered gather_with_lists(BlockState& block,
                                                                     LaneState& lane,
                                                                     const char* site) {
    Rendezvous& meeting = block.meeting;
    end_if_stopped(block);
    if (block.round.site == site) {
        end_round(block);
        return Gathered::kAll;
    }
    use_lists(block);
    if (meeting.parked.count == 0) {
        count_step(block);
        block.last_site.store(site, std::memory_order_relaxed);
        if (begin_round(block, lane, site)) return Gathered::kPassOn;
        meeting.site = site;
    } else if (!same_site(meeting.site, site)) [[unlikely]] {
        tell_sites(meeting);
        stop_different(block, lane, site, *meeting.parked.first);
    }
    if (meeting.parked.count + 1 < block.live_count) [[likely]] {
        if (!park(block, lane, meeting)) return Gathered::kMet;
    }
    BlockState& now = *this_block();
    now.gathered = take_parked(now.meeting, &now.meeting);
    return Gathered::kAll;
}

}  // namespace

PENSTOCK_UNINSTRUMENTED void leave_round(BlockState& block) {
    Round& round = block.round;
    LaneState* here = this_lane();
    block.meeting.site = round.site;
    round.site = nullptr;
    for (LaneState* lane = round.first; lane != here; lane = lane->next)
        block.meeting.parked.append(lane);
    while (here != round.last) {
        here = here->next;
        block.ready.append(here);
    }
}

PENSTOCK_UNINSTRUMENTED void complete_without(BlockState& block, LaneState& exited) {
    sanitizer::release(&block.meeting);  // partner: take_parked
    sanitizer::release(&block.warp_present[exited.warp_index]);
    if (block.live_count > 0 && block.meeting.parked.count == block.live_count) {
        hand_over(block, block.meeting);
    }
    uint32_t present = block.warp_present[exited.warp_index];
    for (WarpWait* wait = block.warp_waits[exited.warp_index]; wait != nullptr; wait = wait->next) {
        uint32_t expected = wait->mask & present;
        bool waited_for = (wait->mask >> exited.lane_index & 1) != 0;
        if (waited_for &&
            wait->rendezvous.parked.count == static_cast<unsigned>(__builtin_popcount(expected))) {
            hand_over(block, wait->rendezvous);
        }
    }
}

PENSTOCK_UNINSTRUMENTED void stop_mismatch(BlockState& block) {
    const LaneState* first = nullptr;
    const LaneState* other = nullptr;  // parked elsewhere than `first`, if any
    uint32_t first_mask = ~0u;
    const auto look_at = [&](const Rendezvous& rendezvous, uint32_t mask) {
        const LaneState* lane = rendezvous.parked.first;
        for (unsigned i = 0; i < rendezvous.parked.count; ++i, lane = lane->next) {
            if (first == nullptr) {
                first = lane;
                first_mask = mask;
            }
            if (other == nullptr && !same_site(lane->site, first->site)) other = lane;
        }
    };
    tell_sites(block.meeting);
    look_at(block.meeting, ~0u);
    for (const WarpWait* waits : block.warp_waits) {
        for (; waits != nullptr; waits = waits->next) look_at(waits->rendezvous, waits->mask);
    }
    char text[sizeof block.stop_text];
    if (first == nullptr || block.gathered.count > 0) {
        std::snprintf(text, sizeof text,
                      "no GPU thread of the block can run: a barrier inside a barrier's body");
    } else if (other != nullptr) {
        stop_different(block, *first, first->site, *other);
    } else {
        std::snprintf(text, sizeof text,
                      "barrier mismatch: thread %u waits at %s (mask 0x%08x), which can never fill",
                      first->rank, first->site, first_mask);
    }
    stop_with_text(block, EDEADLK, text);
}

}  // namespace penstock::backend::cpu

namespace penstock::language {

using namespace penstock::backend::cpu;

// A block of many lanes spends a quarter of its time here, mostly writing memory. So no value
// outlives the switch, the first to arrive records site and step for all, and no list is kept while
// lanes arrive one after another.
PENSTOCK_UNINSTRUMENTED bool block_gather(const char* site) {
    BlockState& block = *this_block();
    LaneState& lane = *this_lane();
    const bool stops = block.stop.load(std::memory_order_relaxed) != StopReason::kNone;
    if (block.round.site != site || block.round.last == &lane || stops) [[unlikely]] {
        const Gathered gathered = gather_with_lists(block, lane, site);
        if (gathered != Gathered::kPassOn) return gathered == Gathered::kAll;
    }
    // In one place for all lanes, so that the processor predicts where each one continues.
    pass_on(block, lane);
    return this_lane()->runs_body && end_meeting();
}

PENSTOCK_UNINSTRUMENTED void block_release() {
    BlockState& block = *this_block();
    let_go(block, block.gathered);
}

PENSTOCK_UNINSTRUMENTED void block_rendezvous(Body body, void* argument, const char* site) {
    if (!block_gather(site)) return;
    if (body != nullptr) body(argument);
    block_release();
}

PENSTOCK_UNINSTRUMENTED void warp_rendezvous(uint32_t mask, Body body, void* argument,
                                             const char* site) {
    LaneState& lane = *this_lane();
    BlockState& block = *this_block();
    count_step(block);
    use_lists(block);
    unsigned warp = lane.warp_index;
    if ((mask >> lane.lane_index & 1) == 0) [[unlikely]] {
        char text[160];
        std::snprintf(text, sizeof text, "thread %u is not in the mask 0x%08x it gives at %s",
                      lane.rank, mask, site);
        stop_with_text(block, EDEADLK, text);
    }
    WarpWait* wait = block.warp_waits[warp];
    while (wait != nullptr && wait->mask != mask) wait = wait->next;
    unsigned expected = static_cast<unsigned>(__builtin_popcount(mask & block.warp_present[warp]));
    WarpWait own;
    if (wait == nullptr) {
        block.last_site.store(site, std::memory_order_relaxed);
        if (expected == 1) {
            sanitizer::acquire(&block.warp_present[warp]);  // partner: complete_without
            if (body != nullptr) body(argument);
            return;
        }
        own.mask = mask;
        own.rendezvous.site = site;
        own.next = block.warp_waits[warp];
        block.warp_waits[warp] = wait = &own;
    } else if (!same_kind(wait->rendezvous.site, site)) [[unlikely]] {
        stop_different(block, lane, site, *wait->rendezvous.parked.first);
    }
    if (wait->rendezvous.parked.count + 1 < expected) {
        lane.site = site;
        if (!park(block, lane, wait->rendezvous)) return;
    }
    unlink(block, warp, wait);
    LaneList others = take_parked(wait->rendezvous, &block.warp_present[warp]);
    if (body != nullptr) body(argument);
    let_go(block, others);
}

PENSTOCK_UNINSTRUMENTED void deposit(uint64_t value) { this_lane()->deposited = value; }

PENSTOCK_UNINSTRUMENTED uint64_t value_of(unsigned rank) {
    return this_block()->lanes[rank].deposited;
}

PENSTOCK_UNINSTRUMENTED void answer(unsigned rank, uint64_t value) {
    this_block()->lanes[rank].answered = value;
}

PENSTOCK_UNINSTRUMENTED uint64_t take_answer() { return this_lane()->answered; }

PENSTOCK_UNINSTRUMENTED bool present(unsigned rank) {
    return rank < kLanesMax &&
           (this_block()->warp_present[rank / kWarpSize] >> rank % kWarpSize & 1) != 0;
}

PENSTOCK_UNINSTRUMENTED uint32_t warp_present_mask() {
    return this_block()->warp_present[this_lane()->warp_index];
}

void stop_block(const char* text) { stop_with_text(*this_block(), EFAULT, text); }

}  // namespace penstock::language
