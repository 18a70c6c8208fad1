// Runs the blocks of a preemptible kernel, one after another in one place: decides at points,
// leaves, and takes up blocks that are ready. `penstock preempt` writes the calls.
#pragma once

#include "penstock/device/preemption_points.cuh"
#include "penstock/device/preemption_queue.cuh"
#include "penstock/device/preemption_record.cuh"

namespace penstock::preemption {

#ifdef __NVCC__
using Index = uint3;
#else
using Index = language::Index3;
#endif

// Runs blocks of a preemptible kernel: the one of this place in the grid, then those that are
// ready. Each thread has one, with equal members. The generated kernel is
//   Run run(launch);
//   while (run.begin()) { body(arguments..., run); run.end(); }
class Run : public Record {
public:
    PENSTOCK_DEVICE explicit Run(const Launch& launch)
        : Record(launch.state), worker_(launch.resumes != 0) {}

    // Finds what to run. Returns false if there is nothing more. All threads of the block call.
    PENSTOCK_DEVICE bool begin() {
        if (turn_number_ == 0 && !worker_ && runs_) {
            // Each thread knows the block of its place, and need not wait for the others.
            if (rank_ == 0) (void)next();
            turn_number_ = 1;
            index_ = blockIdx;
            return true;
        }
        if (ends_alone()) return false;
        Turn turn{};
        for (;;) {
            turn = device::Block{}.once([this]() -> Turn {
                const Turn found = publish_and_next();
                set_position(found);
                return found;
            });
            deferred_ = Deferred::kNothing;
            if (turn.block != kStay) break;
            turn_number_ |= kStays;
            watch(*state_, rank_, state_->threads, device::now_ns());
        }
        ++turn_number_;
        if (turn.block == kNoBlock) return false;
        set_saved(turn.saved);
        point_ = saved_ != nullptr ? saved_->point : 0;
        passed_ = 0;
        index_ = index_of(turn.block);
        left_ = false;
        return true;
    }

    // Ends the block, unless it has left. begin(), which follows, publishes it when all threads of
    // the block have come there. All threads of the block call.
    PENSTOCK_DEVICE void end() {
        if (!left_) deferred_ = Deferred::kEnd;
    }

    // Returns the point at which the block left; 0: it runs from its start.
    PENSTOCK_DEVICE unsigned resumes_at() const { return point_; }

    // The block's own index and its grid, wherever it runs.
    PENSTOCK_DEVICE Index block_index() const { return index_; }
    PENSTOCK_DEVICE Index grid() const { return {state_->grid_x, state_->grid_y, state_->grid_z}; }

    // Returns whether the block must save its state and leave. If not, the wait is over, or gwait
    // ends it. All threads of the block call with equal arguments.
    PENSTOCK_DEVICE bool leaves(const Until& until) {
        if (until.awaited == Awaited::kCall && until.handle < 0) return false;  // it has read
        const Until* const wait = &until;
#ifndef __NVCC__
        const auto passes = [&] { return Decision(*state_, until, number(), saved_).passes(); };
        if (block_points().passes(++passed_, passes)) return false;
#endif
        SavedBlock* const to = device::Block{}.once([this, wait]() -> SavedBlock* {
            return Decision(*state_, *wait, number(), saved_).make();
        });
        if (to != nullptr) set_saved(to);
        return to != nullptr;
    }
    // Leaves at `point`, after the saves; the kernel's body returns next. begin(), which follows,
    // publishes it when all threads of the block have saved. All threads of the block call.
    PENSTOCK_DEVICE void leave(unsigned point) {
        point_ = point;
        deferred_ = Deferred::kLeave;
        left_ = true;
    }

protected:
    PENSTOCK_DEVICE bool has_left() const { return left_; }
    PENSTOCK_DEVICE bool is_worker() const { return worker_; }
    bool runs_ = true;  // as the watcher it may run blocks

private:
    static constexpr uint64_t kStay = kNoBlock - 1;  // watch, and ask again
    static constexpr unsigned kStays = 1u << 31;     // in turn_number_
    [[maybe_unused]] static constexpr unsigned kWatchPauseNs = 500;
    // A watcher runs a block itself if no worker has taken it for so long.
    static constexpr uint64_t kPatienceNs = 100'000;

    // What end() or leave() left for begin() to publish.
    enum class Deferred : uint8_t { kNothing, kEnd, kLeave };

    PENSTOCK_DEVICE Index index_of(uint64_t block) const {
        return {static_cast<unsigned>(block % state_->grid_x),
                static_cast<unsigned>(block / state_->grid_x % state_->grid_y),
                static_cast<unsigned>(block / state_->grid_x / state_->grid_y)};
    }
    // Sets what functions of the CPU backend read as blockIdx and gridDim. One thread calls.
    PENSTOCK_DEVICE void set_position([[maybe_unused]] const Turn& turn) const {
#ifndef __NVCC__
        if (turn.block >= kStay) return;
        language::current_block->block_index = index_of(turn.block);
        language::current_block->grid_dimensions = grid();
#endif
    }

    // The number of the block that runs.
    PENSTOCK_DEVICE uint64_t number() const {
        return index_.x + state_->grid_x * (index_.y + uint64_t{state_->grid_y} * index_.z);
    }
    PENSTOCK_DEVICE static uint64_t own_block() {
        return blockIdx.x + gridDim.x * (blockIdx.y + uint64_t{gridDim.y} * blockIdx.z);
    }

    // Ends a block of the grid of whose launch no block has left: it finds no other to run, so its
    // threads need not meet. Returns whether it is such a block. On the CPU backend.
    PENSTOCK_DEVICE bool ends_alone() {
#ifndef __NVCC__
        if (deferred_ != Deferred::kEnd) return false;  // OneRun has no end()
        const auto none_left = [this] {                 // else there are workers, too
            return state_->stays == 0 &&
                   device::DeviceWords::load(state_->left, site::kRelaxed) == 0;
        };
        bool last = false;
        if (!block_points().end(state_->threads, none_left, &last)) return false;
        if (!last) return true;
        finish(*state_, saved_);
        exit_place(*state_);
        return true;
#else
        return false;
#endif
    }

    // One thread calls, when all threads of the block are in begin().
    PENSTOCK_DEVICE Turn publish_and_next() {
        if (deferred_ == Deferred::kEnd) finish(*state_, saved_);
        if (deferred_ == Deferred::kLeave) preemption::leave(*state_, *saved_, point_);
        return next();
    }

    PENSTOCK_DEVICE Turn next() {
        using device::DeviceWords;
#ifndef __NVCC__
        // Thread 0 starts first. The others meet it here, or come later.
        block_points().reset(state_->forced_share != 0);
#endif
        if (turn_number_ == 0 && !worker_) {  // the block of this place
            DeviceWords::fetch_add(state_->started, 1, site::kRelaxed);
            return {own_block(), nullptr};
        }
        if (turn_number_ == 0) DeviceWords::fetch_add(state_->workers, 1, site::kRelaxed);
        if ((turn_number_ & kStays) != 0) return stay();
        const bool pops = state_->keeps_popping != 0 || (worker_ && turn_number_ == 0);
        const Turn turn = pops ? pop(*state_) : Turn{kNoBlock, nullptr};
        if (turn.block != kNoBlock || worker_) return turn;
        if (becomes_watcher(*state_)) {
            device::SystemWords::store(state_->words->watch, 1, site::kRelaxed);
            return {kStay, nullptr};
        }
        exit_place(*state_);
        return turn;
    }

    // Decides what the watcher does next.
    PENSTOCK_DEVICE Turn stay() {
        using device::DeviceWords;
        using device::SystemWords;
        PreemptionWords& words = *state_->words;
        const bool over = DeviceWords::load(state_->finished, site::kFinish) >= state_->block_count;
        if (over || host_says(*state_).abort != 0) {
            exit_place(*state_);
            return {kNoBlock, nullptr};
        }
        const uint64_t backlog = DeviceWords::load(state_->ready_tail, site::kRelaxed) -
                                 DeviceWords::load(state_->ready_head, site::kRelaxed);
        SystemWords::store(words.workers, DeviceWords::load(state_->workers, site::kRelaxed),
                           site::kRelaxed);
        SystemWords::store(words.backlog, backlog, site::kRelaxed);
        const uint64_t now = device::now_ns();
        if (backlog == 0 || backlog_since_ns_ == 0) backlog_since_ns_ = now;
        if (backlog == 0 || !runs_ || now - backlog_since_ns_ < kPatienceNs) {
            pause();
            return {kStay, nullptr};
        }
        backlog_since_ns_ = 0;
        const Turn turn = pop(*state_);
        return turn.block == kNoBlock ? Turn{kStay, nullptr} : turn;
    }

    PENSTOCK_DEVICE void pause() {
#ifdef __NVCC__
        __nanosleep(kWatchPauseNs);
#else
        const uint64_t finished = device::DeviceWords::load(state_->finished, site::kRelaxed);
        constexpr uint32_t kFewTurns = 12;  // it offers the CPU to others, and does not sleep
        language::wait_step(&state_->finished, finished, ++pauses_ % kFewTurns);
#endif
    }

    const bool worker_;
    unsigned turn_number_ = 0;
    uint32_t pauses_ = 0;
    uint64_t backlog_since_ns_ = 0;
    unsigned point_ = 0;
    bool left_ = false;
    Deferred deferred_ = Deferred::kNothing;
    uint64_t passed_ = 0;
    Index index_{};
};

// The same for a kernel some of whose threads return early: each place runs one block, and its last
// thread ends it. As the watcher such a block runs no other.
//   OneRun run(launch);
//   while (run.begin()) {
//       body(arguments..., run);
//       if (run.ends()) break;
//   }
class OneRun : public Run {
public:
    PENSTOCK_DEVICE explicit OneRun(const Launch& launch) : Run(launch) { runs_ = false; }

    PENSTOCK_DEVICE bool begin() {
        if (rank_ == 0) ended() = 0;
        return Run::begin();  // a barrier
    }
    // Ends the block, unless it has left: then begin() follows. Each thread calls when it returns.
    PENSTOCK_DEVICE bool ends() {
        if (has_left()) return false;
#ifdef __NVCC__
        __threadfence();
        const unsigned before = atomicAdd(&ended(), 1u);
#else
        const unsigned before = __atomic_fetch_add(&ended(), 1u, __ATOMIC_ACQ_REL);
#endif
        if (before + 1 < state_->threads) return true;  // the last one has what all of them wrote
        finish(*state_, saved_);
        if (!is_worker()) exit_place(*state_);
        return true;
    }

private:
    PENSTOCK_DEVICE static unsigned& ended() {
        __shared__ unsigned count;
        return count;
    }
};

}  // namespace penstock::preemption
