// Finds and opens lib<target>_cuda.so, the nvcc half of a target's kernels. Needs no driver. Any
// thread.
//
// A library stays open until the process ends, because its kernels may be loaded on a device.
#pragma once

#include <string>

#include "penstock/cuda_library.h"
#include "penstock/kernel.h"
#include "penstock/status.h"

namespace penstock::backend::cuda {

// Returns the target of a key "<target>/<kernel>".
std::string target_of(const char* key);

// Opens the library that belongs to `entry`. Searches the files and folders of
// PENSTOCK_CUDA_KERNELS (separated by colons), the folder of the module that holds `entry`, and
// ../lib of that folder. ENOENT: there is none. ENOEXEC: it cannot be opened or has another
// version. `detail` gets a sentence for people that names the files.
Result<const CudaLibrary*> open_kernel_library(const KernelEntry& entry, std::string* detail);

// Returns the kernel's host stub in the library, or null if the library does not have it.
const void* find_stub(const CudaLibrary& library, const char* key);

}  // namespace penstock::backend::cuda
