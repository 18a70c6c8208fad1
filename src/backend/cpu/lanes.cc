// Starts, switches and ends lanes. rendezvous.cc has how they meet, waits.cc how they wait.
#include "backend/cpu/lanes.h"

#include <cerrno>
#include <cstdio>

#include "backend/cpu/switch.h"

namespace penstock::language {

constinit thread_local Lane* current_lane = nullptr;
constinit thread_local Block* current_block = nullptr;

}  // namespace penstock::language

namespace penstock::backend::cpu {
namespace {

[[noreturn]] PENSTOCK_UNINSTRUMENTED void jump_for_ever(Fiber& from, Fiber& to) {
    sanitizer::leave(from, to, true);
    switch_stack(&from.context, to.context);
    __builtin_unreachable();
}

PENSTOCK_UNINSTRUMENTED LaneState* next_unstarted(BlockState& block) {
    LaneState& lane = block.lanes[block.started_count];
    unsigned rank = block.started_count++;
    Fiber fiber = lane;  // it is prepared
    lane = LaneState{};
    static_cast<Fiber&>(lane) = fiber;
    lane.thread_index = block.next_index;
    lane.rank = rank;
    lane.lane_index = rank % kWarpSize;
    lane.warp_index = rank / kWarpSize;
    language::Index3& index = block.next_index;
    if (++index.x == block.block_dimensions.x) {
        index.x = 0;
        if (++index.y == block.block_dimensions.y) {
            index.y = 0;
            ++index.z;
        }
    }
    return &lane;
}

// Runs the kernel for `lane` on the current stack.
PENSTOCK_UNINSTRUMENTED void run_lane(BlockState& block, LaneState& lane) {
    language::current_lane = &lane;
    sanitizer::acquire(&block);  // partner: reset_block()
    block.invoke(block.arguments);
    sanitizer::release(&block.own);  // partner: run_lanes()
    use_lists(block);
    --block.live_count;
    block.warp_present[lane.warp_index] &= ~(1u << lane.lane_index);
    count_step(block);
    if (!StackPool::intact(lane.stack)) {
        stop_with_text(block, EFAULT, "a GPU thread overflowed its stack");
    }
    complete_without(block, lane);
}

// Gives an unstarted lane a stack. Returns null if the block is stopped for lack of memory.
PENSTOCK_UNINSTRUMENTED LaneState* start_next(BlockState& block) {
    Stack* stack = block.stacks->take();
    if (stack == nullptr) return nullptr;
    LaneState* lane = next_unstarted(block);
    lane->stack = stack;
    lane->context = new_stack(stack->low, stack->top);
    sanitizer::begin(*lane, stack->low, static_cast<size_t>(stack->top - stack->low));
    return lane;
}

// Unstarted lanes come first: a lane that spins on another one's word must not keep that one from
// starting.
PENSTOCK_UNINSTRUMENTED inline LaneState* pick_next(BlockState& block) {
    if (block.started_count < block.lane_count) [[unlikely]] {
        LaneState* lane = start_next(block);
        if (lane == nullptr)
            stop_with_text(block, ENOMEM, "no memory for the stack of a GPU thread");
        return lane;
    }
    return block.ready.take_first();
}

}  // namespace

// TSan must always see the same lane on the same stack; otherwise it reports what the last lane
// left there as a race. So stacks are then kept to the end of the block, and returned in the order
// in which the next block takes them.
PENSTOCK_UNINSTRUMENTED void give_back(BlockState& block, LaneState& lane) {
    if (lane.stack == nullptr) return;
    block.stacks->give_back(lane.stack);
    lane.stack = nullptr;
}

// When a lane has ended, the next unstarted one runs on its stack. TSan would take the two for one
// thread.
PENSTOCK_UNINSTRUMENTED void first_frame() {
    LaneState* lane = this_lane();
    BlockState& block = *this_block();
    sanitizer::arrive(*lane);
    run_lane(block, *lane);
    while (!kThreadSanitizer && block.started_count < block.lane_count) {
        LaneState* next = next_unstarted(block);
        next->stack = lane->stack;
        static_cast<Fiber&>(*next) = *lane;
        lane->stack = nullptr;
        lane = next;
        run_lane(block, *lane);
    }
    LaneState* next = block.live_count > 0 ? pick_next(block) : nullptr;
    // From here on no lane takes a stack before control has left this one.
    if (!kThreadSanitizer) give_back(block, *lane);
    if (next != nullptr) {
        language::current_lane = next;
        jump_for_ever(*lane, *next);
    }
    if (block.live_count > 0) stop_mismatch(block);
    block.command = Command::kDone;
    jump_for_ever(*lane, block.own);
}

PENSTOCK_UNINSTRUMENTED LaneState* next_or_stop(BlockState& block) {
    LaneState* next = pick_next(block);
    if (next == nullptr) stop_mismatch(block);
    return next;
}

PENSTOCK_UNINSTRUMENTED void ask_thread(BlockState& block, LaneState& lane, Command command) {
    block.command = command;
    block.asking = &lane;
    sanitizer::release(&lane);  // partner: abandon_lanes()
    jump(lane, block.own);
}

PENSTOCK_UNINSTRUMENTED void stop_lanes(BlockState& block, int error) {
    block.stop_error = error;
    block.command = Command::kStopped;
    sanitizer::release(&block.own);  // partner: run_lanes()
    jump_for_ever(*this_lane(), block.own);
}

PENSTOCK_UNINSTRUMENTED void stop_with_text(BlockState& block, int error, const char* text) {
    std::snprintf(block.stop_text, sizeof block.stop_text, "%s", text);
    stop_lanes(block, error);
}

PENSTOCK_UNINSTRUMENTED void reset_block(BlockState& block) {
    block.round = Round{};
    block.ready = LaneList{};
    block.ready_waiter_count = block.idle_turns = block.idle_rounds = 0;
    block.started_count = 0;
    block.live_count = block.lane_count;
    block.next_index = {};
    block.meeting = Rendezvous{};
    block.gathered = LaneList{};
    for (unsigned warp = 0; warp < kLanesMax / kWarpSize; ++warp) {
        unsigned first = warp * kWarpSize;
        unsigned count = block.lane_count > first ? block.lane_count - first : 0;
        block.warp_waits[warp] = nullptr;
        block.warp_present[warp] = count >= kWarpSize ? ~0u : (1u << count) - 1;
    }
    block.asking = nullptr;
    block.stop_error = 0;
    block.stop_text[0] = '\0';
    block.last_site.store(nullptr, std::memory_order_relaxed);
    sanitizer::begin_thread(block.own);
    for (unsigned rank = 0; kThreadSanitizer && rank < block.lane_count; ++rank) {
        sanitizer::prepare(block.lanes[rank]);
    }
    sanitizer::release(&block);  // partner: run_lane()
}

PENSTOCK_UNINSTRUMENTED Command run_lanes(BlockState& block) {
    LaneState* lane = block.asking;
    if (lane == nullptr) {
        lane = start_next(block);
        if (lane == nullptr) {
            std::snprintf(block.stop_text, sizeof block.stop_text,
                          "no memory for the stack of a GPU thread");
            block.stop_error = ENOMEM;
            return block.command = Command::kStopped;
        }
    }
    block.asking = nullptr;
    language::current_block = &block;
    language::current_lane = lane;
    jump(block.own, *lane);
    language::current_lane = nullptr;
    language::current_block = nullptr;
    if (block.command != Command::kHelp && block.command != Command::kStart) {
        sanitizer::acquire(&block.own);  // partners: run_lane, stop_lanes
    }
    if (kThreadSanitizer && block.command == Command::kDone) {
        for (unsigned rank = block.started_count; rank-- > 0;) give_back(block, block.lanes[rank]);
    }
    return block.command;
}

PENSTOCK_UNINSTRUMENTED void abandon_lanes(BlockState& block) {
    for (unsigned rank = block.started_count; rank-- > 0;) {
        LaneState& lane = block.lanes[rank];
        if (lane.stack == nullptr) continue;
        sanitizer::acquire(&lane);  // partners: park, wait_step, ask_thread
        sanitizer::end(lane);
        sanitizer::allow(lane.stack->low, static_cast<size_t>(lane.stack->top - lane.stack->low));
        give_back(block, lane);
    }
}

}  // namespace penstock::backend::cpu
