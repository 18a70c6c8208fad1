// The qualifiers of functions and loops in headers that both compilers read. Nothing else is here.
#pragma once

#ifdef __NVCC__
#define PENSTOCK_NOINLINE __noinline__
#define PENSTOCK_BOTH __host__ __device__
#define PENSTOCK_DEVICE __device__
#define PENSTOCK_UNROLL _Pragma("unroll")
#else
#define PENSTOCK_NOINLINE __attribute__((noinline))
#define PENSTOCK_BOTH
#define PENSTOCK_DEVICE
#define PENSTOCK_UNROLL
#endif
