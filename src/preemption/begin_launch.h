// The kernel that writes the state of a preemptible launch into device memory, ahead of the launch.
#pragma once

#include "penstock/abi/preemption.h"
#include "penstock/kernel.h"

namespace penstock::preemption {

constexpr const char* kBeginLaunchKey = "penstock/penstock::preemption::begin_launch";
constexpr unsigned kBeginThreads = 32;

// Copies `*initial`, pinned memory, to `*state`, makes its SavedBlocks free and its ring empty. One
// block of kBeginThreads.
PENSTOCK_GLOBAL void begin_launch(PreemptionState* state, const PreemptionState* initial);

}  // namespace penstock::preemption
