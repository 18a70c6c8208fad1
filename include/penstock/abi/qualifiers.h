// The function qualifiers of headers that both compilers read. Nothing else lives here.
#pragma once

#ifdef __NVCC__
#define PENSTOCK_NOINLINE __noinline__
#define PENSTOCK_BOTH __host__ __device__
#define PENSTOCK_DEVICE __device__
#else
#define PENSTOCK_NOINLINE __attribute__((noinline))
#define PENSTOCK_BOTH
#define PENSTOCK_DEVICE
#endif
