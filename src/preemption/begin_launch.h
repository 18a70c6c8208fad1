// The kernel that writes the state of a preemptible launch into device memory, ahead of the launch.
#pragma once

#include "penstock/abi/preemption.h"
#include "penstock/kernel.h"

namespace penstock::preemption {

constexpr const char* kBeginLaunchKey = "penstock/penstock::preemption::begin_launch";
constexpr unsigned kBeginThreads = 32;

// Copies `*initial` to `*state`, and makes its SavedBlocks free and its ring empty. `count` threads
// share the work; the caller is number `index`.
PENSTOCK_BOTH inline void clear_launch(PreemptionState* state, const PreemptionState* initial,
                                       uint32_t index, uint32_t count) {
    SavedBlock* const saved = initial->saved;
    uint64_t* const ready = initial->ready;
    const uint32_t saved_count = initial->saved_count, ready_count = 1u << initial->ring_shift;
    for (uint32_t i = index; i < saved_count; i += count) saved[i] = SavedBlock{};
    for (uint32_t i = index; i < ready_count; i += count) ready[i] = 0;
    if (index == 0) *state = *initial;
}

// Does this on the device; `initial` lies in pinned memory. One block of kBeginThreads.
PENSTOCK_GLOBAL void begin_launch(PreemptionState* state, const PreemptionState* initial);

}  // namespace penstock::preemption
