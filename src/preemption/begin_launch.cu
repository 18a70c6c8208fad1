#include "preemption/begin_launch.h"

namespace penstock::preemption {

__global__ void begin_launch(PreemptionState* state, const PreemptionState* initial) {
    clear_launch(state, initial, threadIdx.x, blockDim.x);
}

}  // namespace penstock::preemption

PENSTOCK_KERNEL(penstock::preemption::begin_launch)
