// The lanes of one block. They are fibers that meet at rendezvous, wait, and end, all on the
// block's OS thread.
//
//   unstarted --start--> running --rendezvous--> parked --last arrives--> ready --switch--> running
//                        running --wait_step---> ready (counted as waiter)
//                        running --return------> exited
//
// There is one switch per lane and rendezvous. A lane that parks switches directly to the next one.
// The last to arrive runs the body, puts the others on the ready list and continues. A lane that
// ends leaves its stack to the next. Only the block's thread uses a BlockState, except for its
// atomics, which the scheduler and the watchdog use. lanes.cc, rendezvous.cc and waits.cc implement
// language/runtime.h on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/sanitizer_fibers.h"
#include "backend/cpu/stacks.h"
#include "backend/cpu/switch.h"
#include "penstock/language/runtime.h"

namespace penstock::backend::cpu {

inline constexpr unsigned kWarpSize = 32;

struct WarpWait;

// The members that a switch uses lie in the first cache line.
struct alignas(64) LaneState : language::Lane, Fiber {
    LaneState* next = nullptr;   // in at most one list at a time
    const char* site = nullptr;  // where it last parked in a warp; Rendezvous has a block's
    bool runs_body = false;      // an exit completed its rendezvous: it acts as the last

    Stack* stack = nullptr;  // null before its start and after its exit
    uint64_t deposited = 0, answered = 0;
};

// First in, first out, linked through LaneState::next. The lanes of a block mostly meet in the same
// order each time, so a link that is already right is not written again. The link of the last lane
// has no meaning.
struct LaneList {
    LaneState* first = nullptr;  // any value if the list is empty, like `last`
    LaneState* last = nullptr;
    unsigned count = 0;

    PENSTOCK_UNINSTRUMENTED void append(LaneState* lane) {
        if (count == 0) {
            first = lane;
        } else if (last->next != lane) {
            last->next = lane;
        }
        last = lane;
        set_count(count + 1);
    }
    PENSTOCK_UNINSTRUMENTED LaneState* take_first() {
        if (count == 0) [[unlikely]]
            return nullptr;
        LaneState* lane = first;
        first = lane->next;
        set_count(count - 1);
        return lane;
    }
    // Appends all of `others`.
    PENSTOCK_UNINSTRUMENTED void splice(LaneList& others) {
        if (others.count == 0) return;
        (count == 0 ? first : last->next) = others.first;
        last = others.last;
        set_count(count + others.count);
        others.set_count(0);
    }
    // Any thread may call it.
    [[nodiscard]] unsigned glance() const { return __atomic_load_n(&count, __ATOMIC_RELAXED); }

private:
    // Atomic, because the watchdog reads the count of a block's meeting.
    PENSTOCK_UNINSTRUMENTED void set_count(unsigned value) {
        __atomic_store_n(&count, value, __ATOMIC_RELAXED);
    }
};

struct Rendezvous {
    LaneList parked;
    const char* site = nullptr;  // site of the first to arrive
};

// A meeting of the whole block to which the lanes come one after another, as they mostly do. The
// first finds all others ready, and each lane continues with the next one. No list is kept
// meanwhile: the lanes from `first` to the one before the running lane are parked, and those behind
// it are ready. A lane that does anything else makes lists of them (leave_round).
struct Round {
    const char* site = nullptr;  // null: there is no round
    LaneState* first = nullptr;
    LaneState* last = nullptr;     // the lane that ends the round
    LaneState* arrived = nullptr;  // the last one that has come so far
    // Any thread may call it.
    [[nodiscard]] uintptr_t glance() const {
        return reinterpret_cast<uintptr_t>(__atomic_load_n(&arrived, __ATOMIC_RELAXED));
    }
};

// A rendezvous within a warp. It lives on the stack of the first lane to arrive, which is parked
// while it is linked.
struct WarpWait {
    Rendezvous rendezvous;
    uint32_t mask = 0;
    WarpWait* next = nullptr;
};

// What a lane requests from the thread's own stack when it switches there.
enum class Command : uint8_t { kDone, kStopped, kHelp, kStart };

// kGivenUp: the watchdog has failed the launch, and no thread waits for this one any more.
enum class StopReason : uint8_t { kNone, kCancelled, kGivenUp };

struct BlockState : language::Block {
    LaneState* lanes = nullptr;  // kLanesMax of them
    StackPool* stacks = nullptr;
    Fiber own;  // fiber of the thread's own stack

    Round round;
    LaneList ready;
    unsigned ready_waiter_count = 0;  // lanes of `ready` in wait_step
    unsigned idle_turns = 0;          // steps in a row that found only waiters
    unsigned crowded_turns = 0;       // steps since the last help that let other lanes run
    unsigned idle_rounds = 0;         // rounds in a row in which no waiter had work
    unsigned started_count = 0;
    unsigned live_count = 0;      // not exited, whether started or not
    language::Index3 next_index;  // of the next lane to start
    Rendezvous meeting;           // of the whole block
    LaneList gathered;            // from block_gather to block_release
    WarpWait* warp_waits[kLanesMax / kWarpSize] = {};
    uint32_t warp_present[kLanesMax / kWarpSize] = {};  // lanes that have not exited

    void (*invoke)(const void* arguments) = nullptr;
    const void* arguments = nullptr;
    const char* kernel_key = "";  // for messages; a string that outlives the block

    Command command = Command::kDone;
    LaneState* asking = nullptr;  // kHelp, kStart: the lane that continues afterwards
    bool helped = false;          // kHelp: there was work
    int stop_error = 0;           // kStopped: errno of the launch; 0: it has one already
    char stop_text[400] = {};

    // Written by this thread and read by the watchdog. `steps` changes whenever a lane meets others
    // in a warp, waits, exits, or is the first to come to a meeting of the block. The lanes that
    // come later show in meeting.parked or in round.arrived.
    std::atomic<uint64_t> steps{0};
    std::atomic<const char*> last_site{nullptr};
    // Written by the scheduler and the watchdog.
    std::atomic<StopReason> stop{StopReason::kNone};
};

// Prepares a block of `lane_count` lanes; its shape must be set in `block`. Must be called on the
// thread that will run it.
void reset_block(BlockState& block);

// Runs lanes from the start, or continues after kHelp or kStart. Returns when the block is done, is
// stopped or requests help.
Command run_lanes(BlockState& block);

// Frees the stacks and fibers of a stopped block's lanes. Destructors on those stacks do not run.
void abandon_lanes(BlockState& block);

// Shared by the files that implement runtime.h.
PENSTOCK_UNINSTRUMENTED inline LaneState* this_lane() {
    return static_cast<LaneState*>(language::current_lane);
}
PENSTOCK_UNINSTRUMENTED inline BlockState* this_block() {
    return static_cast<BlockState*>(language::current_block);
}
// Continues in `to`. Returns when a later jump continues in `from`.
PENSTOCK_UNINSTRUMENTED inline void jump(Fiber& from, Fiber& to) {
    sanitizer::leave(from, to, false);
    switch_stack(&from.context, to.context);
    sanitizer::arrive(from);
}

// The lanes of a large block do not fit into the first-level cache. So while one lane runs, the top
// of the next one's stack and the state of the one after it are prefetched (512 lanes: 20 ns per
// lane without that). Small blocks fit and need no prefetch.
PENSTOCK_UNINSTRUMENTED inline bool fits_into_cache(const BlockState& block) {
    constexpr unsigned kLanesInCache = 64;
    return block.lane_count <= kLanesInCache;
}
PENSTOCK_UNINSTRUMENTED inline void fetch_ahead(const LaneState& next) {
    constexpr size_t kLine = 64, kStackLines = 3;
    const char* stack = static_cast<const char*>(next.context);
    for (size_t i = 0; i < kStackLines; ++i) __builtin_prefetch(stack + i * kLine, 1);
    __builtin_prefetch(next.next, 1);
}

// Returns the lane that runs next: unstarted lanes come before ready ones. Stops the block if there
// is none.
LaneState* next_or_stop(BlockState& block);

// Switches to the next lane that can run. Returns when another lane has made `lane` ready and
// switched back. The caller must have put `lane` into a list before. If no lane can run, that is a
// mismatch. Inline, because a block of many lanes spends its time here.
PENSTOCK_UNINSTRUMENTED inline void switch_away(BlockState& block, LaneState& lane) {
    const bool simple = block.started_count == block.lane_count && block.ready.count > 0;
    LaneState* next = simple ? block.ready.take_first() : next_or_stop(block);
    if (next == &lane) [[unlikely]]
        return;
    if (!fits_into_cache(block) && block.ready.count > 0) fetch_ahead(*block.ready.first);
    language::current_lane = next;
    jump(lane, *next);
}
// Ends a round early. Called by the running lane, which may be any that has not come to it.
void leave_round(BlockState& block);
PENSTOCK_UNINSTRUMENTED inline void use_lists(BlockState& block) {
    if (block.round.site != nullptr) leave_round(block);
}
// Returns whether a lane that is not in wait_step could run.
PENSTOCK_UNINSTRUMENTED inline bool others_can_run(const BlockState& block) {
    return block.started_count < block.lane_count || block.ready.count > block.ready_waiter_count;
}
// Lets lanes continue that waited for a lane which has now exited.
void complete_without(BlockState& block, LaneState& exited);
// Switches to the thread's own stack with block.command set. Returns only after kHelp or kStart.
void ask_thread(BlockState& block, LaneState& lane, Command command);
// Stops the block. `error` is 0 if the scheduler knows the reason.
[[noreturn]] void stop_lanes(BlockState& block, int error);
[[noreturn]] void stop_with_text(BlockState& block, int error, const char* text);
[[noreturn]] void stop_mismatch(BlockState& block);  // names which lanes wait where

PENSTOCK_UNINSTRUMENTED inline void end_if_stopped(BlockState& block) {
    if (block.stop.load(std::memory_order_relaxed) != StopReason::kNone) [[unlikely]]
        stop_lanes(block, 0);
}
PENSTOCK_UNINSTRUMENTED inline void count_step(BlockState& block) {
    // A plain increment, because there is one writer.
    block.steps.store(block.steps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    end_if_stopped(block);
}
// Returns a value that differs between two looks of the watchdog if the block makes progress.
inline uint64_t progress_of(const BlockState& block) {
    constexpr unsigned kCountBits = 16;
    static_assert(kLanesMax < 1u << kCountBits);
    return (block.steps.load(std::memory_order_relaxed) << kCountBits) +
           block.meeting.parked.glance() + block.round.glance();
}

}  // namespace penstock::backend::cpu
