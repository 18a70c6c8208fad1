// The state of a launch whose blocks leave their place while they wait, and come back.
//
// One PreemptionState lies in device memory for each such launch, with its SavedBlocks, their
// memory and a ring of those that are ready. Blocks write it (device/preemption.cuh). The watcher,
// one for each launch, finds out which blocks may come back. On the CPU backend it is the
// dispatcher's thread. On a GPU it is the first block of the grid that leaves: it keeps its place
// until the launch is over, so that its stream waits for all blocks. PreemptionWords lies in mapped
// host memory.
//
//   kFree --keep [block]--> kInside --leave [block]--> kOutside --ready [watcher]--> kReady
//   kReady --pop [worker]--> kInside --end [block]--> kFree
//
// Invariants: 1. A block has at most one SavedBlock, from its first leave to its end. 2. Only the
// watcher puts entries into the ring, and an entry is in it at most once: the ring is never full.
// 3. `finished` reaches block_count exactly once, and only then `done` is stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/async_call.h"
#include "penstock/abi/limits.h"
#include "penstock/abi/qualifiers.h"

namespace penstock {

struct FileSystemState;

// Bytes that a preemptible kernel saves at its points: what `penstock preempt` computes. A slot of
// each variable lies at the same place for all instantiations of a kernel.
struct PreemptionFrame {
    uint32_t thread_words = 0;    // 4-byte words of each GPU thread
    uint32_t block_words = 0;     // 4-byte words of the block
    uint32_t shared_size = 0;     // bytes of shared memory, a multiple of 16
    uint32_t dynamic_shared = 0;  // 1: the block's dynamic shared memory is saved too
    uint32_t point_count = 0;
};

// What a block outside waits for.
enum class Awaited : uint32_t {
    kTurn,  // nothing: it has only let others run
    kCall,  // the pages of an asynchronous call
    kWord,  // a word with a value
};

enum class SavedState : uint64_t { kFree, kInside, kOutside, kReady };

// A block that has left at least once, in device memory. The block writes all fields but `ready_ns`
// while it is inside; the watcher reads them and writes `ready_ns`. `state` has device scope.
struct alignas(64) SavedBlock {
    uint64_t state;  // SavedState
    uint64_t block;  // its index in the grid, x first
    uint32_t point;  // at which it left, from 1
    Awaited awaited;
    FileSystemState* system;  // kCall
    AsyncHandle handle;       // kCall
    const uint64_t* address;  // kWord
    uint64_t value;           // kWord
    uint64_t begun_ns;        // when it began to wait
    uint64_t ready_ns;        // when the watcher found it ready
    uint64_t checked;         // kCall: pages that were found to have arrived
};

// Words of one launch in mapped host memory, each with one writer.
struct alignas(64) PreemptionWords {
    uint64_t done;      // 1: the last block has ended. The block writes it; on the CPU backend the
                        // stream waits for it. After a failure of the launch the host writes it
    uint64_t watch;     // counts requests for a watcher; the block that makes `watched` 1 writes it
    uint64_t passed;    // 1: no block of the grid uses the state any more; the last one writes it
    uint64_t released;  // 1: the stream has gone on, on the CPU backend; the stream writes it
    uint64_t backlog;   // blocks that are ready, and workers that have begun: the watcher of a GPU
    uint64_t workers;   // writes them
    uint64_t others_waiting;  // blocks of other launches that wait for a place; the host writes it
    uint64_t abort;           // 0, or the errno for which waits for words end; the host writes it
    // The final counters of PreemptionState; the last block writes them.
    uint64_t left, spun, full, resume_ns, resume_ns_max;
};

// How a block decides at a point.
enum class PreemptionPolicy : uint32_t {
    kAdaptive,  // leaves if others wait for its place, and the wait is longer than a switch
    kNever,     // spins
    kAlways,    // leaves whenever it would wait: the policy of seed 001
};

struct alignas(64) PreemptionState {
    // Constant during the launch.
    uint64_t block_count;
    uint32_t grid_x, grid_y, grid_z;
    uint32_t threads;  // of a block
    PreemptionFrame frame;
    uint32_t dynamic_shared_size;  // bytes of it that are saved
    uint32_t saved_count;          // entries of `saved`
    uint32_t ring_shift;           // entries of `ready` = 1 << ring_shift
    uint32_t keeps_popping;        // 0: a worker resumes one block and ends
    uint32_t stays;                // 1: the watcher is a block of the grid
    PreemptionPolicy policy;
    uint32_t forced_share;  // of 65,536 points passed: blocks leave though they need not (tests)
    uint64_t forced_seed;
    uint64_t switch_ns;       // cost of leaving and coming back
    SavedBlock* saved;        // device memory
    std::byte* thread_words;  // saved_count records of thread_words planes of `threads` words
    std::byte* block_words;   // saved_count records of words, then shared memory
    uint64_t block_size;      // bytes of a record of block_words, a multiple of 64
    uint64_t* ready;          // SavedBlocks that are ready: make_ready_word(); device memory
    PreemptionWords* words;   // mapped
    uint64_t* bell;           // rung when the host must look, host memory; CPU backend
    const uint64_t* waiting;  // blocks of the device that wait for a place, host memory; null: see
                              // PreemptionWords::others_waiting
    // Written by blocks, on lines of their own.
    alignas(64) uint64_t started;  // blocks of the grid that have begun
    uint64_t finished;             // and that have ended
    uint64_t exited;               // places of the grid that use the state no more
    // On a GPU: when a thread last read the host's words, and what it read (host_says()).
    uint64_t glanced_ns, others_seen, abort_seen;
    alignas(64) uint64_t saved_free;
    uint64_t saved_hand;
    uint64_t outside;  // blocks in kOutside
    uint64_t watched;  // 1: there is a watcher, or it was asked for
    uint64_t workers;  // of all launches of workers, those that have begun
    alignas(64) uint64_t ready_head;
    alignas(64) uint64_t ready_tail;  // entries that were reserved; the watcher writes it
    // Counters, and the mean of waits, a power-weighted one.
    alignas(64) uint64_t points;  // points passed, counted for forced_share
    uint64_t left;                // how often blocks left
    uint64_t spun;                // how often a block waited inside
    uint64_t full;                // how often there was no room to save a block
    uint64_t resume_ns;           // sum over resumed blocks, from ready to running
    uint64_t resume_ns_max;
    uint64_t wait_ns;  // mean time of a wait; 0: none has ended yet
};

// Returns where shared memory begins in a block's record.
PENSTOCK_BOTH constexpr size_t shared_offset(const PreemptionFrame& frame) {
    return (size_t{frame.block_words} * 4 + 15) & ~size_t{15};
}

namespace preemption {

// The last parameter of a preemptible kernel. The library makes it.
struct Launch {
    PreemptionState* state = nullptr;
    uint32_t resumes = 0;  // 1: blocks of this grid take up those that are ready
};

}  // namespace preemption

namespace limits {
// Blocks of one launch that may be outside at once. Further blocks spin.
constexpr uint32_t kSavedBlocksMax = 4096;
}  // namespace limits

}  // namespace penstock
