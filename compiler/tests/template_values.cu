// Types and values of a template, with constraints and packs.
// RUN: transform
// CHECK: requires std::integral<T>
// CHECK: __device__ static inline void kernel__body(
// CHECK: __global__ void __launch_bounds__(128) kernel__preemptible(T* out, const T* __restrict__
//    in, Rest... rest, ::penstock::preemption::Launch penstock_launch)
// CHECK: kernel__body<T, kSize, Rest...>(out, in, rest..., penstock_run);
// CHECK: PENSTOCK_PREEMPTIBLE((deep::kernel<int, 4, int, int>), (deep::kernel__preemptible<int,
//    4, int, int>),
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

#include <concepts>
namespace deep {
template <class T, int kSize, class... Rest>
requires std::integral<T>
__global__ void __launch_bounds__(128) kernel(T* out, const T* __restrict__ in, Rest... rest) {
    T values[kSize];
    for (int i = 0; i < kSize; ++i) values[i] = in[i];
    const auto scale = in[kSize] * (rest + ... + T{0});
    auto shift = in[1];
    yield();
    for (int i = 0; i < kSize; ++i) out[i] = values[i] * scale + shift;
}
}  // namespace deep
PENSTOCK_KERNEL(deep::kernel<int, 4, int, int>)
PENSTOCK_KERNEL(deep::kernel<long, 6>)
