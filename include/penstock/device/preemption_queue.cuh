// The queue of saved blocks of one launch: which blocks leave, which may come back, which is next.
//
// abi/preemption.h has the states and the invariants. Blocks decide at a point (Decision), keep a
// SavedBlock and leave; the watcher finds those that are ready (watch); workers pop them. No thread
// here waits for a block that has left.
#pragma once

#include "penstock/abi/preemption.h"
#include "penstock/device/async_call.cuh"
#include "penstock/device/atomic.cuh"
#include "penstock/device/wait.cuh"

namespace penstock::preemption {

// What a block waits for at a point.
struct Until {
    Awaited awaited = Awaited::kTurn;
    FileSystemState* system = nullptr;
    AsyncHandle handle = 0;
    const uint64_t* address = nullptr;
    uint64_t value = 0;
};
// The word on whose change a wait depends, and its value then; null: the wait is over.
struct Change {
    const uint64_t* word;
    uint64_t seen;
};

// Looks once whether a wait is over. `checked` counts the pages that have arrived, and is 0 at
// first. One GPU thread calls, or the host where it can address device memory.
PENSTOCK_BOTH inline Change look(const Until& until, uint64_t& checked) {
    if (until.awaited == Awaited::kWord) {
        const uint64_t seen = device::SystemWords::load(*until.address, site::kCompletion);
        return {seen == until.value ? nullptr : until.address, seen};
    }
    if (until.awaited == Awaited::kTurn || until.handle < 0) return {nullptr, 0};
    const device::Missing missing = device::first_missing(*until.system, until.handle, checked);
    return {missing.word, missing.seen};
}

// Makes the host look at the launch. On a GPU it polls.
PENSTOCK_DEVICE inline void ring_bell([[maybe_unused]] uint64_t* bell) {
#ifndef __NVCC__
    device::DeviceWords::fetch_add(*bell, 1, site::kRelaxed);
    language::ring(bell);
#endif
}

// Asks for a watcher, if there is none. One GPU thread calls, after it has counted its block in
// `outside`.
PENSTOCK_DEVICE inline void ask_for_watcher(PreemptionState& state) {
    using device::DeviceWords;
    using device::SystemWords;
    if (state.stays != 0) return;  // it becomes the watcher itself: becomes_watcher()
    // Both sides use read-modify-writes: if this one finds a watcher, that watcher's end_watch()
    // comes later and sees the block.
    if (DeviceWords::fetch_or(state.watched, 1, site::kWatch) != 0) return;
    const uint64_t calls = SystemWords::load(state.words->watch, site::kRelaxed);
    SystemWords::store(state.words->watch, calls + 1, site::kWatch);
    ring_bell(state.bell);
}

// A word of the ring: place in the ring, of all laps, 48 | index of the SavedBlock 16.
PENSTOCK_BOTH constexpr uint64_t make_ready_word(uint64_t place, uint32_t index) {
    return (place + 1) << 16 | index;
}
PENSTOCK_BOTH constexpr bool is_ready_word(uint64_t word, uint64_t place) {
    return word >> 16 == ((place + 1) & ((1ull << 48) - 1));
}
static_assert(limits::kSavedBlocksMax <= 1u << 16);
PENSTOCK_BOTH inline uint64_t& ready_slot(const PreemptionState& state, uint64_t place) {
    return state.ready[place & ((1ull << state.ring_shift) - 1)];
}

// Puts a block that may come back into the ring. The watcher's threads call.
PENSTOCK_BOTH inline void put_ready(PreemptionState& state, uint32_t index, uint64_t now_ns) {
    using device::DeviceWords;
    SavedBlock& saved = state.saved[index];
    saved.ready_ns = now_ns;
    DeviceWords::store(saved.state, static_cast<uint64_t>(SavedState::kReady), site::kRelaxed);
    const uint64_t place = DeviceWords::fetch_add(state.ready_tail, 1, site::kRelaxed);
    DeviceWords::store(ready_slot(state, place), make_ready_word(place, index), site::kReady);
    DeviceWords::fetch_sub(state.outside, 1, site::kRelaxed);
}

// One turn of the watcher: puts the blocks that may come back into the ring. A thread of the
// watcher looks at every `step`-th SavedBlock from `first` on. Returns how many it put there, how
// many of its blocks still wait, and how many of these for words: their change rings no bell.
struct Watched {
    uint64_t ready, outside, unannounced;
};
PENSTOCK_BOTH inline Watched watch(PreemptionState& state, uint32_t first, uint32_t step,
                                   uint64_t now_ns) {
    using device::DeviceWords;
    Watched result{0, 0, 0};
    const uint64_t outside = DeviceWords::load(state.outside, site::kRelaxed);
    for (uint32_t i = first; i < state.saved_count; i += step) {
        if (result.ready + result.outside >= outside) break;
        SavedBlock& saved = state.saved[i];
        const auto is_outside = static_cast<uint64_t>(SavedState::kOutside);
        if (DeviceWords::load(saved.state, site::kSeeLeft) != is_outside) continue;
        const Until until{saved.awaited, saved.system, saved.handle, saved.address, saved.value};
        if (look(until, saved.checked).word != nullptr) {
            ++result.outside;
            if (until.awaited == Awaited::kWord) ++result.unannounced;
        } else {
            put_ready(state, i, now_ns);
            ++result.ready;
        }
    }
    return result;
}

// Ends the watch, unless blocks have left meanwhile. Returns whether this watcher has ended.
PENSTOCK_BOTH inline bool end_watch(PreemptionState& state) {
    using device::DeviceWords;
    DeviceWords::fetch_and(state.watched, 0, site::kWatch);
    if (DeviceWords::fetch_add(state.outside, 0, site::kWatch) == 0) return true;
    // A block that left since may have asked for a watcher: then that one goes on.
    return DeviceWords::fetch_or(state.watched, 1, site::kWatch) != 0;
}

// What a block is told to run.
struct Turn {
    uint64_t block;     // kNoBlock: nothing more
    SavedBlock* saved;  // null: from the start
};
constexpr uint64_t kNoBlock = ~0ull;

// Counts a wait that took `ns` into the mean.
PENSTOCK_DEVICE inline void count_wait(PreemptionState& state, uint64_t ns) {
    using device::DeviceWords;
    const uint64_t mean = DeviceWords::load(state.wait_ns, site::kRelaxed);
    const uint64_t next = mean == 0 ? ns : mean - mean / 8 + ns / 8;
    DeviceWords::store(state.wait_ns, next > 0 ? next : 1, site::kRelaxed);
}

// Takes the block that has been ready for longest. One GPU thread calls.
PENSTOCK_DEVICE inline Turn pop(PreemptionState& state) {
    using device::DeviceWords;
    uint64_t head = DeviceWords::load(state.ready_head, site::kRelaxed);
    for (;;) {
        if (head == DeviceWords::load(state.ready_tail, site::kRelaxed)) return {kNoBlock, nullptr};
        const uint64_t word = DeviceWords::load(ready_slot(state, head), site::kResume);
        // The watcher has reserved the slot, and stores it next: the host will see the backlog. Or
        // the head has moved.
        if (!is_ready_word(word, head)) {
            const uint64_t now = DeviceWords::load(state.ready_head, site::kRelaxed);
            if (now == head) return {kNoBlock, nullptr};
            head = now;
            continue;
        }
        if (DeviceWords::compare_exchange(state.ready_head, head, head + 1, site::kRelaxed)) {
            SavedBlock& saved = state.saved[word & 0xffff];
            DeviceWords::store(saved.state, static_cast<uint64_t>(SavedState::kInside),
                               site::kRelaxed);
            const uint64_t waited = device::now_ns() - saved.ready_ns;
            DeviceWords::fetch_add(state.resume_ns, waited, site::kRelaxed);
            if (waited > DeviceWords::load(state.resume_ns_max, site::kRelaxed))
                DeviceWords::store(state.resume_ns_max, waited, site::kRelaxed);
            if (saved.awaited != Awaited::kTurn && saved.ready_ns > saved.begun_ns)
                count_wait(state, saved.ready_ns - saved.begun_ns);
            if (saved.awaited == Awaited::kCall)
                DeviceWords::fetch_sub(saved.system->calls_outside, 1, site::kRelaxed);
            return {saved.block, &saved};
        }
    }
}

// Takes a free SavedBlock for a block. Null: all are in use. One GPU thread calls.
PENSTOCK_DEVICE inline SavedBlock* keep(PreemptionState& state, uint64_t block) {
    using device::DeviceWords;
    uint64_t free = DeviceWords::load(state.saved_free, site::kRelaxed);
    do {
        if (free == 0) {
            DeviceWords::fetch_add(state.full, 1, site::kRelaxed);
            return nullptr;
        }
    } while (!DeviceWords::compare_exchange(state.saved_free, free, free - 1, site::kRelaxed));
    for (;;) {  // one is free, or is being taken by a thread that counted before
        const uint64_t hand = DeviceWords::fetch_add(state.saved_hand, 1, site::kRelaxed);
        SavedBlock& saved = state.saved[hand % state.saved_count];
        uint64_t is_free = static_cast<uint64_t>(SavedState::kFree);
        constexpr auto kInside = static_cast<uint64_t>(SavedState::kInside);
        if (DeviceWords::compare_exchange(saved.state, is_free, kInside, site::kLockPort)) {
            saved.block = block;
            return &saved;
        }
    }
}

// What the host tells a launch: whether kernels of other streams wait, and whether to end.
struct HostSays {
    uint64_t others, abort;
};
// Returns what the host tells now, on a GPU up to a period late.
PENSTOCK_DEVICE inline HostSays host_says(PreemptionState& state) {
    using device::DeviceWords;
    using device::SystemWords;
    const PreemptionWords& words = *state.words;
#ifdef __NVCC__
    constexpr uint64_t kPeriodNs = 50'000;
    if (device::takes_glance(state.glanced_ns, device::now_ns(), kPeriodNs)) {
        DeviceWords::store(state.others_seen,
                           SystemWords::load(words.others_waiting, site::kRelaxed), site::kRelaxed);
        DeviceWords::store(state.abort_seen, SystemWords::load(words.abort, site::kRelaxed),
                           site::kRelaxed);
    }
    return {DeviceWords::load(state.others_seen, site::kRelaxed),
            DeviceWords::load(state.abort_seen, site::kRelaxed)};
#else
    return {SystemWords::load(words.others_waiting, site::kRelaxed),
            SystemWords::load(words.abort, site::kRelaxed)};
#endif
}

// Returns whether other blocks wait for a place on the device.
PENSTOCK_DEVICE inline bool others_wait(PreemptionState& state) {
    using device::SystemWords;
    if (state.waiting != nullptr) return SystemWords::load(*state.waiting, site::kRelaxed) != 0;
    using device::DeviceWords;
    if (DeviceWords::load(state.started, site::kRelaxed) < state.block_count) return true;
    // Blocks that are ready want a place, too.
    if (DeviceWords::load(state.ready_tail, site::kRelaxed) !=
        DeviceWords::load(state.ready_head, site::kRelaxed))
        return true;
    return host_says(state).others != 0;
}

// Decides at a point. Returns the SavedBlock if the block must leave; null when the wait is over,
// or ends without leaving. One GPU thread calls, for its block.
class Decision {
public:
    PENSTOCK_DEVICE Decision(PreemptionState& state, const Until& until, uint64_t block,
                             SavedBlock* saved)
        : state_(state), until_(until), block_(block), saved_(saved) {}

    // Returns whether the block need not leave, as far as one look tells: then make() would return
    // null without a wait. False: make() decides.
    PENSTOCK_DEVICE bool passes() {
        if (state_.forced_share != 0 || until_.awaited == Awaited::kWord) return false;
        if (until_.awaited == Awaited::kTurn) return !takes_turn();
        return look(until_, checked_).word == nullptr;
    }

    PENSTOCK_DEVICE SavedBlock* make() {
        if (forced()) return leave();
        begun_ns_ = device::now_ns();
        for (uint32_t turn = 0;; ++turn) {
            const Change change = look(until_, checked_);
            if (until_.awaited == Awaited::kTurn) return takes_turn() ? leave() : nullptr;
            const uint64_t waited = turn == 0 ? 0 : device::now_ns() - begun_ns_;
            if (change.word == nullptr) {
                if (turn > 0) {
                    device::DeviceWords::fetch_add(state_.spun, 1, site::kRelaxed);
                    count_wait(state_, waited);
                }
                return nullptr;
            }
            const bool others = others_wait(state_);
            if (wants_to_leave(others, waited)) {
                if (SavedBlock* saved = leave(); saved != nullptr) return saved;
                // No room: a gwait waits by itself, and counts as any other wait.
                if (until_.awaited == Awaited::kCall) return nullptr;
            }
            if (!wait(change, turn, others)) return nullptr;
        }
    }

private:
    // Returns whether a block that yields lets others run.
    PENSTOCK_DEVICE bool takes_turn() const {
        return state_.policy != PreemptionPolicy::kNever && others_wait(state_);
    }
    PENSTOCK_DEVICE bool forced() const {
        if (state_.forced_share == 0) return false;
        if (until_.awaited == Awaited::kCall && until_.handle < 0) return false;  // it has read
        // A hash of seed, block and the number of points that were passed.
        uint64_t x = state_.forced_seed ^ (block_ * 0x9e3779b97f4a7c15ull) ^
                     device::DeviceWords::fetch_add(state_.points, 1, site::kRelaxed);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return ((x ^ (x >> 31)) & 0xffff) < state_.forced_share;
    }

    // A wait that is expected to be longer than two switches is not spun for. One that is shorter
    // is spun for so long, in case the expectation is wrong.
    PENSTOCK_DEVICE bool wants_to_leave(bool others, uint64_t waited_ns) const {
        if (state_.policy == PreemptionPolicy::kAlways) return true;
        if (state_.policy == PreemptionPolicy::kNever || !others) return false;
        const uint64_t expected = device::DeviceWords::load(state_.wait_ns, site::kRelaxed);
        if (expected > 2 * state_.switch_ns) return true;
        return waited_ns > (expected == 0 ? 1 : 2) * state_.switch_ns;
    }

    PENSTOCK_DEVICE SavedBlock* leave() {
        SavedBlock* saved = saved_ != nullptr ? saved_ : keep(state_, block_);
        if (saved == nullptr) return nullptr;
        saved->awaited = until_.awaited;
        saved->system = until_.system;
        saved->handle = until_.handle;
        saved->address = until_.address;
        saved->value = until_.value;
        saved->checked = checked_;
        saved->begun_ns = begun_ns_ != 0 ? begun_ns_ : device::now_ns();
        return saved;
    }

    // Waits a step; while others want the place it does not sleep. Returns false when the wait must
    // end: what follows finds out why.
    PENSTOCK_DEVICE bool wait(const Change& change, uint32_t turn, [[maybe_unused]] bool others) {
        if (host_says(state_).abort != 0) return false;
        if (until_.awaited == Awaited::kCall && device::is_aborted(*until_.system)) return false;
#ifdef __NVCC__
        __nanosleep(turn < 16 ? 100 : 1000);
#else
        constexpr uint32_t kFewTurns = 12;  // then wait_step() sleeps
        language::wait_step(change.word, change.seen, others ? turn % kFewTurns : turn);
#endif
        return true;
    }

    PreemptionState& state_;
    const Until& until_;
    const uint64_t block_;
    SavedBlock* const saved_;
    uint64_t begun_ns_ = 0, checked_ = 0;
};

// Publishes that a block has left at `point`. One GPU thread calls, when all threads of the block
// have saved what is theirs.
PENSTOCK_DEVICE inline void leave(PreemptionState& state, SavedBlock& saved, uint32_t point) {
    using device::DeviceWords;
    saved.point = point;
    FileSystemState* const system = saved.awaited == Awaited::kCall ? saved.system : nullptr;
    if (system != nullptr) DeviceWords::fetch_add(system->calls_outside, 1, site::kRelaxed);
    DeviceWords::fetch_add(state.left, 1, site::kRelaxed);
    DeviceWords::store(saved.state, static_cast<uint64_t>(SavedState::kOutside), site::kLeave);
    DeviceWords::fetch_add(state.outside, 1, site::kWatch);
    ask_for_watcher(state);
#ifndef __NVCC__
    // Where waiting blocks serve requests, the host serves those of a block that leaves.
    if (system != nullptr && system->rings[0].bells == 0) ring_bell(state.bell);
#endif
}

// Returns whether the calling block is the one that stays, if any block has left. One GPU thread of
// a block of the grid calls. The block that leaves first finds no other.
PENSTOCK_DEVICE inline bool becomes_watcher(PreemptionState& state) {
    using device::DeviceWords;
    return state.stays != 0 && DeviceWords::load(state.left, site::kRelaxed) != 0 &&
           DeviceWords::fetch_or(state.watched, 1, site::kWatch) == 0;
}

// Counts a place of the grid whose block uses the state no more. One GPU thread calls, last of all.
PENSTOCK_DEVICE inline void exit_place(PreemptionState& state) {
    PreemptionWords& words = *state.words;
    uint64_t* const bell = state.bell;
    if (device::DeviceWords::fetch_add(state.exited, 1, site::kFinish) + 1 < state.block_count)
        return;
    device::SystemWords::store(words.passed, 1, site::kComplete);
    ring_bell(bell);
}

// Counts a block that has ended. The last one completes the launch. One GPU thread calls.
PENSTOCK_DEVICE inline void finish(PreemptionState& state, SavedBlock* saved) {
    using device::DeviceWords;
    if (saved != nullptr) {
        DeviceWords::store(saved->state, static_cast<uint64_t>(SavedState::kFree),
                           site::kUnlockPort);
        DeviceWords::fetch_add(state.saved_free, 1, site::kRelaxed);
    }
    // What every block wrote is visible with the word. The state lives on: this place has not
    // exited, or the host knows of its worker.
    if (DeviceWords::fetch_add(state.finished, 1, site::kFinish) + 1 < state.block_count) return;
    PreemptionWords& words = *state.words;
    words.left = DeviceWords::load(state.left, site::kRelaxed);
    words.spun = DeviceWords::load(state.spun, site::kRelaxed);
    words.full = DeviceWords::load(state.full, site::kRelaxed);
    words.resume_ns = DeviceWords::load(state.resume_ns, site::kRelaxed);
    words.resume_ns_max = DeviceWords::load(state.resume_ns_max, site::kRelaxed);
    device::SystemWords::store(words.done, 1, site::kComplete);
}

}  // namespace penstock::preemption
