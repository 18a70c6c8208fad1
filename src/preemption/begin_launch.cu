#include "preemption/begin_launch.h"

namespace penstock::preemption {

__global__ void begin_launch(PreemptionState* state, PreemptionState initial) {
    for (uint32_t i = threadIdx.x; i < initial.saved_count; i += blockDim.x)
        initial.saved[i] = SavedBlock{};
    for (uint32_t i = threadIdx.x; i < 1u << initial.ring_shift; i += blockDim.x)
        initial.ready[i] = 0;
    if (threadIdx.x == 0) *state = initial;
}

}  // namespace penstock::preemption

PENSTOCK_KERNEL(penstock::preemption::begin_launch)
