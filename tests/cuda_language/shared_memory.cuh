// Dynamic shared memory of any type, in the way that CUDA sources write it: behind a struct, in a
// header, under one name for each type.
#pragma once

namespace penstock::cuda_language {

template <class T>
struct SharedMemory {
    __device__ operator T*() const {
        extern __shared__ int memory_of_any[];
        return reinterpret_cast<T*>(memory_of_any);
    }
};

template <>
struct SharedMemory<double> {
    __device__ operator double*() const {
        extern __shared__ double memory_of_doubles[];
        return memory_of_doubles;
    }
};

}  // namespace penstock::cuda_language
