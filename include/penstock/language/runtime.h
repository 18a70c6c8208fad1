// What kernels compiled by g++ call in the CPU backend: position, rendezvous, waits, and stops.
//
// This is the only interface between kernel code and the CPU backend (src/backend/cpu implements
// it). The CUDA words of language/cuda.h and the groups of device/group.cuh are written with it. A
// *lane* is a GPU thread: a fiber on the OS thread of its block. Lanes of one block never run at
// the same time and never change threads. This header knows nothing of files.
#pragma once

#ifndef __NVCC__  // nvcc has the language itself

#include <cstddef>
#include <cstdint>

namespace penstock::language {

struct Index3 {
    unsigned x = 0, y = 0, z = 0;
};

// What a lane can read about itself without a call. The backend writes it before the lane first
// runs.
struct Lane {
    Index3 thread_index;
    unsigned rank = 0;        // x + y*block.x + z*block.x*block.y
    unsigned lane_index = 0;  // rank % 32
    unsigned warp_index = 0;  // rank / 32
    unsigned try_count = 0;   // counted by the lane itself, in atomics.h
};

// What all lanes of a block share. The backend writes it before the first lane runs.
struct Block {
    Index3 block_index, block_dimensions, grid_dimensions;
    unsigned lane_count = 0;
    unsigned permit = 0;  // 0 <= permit < permits; no two resident blocks have the same
    void* dynamic_shared = nullptr;
    size_t dynamic_shared_size = 0;
    // Result of the block's last collective. The rendezvous body writes it. Every lane copies it
    // before it arrives anywhere else, so the next collective cannot overwrite it too early.
    alignas(16) unsigned char result[64] = {};
};

// The running lane and its block; null outside a kernel.
extern constinit thread_local Lane* current_lane __attribute__((tls_model("initial-exec")));
extern constinit thread_local Block* current_block __attribute__((tls_model("initial-exec")));

using Body = void (*)(void* argument);

// Meets all lanes of the block that have not exited. The last lane to arrive runs `body(argument)`
// with its own argument (body may be null) while the others are parked; then all go on. `site`
// names the barrier for the watchdog and must be a string literal. A lane that waits at a different
// site, or at a warp rendezvous that can never fill, is a mismatch: the block is stopped and the
// launch fails with a message that names both sites. Lanes see what any lane wrote before the
// rendezvous, or before it exited (and the sanitizers are told so).
void block_rendezvous(Body body, void* argument, const char* site);
// Does the same in two halves, so that only the lane that runs the body pays for it. Returns true
// in the last lane to arrive: the others are parked, and it must call block_release. Returns false
// in the others after that call. No lane may meet others between the two.
bool block_gather(const char* site);
void block_release();

// Does the same among the lanes of this lane's warp in `mask` (bit = lane index; must contain the
// caller; exited lanes do not count). Here sites may differ except in their last word, the kind:
// CUDA lets a warp meet from different lines. language/cuda.h uses "file:line: kind".
void warp_rendezvous(uint32_t mask, Body body, void* argument, const char* site);

// Stores the value of this lane, for rendezvous bodies that combine the values of all lanes. A body
// reads inputs with value_of(rank) and stores each lane's result with answer(rank, value).
void deposit(uint64_t value);
uint64_t value_of(unsigned rank);
void answer(unsigned rank, uint64_t value);
uint64_t take_answer();
// Returns whether the lane of that rank exists and has not exited.
bool present(unsigned rank);
// Returns the mask of lanes of the caller's warp that exist and have not exited.
uint32_t warp_present_mask();

// Does one step of a wait. `turn` counts the steps of this wait from 0. `address` is the 64-bit
// word that will change; `seen` is the value it had. It may run other lanes of the block, serve
// storage requests on the thread's own stack, or sleep until the word changes or a few milliseconds
// are over. It always returns, and the caller looks at its words again.
void wait_step(const uint64_t* address, uint64_t seen, uint32_t turn);

// Starts requested reads where blocks help, on the thread's own stack; they proceed by themselves.
// Never waits.
void start_requests();

// Wakes threads that sleep on `address`, which has changed. Costs little when none sleeps.
void notify(const uint64_t* address);

// Wakes one host thread that sleeps on the counter at `address`. Costs little when none sleeps.
void ring(const uint64_t* address);

// Returns nanoseconds on a monotonic clock.
uint64_t clock_ns();

// Ends the block and fails its launch: "kernel K, block (x,y,z): text". Does not return.
[[noreturn]] void stop_block(const char* text);

}  // namespace penstock::language

#endif  // __NVCC__
