// An if with an initialiser, and if constexpr, on the way.
// RUN: transform
// CHECK: if (int first = penstock_at == 0 ? static_cast<int>(in[n]) : penstock_run.load<int>(0);
//    penstock_at == 0 ? static_cast<bool>(first > 2) : penstock_at == 1) {
// CHECK: if constexpr (kWays > 1) {
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <int kWays>
__global__ void kernel(const int* in, int* out, int n) {
    if (int first = in[n]; first > 2) {
        if constexpr (kWays > 1) {
            yield();
            out[first] = 1;
        }
    }
}
PENSTOCK_KERNEL(kernel<1>)
PENSTOCK_KERNEL(kernel<2>)
