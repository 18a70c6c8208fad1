// Points at which a block may leave its place while it waits, and what `penstock preempt` makes of
// them.
//
// Kernels name their points in three ways. Without the tool these do nothing but wait:
//   #pragma preempt                  ahead of a statement with one gread or gwait
//   preempt_point(fs, handle);       ahead of a gwait
//   yield_until(address, value);     yield();
// All threads of the block reach a point together. The tool writes a second form of the kernel
// (docs/guide/preemption.md), which uses preemption::Run. A block that leaves saves what is live in
// a SavedBlock (abi/preemption.h) and ends. A worker takes it up when what it waited for is there.
// Source: seed 001 (GPUpIO), sections 4 and 5. Nothing here waits for a block that has left.
#pragma once

#include <type_traits>

#include "penstock/abi/preemption.h"
#include "penstock/device/file.cuh"
#include "penstock/device/preemption_queue.cuh"

namespace penstock {

// Marks a point: the block may leave until the pages of `handle` have arrived.
//   handle  of a gread_async or gwrite_async whose gwait follows
// A block calls. Does nothing in a kernel that `penstock preempt` has not seen: the gwait waits.
PENSTOCK_DEVICE inline void preempt_point(DeviceFileSystem, AsyncHandle) {}

// Lets other blocks run first. A block calls. In a kernel that `penstock preempt` has not seen, or
// if no block waits, it does nothing. Otherwise the block goes to the end of the queue.
PENSTOCK_DEVICE inline void yield() {}

// Waits until `*address == value`.
//   address  a word in device memory, aligned to 8 bytes; written with a 64-bit atomic or store
// A block calls; waits. In a kernel that `penstock preempt` has seen, the block leaves meanwhile,
// if others wait for its place. What was written before the word is visible on return. There is no
// limit: if no other block or copy stores the value, the launch does not end.
PENSTOCK_DEVICE inline void yield_until(const uint64_t* address, uint64_t value) {
    device::Block{}.once([address, value]() -> int64_t {
        for (uint32_t turn = 0;; ++turn) {
            const uint64_t seen = device::SystemWords::load(*address, site::kCompletion);
            if (seen == value) return 0;
#ifdef __NVCC__
            __nanosleep(200);
#else
            language::wait_step(address, seen, turn);
#endif
        }
    });
}

namespace preemption {

// A gread that has begun and whose bytes are not copied out yet.
struct Read {
    DeviceFileSystem fs;
    AsyncHandle handle = 0;  // negative: there is none, and `result` is the result
    int64_t result = 0;
};

#ifndef __NVCC__
// What the threads of a block on the CPU backend know together. They take turns on one CPU. The
// atomics give a thread what the one that wrote the word had seen.
class BlockPoints {
public:
    // Thread 0 calls when it begins a block, or one thread while all meet.
    void reset(bool forced) {
        __atomic_store_n(&decided_, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&forced_, forced, __ATOMIC_RELAXED);
        __atomic_store_n(&closing_, false, __ATOMIC_RELAXED);
        __atomic_store_n(&ended_, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&over_, 0, __ATOMIC_RELEASE);
    }
    // Whether blocks may leave though they need not.
    [[nodiscard]] bool forced() const { return __atomic_load_n(&forced_, __ATOMIC_RELAXED); }

    // Returns whether the block goes on at its `number`-th point without a meeting of its threads.
    // The first thread that comes there decides it with passes().
    template <class Passes>
    bool passes(uint64_t number, Passes passes) {
        if (number <= __atomic_load_n(&over_, __ATOMIC_ACQUIRE)) return true;
        if (number <= __atomic_load_n(&decided_, __ATOMIC_RELAXED)) return false;
        const bool over = passes();
        __atomic_store_n(over ? &over_ : &decided_, number, __ATOMIC_RELEASE);
        return over;
    }

    // Counts a thread that has ended. The first one decides with `closes` whether any more meet.
    // Returns whether they do not, and sets `*last` for the last one.
    template <class Closes>
    bool end(uint32_t threads, Closes closes, bool* last) {
        if (__atomic_load_n(&ended_, __ATOMIC_RELAXED) == 0)
            __atomic_store_n(&closing_, closes(), __ATOMIC_RELAXED);
        *last = __atomic_add_fetch(&ended_, 1, __ATOMIC_ACQ_REL) == threads;
        return __atomic_load_n(&closing_, __ATOMIC_RELAXED);
    }

private:
    uint64_t over_, decided_;  // points of the block, counted from Run::begin()
    uint32_t ended_;
    bool forced_, closing_;
};
inline BlockPoints& block_points() {
    __shared__ BlockPoints points;
    return points;
}

// One thread that works for its block, inside Block::once().
struct OneForBlock {
    static unsigned teams() { return 1; }
    template <class Begin, class Work, class End>
    int64_t divide(Begin begin, Work work, End end) const {
        const auto begun = begin(device::Solo{}, place(), 1u);
        const int64_t result = work(device::Solo{}, 0u, 1u, begun);
        end(begun);
        return result;
    }
    static unsigned place() { return device::Block::place(); }
    void meet() const {}
};

// The half of a gread that begin_read() does, in one meeting of the threads: a hit costs as much as
// in gread. If the block may be forced to leave, the bytes are copied when it is back.
inline Read begin_read(DeviceFileSystem fs, Descriptor file, int64_t offset, uint64_t size,
                       void* buffer) {
    struct Begun {
        AsyncHandle handle;
        int64_t result;
    };
    const Begun begun = device::Block{}.once([=]() -> Begun {
        const AsyncHandle handle = gread_async(fs, file, offset, size, buffer, OneForBlock{});
        if (handle == -device::kErrorAgain)
            return {handle, gread(fs, file, offset, size, buffer, OneForBlock{})};
        if (handle < 0) return {handle, handle};
        uint64_t checked = 0;
        if (block_points().forced() ||
            device::first_missing(*fs.state, handle, checked).word != nullptr)
            return {handle, 0};
        const int64_t result = device::wait_for_call(
            *fs.state, handle, static_cast<std::byte*>(buffer), OneForBlock{});
        return {-device::kErrorAgain, result};  // no handle is left
    });
    return {fs, begun.handle, begun.result};
}
#else
// A separate function, so that kernels need no more registers for what is rarely called.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline int64_t read_at_once(DeviceFileSystem fs, Descriptor file,
                                                              int64_t offset, uint64_t size,
                                                              void* buffer) {
    return gread(fs, file, offset, size, buffer);
}

// Begins a gread with a point. If no asynchronous call is to be had, it reads at once. A block
// calls.
PENSTOCK_DEVICE inline Read begin_read(DeviceFileSystem fs, Descriptor file, int64_t offset,
                                       uint64_t size, void* buffer) {
    Read read{fs, gread_async(fs, file, offset, size, buffer), 0};
    if (read.handle == -device::kErrorAgain) {
        read.result = read_at_once(fs, file, offset, size, buffer);
    } else if (read.handle < 0) {
        read.result = read.handle;
    }
    return read;
}
#endif

// Ends it: waits, and copies the bytes to `buffer`, the same one or, after the block came back, the
// one in its new place. A block calls. Returns what gread returns.
PENSTOCK_DEVICE inline int64_t end_read(const Read& read, void* buffer) {
    if (read.handle < 0) return read.result;
    return device::wait_for_call(*read.fs.state, read.handle, static_cast<std::byte*>(buffer),
                                 device::Block{});
}

#ifdef __NVCC__
using Index = uint3;
#else
using Index = language::Index3;
#endif

// What a block waits for at a point.
PENSTOCK_DEVICE inline Until until(DeviceFileSystem fs, AsyncHandle handle) {
    return {Awaited::kCall, fs.state, handle, nullptr, 0};
}
PENSTOCK_DEVICE inline Until until(const Read& read) { return until(read.fs, read.handle); }
PENSTOCK_DEVICE inline Until until_word(const uint64_t* address, uint64_t value) {
    return {Awaited::kWord, nullptr, 0, address, value};
}
PENSTOCK_DEVICE inline Until until_turn() { return {}; }

// Returns whether point `at` is one of [first, last].
PENSTOCK_BOTH constexpr bool within(unsigned at, unsigned first, unsigned last) {
    return at >= first && at <= last;
}

// Saves and restores variables of one block. Slots are 4-byte words of each GPU thread, in planes,
// so that a warp's accesses coalesce; or of the block.
class Record {
public:
    // Stores what was saved in `to`, which may be an array.
    template <class T>
    PENSTOCK_DEVICE void load_into(T& to, unsigned word) const {
        load_bytes<sizeof(T)>(plain(&to), thread_slot(word), state_->threads);
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
    }
    template <class T>
    PENSTOCK_DEVICE T load(unsigned word) const {
        T value;
        load_into(value, word);
        return value;
    }
    template <class T>
    PENSTOCK_DEVICE void save(unsigned word, const T& value) {
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
        save_bytes<sizeof(T)>(plain(&value), thread_slot(word), state_->threads);
    }

    // The same for values that are equal in all threads of the block.
    template <class T>
    PENSTOCK_DEVICE void load_block_into(T& to, unsigned word) const {
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
        load_bytes<sizeof(T)>(plain(&to), block_slot(word), 1);
    }
    template <class T>
    PENSTOCK_DEVICE T load_block(unsigned word) const {
        T value;
        load_block_into(value, word);
        return value;
    }
    template <class T>
    PENSTOCK_DEVICE void save_block(unsigned word, const T& value) {
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
        if (rank_ == 0) save_bytes<sizeof(T)>(plain(&value), block_slot(word), 1);
    }

    // A variable may be volatile.
    PENSTOCK_DEVICE static void* plain(volatile void* at) { return const_cast<void*>(at); }
    PENSTOCK_DEVICE static const void* plain(const volatile void* at) {
        return const_cast<const void*>(at);
    }

    // Copies shared memory; all threads of the block call. A barrier must follow a load.
    PENSTOCK_DEVICE void load_shared(volatile void* to, size_t size, size_t offset) const {
        copy(static_cast<std::byte*>(plain(to)), shared_slot(offset), size);
    }
    PENSTOCK_DEVICE void save_shared(const volatile void* from, size_t size, size_t offset) {
        copy(shared_slot(offset), static_cast<const std::byte*>(plain(from)), size);
    }
    PENSTOCK_DEVICE void load_dynamic_shared(size_t offset) const {
        PENSTOCK_DYNAMIC_SHARED(std::byte, memory);
        load_shared(memory, state_->dynamic_shared_size, offset);
    }
    PENSTOCK_DEVICE void save_dynamic_shared(size_t offset) {
        PENSTOCK_DYNAMIC_SHARED(std::byte, memory);
        save_shared(memory, state_->dynamic_shared_size, offset);
    }

protected:
    PENSTOCK_DEVICE explicit Record(PreemptionState* state) : state_(state) {
        rank_ = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }

    PreemptionState* state_;
    SavedBlock* saved_ = nullptr;
    unsigned rank_;  // of the thread in its block

private:
    PENSTOCK_DEVICE uint64_t index() const { return static_cast<uint64_t>(saved_ - state_->saved); }
    PENSTOCK_DEVICE uint32_t* thread_slot(unsigned word) const {
        const uint64_t plane = index() * state_->frame.thread_words + word;
        return reinterpret_cast<uint32_t*>(state_->thread_words) + plane * state_->threads + rank_;
    }
    PENSTOCK_DEVICE std::byte* block_record() const {
        return state_->block_words + index() * state_->block_size;
    }
    PENSTOCK_DEVICE uint32_t* block_slot(unsigned word) const {
        return reinterpret_cast<uint32_t*>(block_record()) + word;
    }
    PENSTOCK_DEVICE std::byte* shared_slot(size_t offset) const {
        return block_record() + shared_offset(state_->frame) + offset;
    }

    template <size_t kSize>
    PENSTOCK_DEVICE static void load_bytes(void* to, const uint32_t* slot, size_t step) {
        uint32_t words[(kSize + 3) / 4];
#pragma unroll
        for (size_t i = 0; i < sizeof words / 4; ++i) words[i] = slot[i * step];
        __builtin_memcpy(to, words, kSize);
    }
    template <size_t kSize>
    PENSTOCK_DEVICE static void save_bytes(const void* from, uint32_t* slot, size_t step) {
        uint32_t words[(kSize + 3) / 4] = {};
        __builtin_memcpy(words, from, kSize);
#pragma unroll
        for (size_t i = 0; i < sizeof words / 4; ++i) slot[i * step] = words[i];
    }
    PENSTOCK_DEVICE void copy(std::byte* to, const std::byte* from, size_t size) const {
#ifdef __NVCC__
        device::copy_by_lanes(rank_, state_->threads, to, from, size);
#else
        if (rank_ == 0) __builtin_memcpy(to, from, size);
#endif
    }
};

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
            turn = device::Block{}.once([this]() -> Turn { return publish_and_next(); });
            deferred_ = Deferred::kNothing;
            if (turn.block != kStay) break;
            turn_number_ |= kStays;
            watch(*state_, rank_, state_->threads, device::now_ns());
        }
        ++turn_number_;
        if (turn.block == kNoBlock) return false;
        saved_ = turn.saved;
        point_ = saved_ != nullptr ? saved_->point : 0;
        passed_ = 0;
        index_.x = static_cast<unsigned>(turn.block % state_->grid_x);
        index_.y = static_cast<unsigned>(turn.block / state_->grid_x % state_->grid_y);
        index_.z = static_cast<unsigned>(turn.block / state_->grid_x / state_->grid_y);
        left_ = false;
#ifndef __NVCC__
        language::current_block->block_index = index_;
        language::current_block->grid_dimensions = grid();
#endif
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
        if (to != nullptr) saved_ = to;
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
        if (over || SystemWords::load(words.abort, site::kRelaxed) != 0) {
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
#endif
        if (atomicAdd(&ended(), 1u) + 1 < state_->threads) return true;
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

}  // namespace preemption
}  // namespace penstock
