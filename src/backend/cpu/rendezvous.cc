// How lanes meet: the rendezvous of a block and of a warp, the values they exchange, and
// mismatches.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "backend/cpu/lanes.h"

namespace penstock::backend::cpu {
namespace {

// Parks `lane` until the rendezvous is over. Whoever runs on after it asks this_lane() again: what
// is kept over the switch is one more thing on each lane's stack. True: an exit completed it, so
// that this lane ends it.
PENSTOCK_UNINSTRUMENTED inline bool park(BlockState& block, LaneState& lane, Rendezvous& rendezvous,
                                         const char* site) {
    lane.site = site;
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

// The lanes that are parked at a rendezvous, which is over. `exits` stands for the lanes that have
// exited instead of coming.
PENSTOCK_UNINSTRUMENTED inline LaneList take_parked(Rendezvous& rendezvous, void* exits) {
    const LaneList others = rendezvous.parked;
    rendezvous = Rendezvous{};
    sanitizer::acquire(exits);  // partner: complete_without
    if constexpr (kThreadSanitizer) {
        for (LaneState* lane = others.first; lane != nullptr; lane = lane->next)
            sanitizer::acquire(lane);
    }
    return others;
}

// They may go on.
PENSTOCK_UNINSTRUMENTED inline void let_go(BlockState& block, LaneList& others) {
    if constexpr (kThreadSanitizer) {
        for (LaneState* lane = others.first; lane != nullptr; lane = lane->next)
            sanitizer::release(lane);
    }
    block.ready.splice(others);
}

// Barriers of one block are the same only at the same place of the source.
PENSTOCK_UNINSTRUMENTED inline bool same_site(const char* a, const char* b) {
    return a == b || std::strcmp(a, b) == 0;
}

// CUDA lets the lanes of a warp meet from different lines, in the same kind of call: the last word
// of the site.
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

PENSTOCK_UNINSTRUMENTED void unlink(BlockState& block, unsigned warp, WarpWait* wait) {
    WarpWait** link = &block.warp_waits[warp];
    while (*link != wait) link = &(*link)->next;
    *link = wait->next;
}

// The parked lane that waited longest ends the rendezvous when it runs.
PENSTOCK_UNINSTRUMENTED void hand_over(BlockState& block, Rendezvous& rendezvous) {
    LaneState* lane = rendezvous.parked.take_first();
    lane->runs_body = true;
    block.ready.append(lane);
}

}  // namespace

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
    const LaneState* other = nullptr;  // parked elsewhere than `first`, if there is one
    uint32_t first_mask = ~0u;
    const auto look_at = [&](const Rendezvous& rendezvous, uint32_t mask) {
        for (const LaneState* lane = rendezvous.parked.first; lane != nullptr; lane = lane->next) {
            if (first == nullptr) {
                first = lane;
                first_mask = mask;
            }
            if (other == nullptr && !same_site(lane->site, first->site)) other = lane;
        }
    };
    look_at(block.meeting, ~0u);
    for (const WarpWait* waits : block.warp_waits) {
        for (; waits != nullptr; waits = waits->next) look_at(waits->rendezvous, waits->mask);
    }
    char text[sizeof block.stop_text];
    if (first == nullptr || block.gathered.first != nullptr) {
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

// A block of 512 lanes spends half its time here: nothing outlives the switch, and the site is
// noted by the first to arrive only.
PENSTOCK_UNINSTRUMENTED bool block_gather(const char* site) {
    LaneState& lane = *this_lane();
    BlockState& block = *this_block();
    count_step(block);
    Rendezvous& meeting = block.meeting;
    if (meeting.parked.count == 0) {
        meeting.site = site;
        block.last_site.store(site, std::memory_order_relaxed);
    } else if (!same_site(meeting.site, site)) [[unlikely]] {
        stop_different(block, lane, site, *meeting.parked.first);
    }
    if (meeting.parked.count + 1 < block.live_count) [[likely]] {
        if (!park(block, lane, meeting, site)) return false;
    }
    BlockState& now = *this_block();
    now.gathered = take_parked(now.meeting, &now.meeting);
    return true;
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
        if (!park(block, lane, wait->rendezvous, site)) return;
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
