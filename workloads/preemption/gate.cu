#include "preemption/gate.h"

#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

namespace penstock::workloads {
namespace {

constexpr unsigned kBusyThreads = 256;

__global__ void wait_at_gate(const uint64_t* gate, uint64_t value, unsigned long long* passed) {
    penstock::yield_until(gate, value);
    if (threadIdx.x == 0) atomicAdd(passed, 1ull);
}

__global__ void open(uint64_t* gate, uint64_t value) {
    if (threadIdx.x == 0) device::SystemWords::store(*gate, value, site::kComplete);
}

__global__ void compute(unsigned rounds, float* out) {
    float sum = static_cast<float>(threadIdx.x);
    for (unsigned i = 0; i < rounds; ++i) sum = sum * 0.999f + 1.0f;
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

PENSTOCK_KERNEL(wait_at_gate)
PENSTOCK_KERNEL(open)
PENSTOCK_KERNEL(compute)

#ifndef __NVCC__
Status launch_waiters(Stream& stream, unsigned blocks, unsigned threads, const uint64_t* gate,
                      uint64_t value, unsigned long long* passed) {
    return launch(stream, {{blocks}, {threads}}, wait_at_gate, gate, value, passed);
}

Status open_gate(Stream& stream, uint64_t* gate, uint64_t value) {
    return launch(stream, {{1}, {32}}, open, gate, value);
}

Status keep_busy(Stream& stream, unsigned blocks, unsigned rounds, float* out) {
    return launch(stream, {{blocks}, {kBusyThreads}}, compute, rounds, out);
}
#endif

}  // namespace penstock::workloads
