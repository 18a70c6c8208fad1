#include "preemption/begin_launch.h"

namespace penstock::preemption {

__global__ void begin_launch(PreemptionState* state, PreemptionState initial) {
    for (uint32_t i = threadIdx.x; i < initial.saved_count; i += blockDim.x)
        initial.saved[i] = SavedBlock{};
    if (threadIdx.x == 0) *state = initial;
}

}  // namespace penstock::preemption

PENSTOCK_KERNEL(penstock::preemption::begin_launch)
