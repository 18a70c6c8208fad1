// Float arithmetic that gives equal bits under both compilers. Pure; any thread.
//
// A compiler may fuse a product and a sum into one operation, which rounds once instead of twice.
// nvcc does so by default. Where a product feeds a sum, kernels and references write times().
// Sums, quotients and square roots are rounded as IEEE 754 says by both compilers.
#pragma once

#include "penstock/abi/qualifiers.h"

namespace penstock::workloads {

PENSTOCK_BOTH inline float times(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#elif defined(__FP_FAST_FMAF)
    const volatile float product = a * b;
    return product;
#else
    return a * b;  // this processor has no fused operation that g++ may use
#endif
}

}  // namespace penstock::workloads
