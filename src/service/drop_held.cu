#include "service/drop_held.h"

#include "penstock/device/page_table.cuh"

namespace penstock::service {

__global__ void drop_held(FileSystemState* state, unsigned long long* found) {
    using device::DeviceWords;
    const uint64_t calls = device::drop_held(*state, threadIdx.x, blockDim.x);
    if (calls != 0) atomicAdd(found, static_cast<unsigned long long>(calls));
    if (threadIdx.x != 0) return;
    const uint64_t views = views_held(DeviceWords::load(state->held_pins, site::kRelaxed));
    DeviceWords::store(state->held_pins, 0, site::kRelaxed);
    atomicAdd(found, static_cast<unsigned long long>(views << 32));
}

}  // namespace penstock::service

PENSTOCK_KERNEL(penstock::service::drop_held)
