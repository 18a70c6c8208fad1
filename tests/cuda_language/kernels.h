// Kernels that use the CUDA language feature by feature. Each writes its results, one number a
// feature, in an order that its test knows.
#pragma once

#include "penstock/kernel.h"

namespace penstock::cuda_language {

inline constexpr int kResultsMax = 256;  // of one kernel

// numbers.cu; one GPU thread each.
PENSTOCK_GLOBAL void integers(double* out);
PENSTOCK_GLOBAL void packed_parts(unsigned a, unsigned b, unsigned* out);
PENSTOCK_GLOBAL void rounded(float third, double* out);
PENSTOCK_GLOBAL void converted(float large, double* out);

// functions.cu
PENSTOCK_GLOBAL void functions(double x, double* out);
PENSTOCK_GLOBAL void fast_functions(float x, double* out);
PENSTOCK_GLOBAL void least_and_largest(int minus, double* out);

// halves.cu
PENSTOCK_GLOBAL void half_arithmetic(float third, double* out);
PENSTOCK_GLOBAL void bfloat_arithmetic(float third, double* out);
PENSTOCK_GLOBAL void half_of_every_float(const unsigned* words, int count, unsigned* out);

// memory.cu
struct Atomics {
    int i[8];
    unsigned u[8];
    unsigned long long w[8];
    long long l[2];
    float f[2];
    double d[1];
    unsigned short s[2];
    float halves[4];  // what the atomics of halves left
};
PENSTOCK_GLOBAL void atomics(Atomics* out);  // a block of 64
PENSTOCK_GLOBAL void hinted(const float* in, float* out);
// Sums of each block, in its dynamic shared memory.
template <class T>
PENSTOCK_GLOBAL void sum_of_shared(const T* in, T* out);
PENSTOCK_GLOBAL void alias_shared(unsigned* out);
PENSTOCK_GLOBAL void aligned_types(unsigned* out);

// groups.cu
struct GroupResults {
    unsigned block_rank, block_size, tile_rank, tile_size, meta_rank, meta_size;
    unsigned coalesced_size, grid_rank;
    int sum, least, largest, every, inclusive, exclusive, product;
    int from_two, up, down, exchanged;
    unsigned votes, same, all_same, any, all;
    double wide[3];
    int small_sum, dynamic_size, dynamic_rank, part_size, part_sum, copied;
    unsigned matched, part_rank;
    int agreed;
};
PENSTOCK_GLOBAL void use_groups(const int* in, GroupResults* out);
PENSTOCK_GLOBAL void sync_grid(int* out);

}  // namespace penstock::cuda_language
