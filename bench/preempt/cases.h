// The sizes of the preempt benchmark: what a mixed run is made of.
#pragma once

#include "bench/preempt/rig.h"
#include "preemption/product.h"

namespace penstock::bench {

// I/O kernels of a judged mix: reads and computation take about the same time.
inline constexpr size_t kBalancedKernels = 5;
inline constexpr size_t kKernelsMax = 10;

// Adds kKernelsMax matrix products of order 256, each with a file of 2 MiB, then SRAD and
// PathFinder. `smoke`: small ones.
void add_mix(MixRig* rig, workloads::ProductForm form, bool smoke);

// What add_mix() adds, in words.
[[nodiscard]] std::string describe_mix();

}  // namespace penstock::bench
