// What kernels compiled by g++ ask of the CPU backend: where am I, meet the others, wait, stop.
//
// This is the only seam between kernel code and the CPU backend (src/backend/cpu implements it);
// the CUDA words of language/cuda.h and the groups of device/group.cuh are written with it. A
// *lane* is a GPU thread: a fiber on the OS thread of its block. Lanes of one block never run at
// the same time and never change threads. Knows nothing of files.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cstddef>
#include <cstdint>

namespace penstock::language {

struct Index3 {
    unsigned x = 0, y = 0, z = 0;
};

// What a lane may know of itself without a call. Written by the backend before the lane first runs.
struct Lane {
    Index3 thread_index;
    unsigned rank = 0;        // x + y*block.x + z*block.x*block.y
    unsigned lane_index = 0;  // rank % 32
    unsigned warp_index = 0;  // rank / 32
    unsigned try_count = 0;   // what the lane itself counts, in atomics.h
};

// What all lanes of a block share. Written by the backend before the first lane runs.
struct Block {
    Index3 block_index, block_dimensions, grid_dimensions;
    unsigned lane_count = 0;
    unsigned permit = 0;  // 0 <= permit < permits: no two resident blocks have the same
    void* dynamic_shared = nullptr;
    size_t dynamic_shared_size = 0;
    // Result of the block's last collective: written by the rendezvous body, copied by every lane
    // before it arrives anywhere else (so the next collective cannot overwrite it too early).
    alignas(16) unsigned char result[64] = {};
};

// The running lane and its block; null outside a kernel.
extern constinit thread_local Lane* current_lane __attribute__((tls_model("initial-exec")));
extern constinit thread_local Block* current_block __attribute__((tls_model("initial-exec")));

using Body = void (*)(void* argument);

// Meets all lanes of the block that have not exited. The last to arrive runs `body(argument)` with
// its own argument (body may be null) while the others are parked; then all go on. `site` names the
// barrier for the watchdog and must be a string literal. A lane that waits at a different site, or
// at a warp rendezvous that can never fill, is a mismatch: the block is stopped and the launch
// fails with a message naming both sites. Lanes see what any lane wrote before the rendezvous, or
// before it exited (and the sanitizers are told so).
void block_rendezvous(Body body, void* argument, const char* site);
// The same in two halves, where only the lane that runs the body should pay for it. True: this is
// the last to arrive, the others are parked, and it owes a block_release. False: that has been
// called. No lane may meet others in between.
bool block_gather(const char* site);
void block_release();

// The same among the lanes of this lane's warp named in `mask` (bit = lane index; must contain the
// caller; lanes that have exited do not count). Here sites may differ but for their last word, the
// kind: CUDA lets a warp meet from different lines. "file:line: kind" is what language/cuda.h uses.
void warp_rendezvous(uint32_t mask, Body body, void* argument, const char* site);

// The value each lane of the block passed last to deposit(); for rendezvous bodies that combine
// values. A body reads inputs with value_of(rank) and leaves each lane's answer with answer(rank,
// value).
void deposit(uint64_t value);
uint64_t value_of(unsigned rank);
void answer(unsigned rank, uint64_t value);
uint64_t take_answer();
// Whether the lane of that rank exists and has not exited.
bool present(unsigned rank);
// The mask of lanes of the caller's warp that exist and have not exited.
uint32_t warp_present_mask();

// One step of a wait: `turn` counts the steps of this wait from 0. `address` is the 64-bit word
// that will change, `seen` the value it had. May run other lanes of the block, may help (serve
// storage requests on the thread's own stack), may sleep until the word changes or a few
// milliseconds are over. Returns always; the caller looks at its words again.
void wait_step(const uint64_t* address, uint64_t seen, uint32_t turn);

// Where blocks help: starts, on the thread's own stack, what was asked for and goes on by itself.
// Waits for nothing.
void start_requests();

// Tells whoever sleeps on `address` that it has changed. Cheap when nobody sleeps.
void notify(const uint64_t* address);

// Wakes one host thread that sleeps on the counter at `address`. Cheap when nobody sleeps.
void ring(const uint64_t* address);

// Nanoseconds on a monotonic clock.
uint64_t clock_ns();

// Ends the block and fails its launch: "kernel K, block (x,y,z): text". Does not return.
[[noreturn]] void stop_block(const char* text);

}  // namespace penstock::language

#endif  // __NVCC__
