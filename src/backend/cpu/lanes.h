// The lanes of one block: fibers that meet at rendezvous, wait, and end, all on the block's OS
// thread.
//
//   unstarted --start--> running --rendezvous--> parked --last arrives--> ready --switch--> running
//                        running --wait_step---> ready (counted as waiter)
//                        running --return------> exited
//
// One switch per lane and rendezvous: a lane that parks switches straight to the next one; the last
// to arrive runs the body, puts the others on the ready list and just goes on. A lane that ends
// leaves its stack to the next. Only the block's thread touches a BlockState, but for its atomics,
// which scheduler and watchdog use. lanes.cc, rendezvous.cc and waits.cc implement
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

// What a switch touches lies in the first cache line.
struct alignas(64) LaneState : language::Lane, Fiber {
    LaneState* next = nullptr;   // in at most one list at a time
    const char* site = nullptr;  // where it parked last in a warp; of blocks Rendezvous says it
    bool runs_body = false;      // an exit completed its rendezvous: it acts as the last to arrive

    Stack* stack = nullptr;  // null before start and after exit
    uint64_t deposited = 0, answered = 0;
};

// First in, first out, linked through LaneState::next. The lanes of a block mostly meet in the same
// order again and again: a link that is right already is not written once more, so links behind the
// last lane mean nothing.
struct LaneList {
    LaneState* first = nullptr;  // of an empty list: anything, and so is `last`
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
    // Moves all of `others` behind what is here.
    PENSTOCK_UNINSTRUMENTED void splice(LaneList& others) {
        if (others.count == 0) return;
        (count == 0 ? first : last->next) = others.first;
        last = others.last;
        set_count(count + others.count);
        others.set_count(0);
    }
    // Any thread.
    [[nodiscard]] unsigned glance() const { return __atomic_load_n(&count, __ATOMIC_RELAXED); }

private:
    // As the watchdog reads the count of a block's meeting.
    PENSTOCK_UNINSTRUMENTED void set_count(unsigned value) {
        __atomic_store_n(&count, value, __ATOMIC_RELAXED);
    }
};

struct Rendezvous {
    LaneList parked;
    const char* site = nullptr;  // of the first to arrive
};

// A meeting of the whole block that all lanes come to one after the other, as they mostly do: the
// first finds all others ready, and each goes on to the next of them. No list is kept meanwhile:
// those from `first` to the one before the running lane are parked, those behind it are ready. Who
// does anything else than come to the meeting makes lists of them (leave_round).
struct Round {
    const char* site = nullptr;  // null: none is on
    LaneState* first = nullptr;
    LaneState* last = nullptr;     // who ends it
    LaneState* arrived = nullptr;  // who came last so far
    // Any thread.
    [[nodiscard]] uintptr_t glance() const {
        return reinterpret_cast<uintptr_t>(__atomic_load_n(&arrived, __ATOMIC_RELAXED));
    }
};

// A rendezvous within a warp. Lives on the stack of the first to arrive, who is parked while it is
// linked.
struct WarpWait {
    Rendezvous rendezvous;
    uint32_t mask = 0;
    WarpWait* next = nullptr;
};

// What a lane asks of the thread's own stack when it switches there.
enum class Command : uint8_t { kDone, kStopped, kHelp, kStart };

// kGivenUp: the watchdog has failed the launch, and nobody waits for this thread any more.
enum class StopReason : uint8_t { kNone, kCancelled, kGivenUp };

struct BlockState : language::Block {
    LaneState* lanes = nullptr;  // kLanesMax of them
    StackPool* stacks = nullptr;
    Fiber own;  // the thread's own stack

    Round round;
    LaneList ready;
    unsigned ready_waiter_count = 0;  // how many of `ready` are in wait_step
    unsigned idle_turns = 0;          // steps in a row that found nobody but waiters
    unsigned crowded_turns = 0;       // steps since the last help that let other lanes run
    unsigned idle_rounds = 0;         // rounds in a row in which no waiter had anything to do
    unsigned started_count = 0;
    unsigned live_count = 0;      // started or not, not exited
    language::Index3 next_index;  // of the next lane to start
    Rendezvous meeting;           // of the whole block
    LaneList gathered;            // from block_gather to block_release
    WarpWait* warp_waits[kLanesMax / kWarpSize] = {};
    uint32_t warp_present[kLanesMax / kWarpSize] = {};  // lanes that exist and have not exited

    void (*invoke)(const void* arguments) = nullptr;
    const void* arguments = nullptr;
    const char* kernel_key = "";  // for messages; a string that outlives the block

    Command command = Command::kDone;
    LaneState* asking = nullptr;  // kHelp, kStart: who goes on afterwards
    bool helped = false;          // likewise: whether there was work
    int stop_error = 0;           // kStopped: the errno of the launch; 0: it has its error already
    char stop_text[400] = {};

    // Written by this thread, read by the watchdog. `steps` changes whenever a lane meets others in
    // a warp, waits or exits, or is the first to come to a meeting of the block; the others that
    // come show in meeting.parked or in round.arrived.
    std::atomic<uint64_t> steps{0};
    std::atomic<const char*> last_site{nullptr};
    // Written by scheduler and watchdog.
    std::atomic<StopReason> stop{StopReason::kNone};
};

// Prepares a block of `lane_count` lanes whose shape is set in `block`; on the thread that will run
// it.
void reset_block(BlockState& block);

// Runs lanes (from the start, or on after kHelp, kStart) until the block is done, is stopped or
// asks for help.
Command run_lanes(BlockState& block);

// Gives up what lanes of a stopped block hold: stacks and fibers. Their destructors do not run.
void abandon_lanes(BlockState& block);

// What the files that implement runtime.h share.
PENSTOCK_UNINSTRUMENTED inline LaneState* this_lane() {
    return static_cast<LaneState*>(language::current_lane);
}
PENSTOCK_UNINSTRUMENTED inline BlockState* this_block() {
    return static_cast<BlockState*>(language::current_block);
}
// Goes on in `to`; returns when somebody goes on in `from`.
PENSTOCK_UNINSTRUMENTED inline void jump(Fiber& from, Fiber& to) {
    sanitizer::leave(from, to, false);
    switch_stack(&from.context, to.context);
    sanitizer::arrive(from);
}

// The lanes of a large block do not fit into the first-level cache: while one runs, the top of the
// next one's stack and the state of the one after it are on their way (512 lanes: 20 ns a lane
// without). Those of a small block do, and need not be asked for.
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

// The lane that runs next: an unstarted one before any that is ready. Stops the block if there is
// none.
LaneState* next_or_stop(BlockState& block);

// Switches to the next lane that can run; returns when someone has made `lane` ready and switched
// back. The caller has put `lane` into a list before. Nobody can run: a mismatch. Inline, as this
// is where a block of many lanes spends its time.
PENSTOCK_UNINSTRUMENTED inline void switch_away(BlockState& block, LaneState& lane) {
    const bool simple = block.started_count == block.lane_count && block.ready.count > 0;
    LaneState* next = simple ? block.ready.take_first() : next_or_stop(block);
    if (next == &lane) [[unlikely]]
        return;
    if (!fits_into_cache(block) && block.ready.count > 0) fetch_ahead(*block.ready.first);
    language::current_lane = next;
    jump(lane, *next);
}
// Ends a round before its time; by the running lane, which may be any that has not come to it.
void leave_round(BlockState& block);
PENSTOCK_UNINSTRUMENTED inline void use_lists(BlockState& block) {
    if (block.round.site != nullptr) leave_round(block);
}
// Whether a lane could run that is not in wait_step.
PENSTOCK_UNINSTRUMENTED inline bool others_can_run(const BlockState& block) {
    return block.started_count < block.lane_count || block.ready.count > block.ready_waiter_count;
}
// A lane has exited: those it kept waiting may go on.
void complete_without(BlockState& block, LaneState& exited);
// Switches to the thread's own stack with block.command set, and comes back only after kHelp or
// kStart.
void ask_thread(BlockState& block, LaneState& lane, Command command);
// Stops the block; `error` 0: the scheduler knows why.
[[noreturn]] void stop_lanes(BlockState& block, int error);
[[noreturn]] void stop_with_text(BlockState& block, int error, const char* text);
[[noreturn]] void stop_mismatch(BlockState& block);  // names who waits where

PENSTOCK_UNINSTRUMENTED inline void end_if_stopped(BlockState& block) {
    if (block.stop.load(std::memory_order_relaxed) != StopReason::kNone) [[unlikely]]
        stop_lanes(block, 0);
}
PENSTOCK_UNINSTRUMENTED inline void count_step(BlockState& block) {
    // A plain increment: one writer.
    block.steps.store(block.steps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    end_if_stopped(block);
}
// What differs between two looks of the watchdog at a block that comes forward.
inline uint64_t progress_of(const BlockState& block) {
    constexpr unsigned kCountBits = 16;
    static_assert(kLanesMax < 1u << kCountBits);
    return (block.steps.load(std::memory_order_relaxed) << kCountBits) +
           block.meeting.parked.glance() + block.round.glance();
}

}  // namespace penstock::backend::cpu
