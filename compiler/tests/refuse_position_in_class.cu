// Classes that read the block's position would read that of another block.
// RUN: error
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Reader {
    __device__ unsigned operator()(unsigned i) const { return i + blockIdx.x; }
};
struct Place {
    unsigned index;
    __device__ Place() : index(blockIdx.x) {}
};
__device__ unsigned offset(unsigned i) { return i + gridDim.x; }

__global__ void kernel(unsigned* out) {
    const Reader reader;
    unsigned (*function)(unsigned) = offset;  // ERROR: is called through its address
    yield();
    out[threadIdx.x] = reader(3);  // ERROR: 'operator()' reads blockIdx or gridDim, and is an
    const Place place = Place();   // ERROR: reads blockIdx or gridDim, and is a constructor
    out[threadIdx.x] += place.index + function(1);
}
PENSTOCK_KERNEL(kernel)
