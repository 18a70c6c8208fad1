// Implements how lanes wait for a word that another thread or lane will change: first others run,
// then the lane helps, then it sleeps.
#include <sched.h>

#include <chrono>
#include <ctime>

#include "backend/cpu/lanes.h"
#include "backend/cpu/parking.h"

namespace penstock::language {

using namespace penstock::backend::cpu;

namespace {

// After so many steps that let others run, a lane helps anyway. Lanes that meet between two steps
// of a wait (a warp that tries again for a frame) always find others that can run, and may wait for
// work that only help does.
constexpr unsigned kCrowdedTurnsMax = 8;
constexpr unsigned kPauseRounds = 4;  // rounds of a few pauses each
constexpr unsigned kPausesPerRound = 16;
constexpr unsigned kYieldRounds = 12;  // then rounds that offer the CPU to other threads; then
                                       // sleep
constexpr std::chrono::milliseconds kSleepMax{5};
// If several lanes wait for different words, one sleeps for all, so it looks again soon.
constexpr std::chrono::microseconds kSleepMaxShared{100};

void be_idle(unsigned round, const uint64_t* address, uint64_t seen, bool alone) {
    if (round < kPauseRounds) {
        for (unsigned i = 0; i < kPausesPerRound; ++i) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    } else if (round < kYieldRounds) {
        sched_yield();
    } else if (alone) {
        sleep_while_same(address, seen, kSleepMax);
    } else {
        sleep_while_same(address, seen, kSleepMaxShared);
    }
}

}  // namespace

PENSTOCK_UNINSTRUMENTED void wait_step(const uint64_t* address, uint64_t seen, uint32_t turn) {
    LaneState& lane = *this_lane();
    BlockState& block = *this_block();
    count_step(block);
    use_lists(block);
    bool others = others_can_run(block);
    if (others || turn == 0) block.idle_turns = block.idle_rounds = 0;
    bool crowded = others && block.crowded_turns < kCrowdedTurnsMax;
    if (crowded || (!others && block.idle_turns < block.ready.count)) {
        if (crowded) ++block.crowded_turns;
        ++block.idle_turns;
        ++block.ready_waiter_count;
        block.ready.append(&lane);
        sanitizer::release(&lane);  // partner: abandon_lanes
        switch_away(block, lane);
        --block.ready_waiter_count;
        return;
    }
    // All lanes that are left wait for a word, and all have looked since the last event here; or
    // kCrowdedTurnsMax is reached.
    block.idle_turns = block.crowded_turns = 0;
    ask_thread(block, lane, Command::kHelp);
    if (block.helped) {
        block.idle_rounds = 0;
        return;
    }
    if (others) {
        sched_yield();  // for a worker that may have what they wait for
        return;
    }
    be_idle(block.idle_rounds++, address, seen, block.ready.count == 0);
}

PENSTOCK_UNINSTRUMENTED void start_requests() {
    BlockState& block = *this_block();
    count_step(block);
    use_lists(block);
    ask_thread(block, *this_lane(), Command::kStart);
}

void notify(const uint64_t* address) { notify_addresses(address, 1); }

void ring(const uint64_t* address) { ring_address(address); }

uint64_t clock_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace penstock::language
