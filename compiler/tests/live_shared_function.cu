// The address of dynamic shared memory that a function returns is made again.
// RUN: transform without-g++
// CHECK: T* data = SharedMemory<T>();
// CHECK: float* more = pool();
// CHECK: save_dynamic_shared(0);
// CHECK-NOT: penstock_run.save(
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

template <class T>
struct SharedMemory {
    __device__ operator T*() {
        extern __shared__ int memory[];
        return reinterpret_cast<T*>(memory);
    }
};
__device__ float* pool() {
    extern __shared__ float words[];
    return words;
}

template <class T>
__global__ void kernel(const T* in, T* out) {
    T* data = SharedMemory<T>();
    float* more = pool();
    data[threadIdx.x] = in[threadIdx.x];
    yield();
    out[threadIdx.x] = data[threadIdx.x] + more[0];
}
PENSTOCK_KERNEL(kernel<float>)
