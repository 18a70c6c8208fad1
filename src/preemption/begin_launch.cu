#include "preemption/begin_launch.h"

namespace penstock::preemption {

__global__ void begin_launch(PreemptionState* state, const PreemptionState* initial) {
    SavedBlock* const saved = initial->saved;
    uint64_t* const ready = initial->ready;
    const uint32_t saved_count = initial->saved_count, ready_count = 1u << initial->ring_shift;
    for (uint32_t i = threadIdx.x; i < saved_count; i += blockDim.x) saved[i] = SavedBlock{};
    for (uint32_t i = threadIdx.x; i < ready_count; i += blockDim.x) ready[i] = 0;
    if (threadIdx.x == 0) *state = *initial;
}

}  // namespace penstock::preemption

PENSTOCK_KERNEL(penstock::preemption::begin_launch)
