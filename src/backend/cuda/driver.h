// libcuda.so.1, opened at run time: the table of its functions. No link-time dependency on CUDA.
//
// Immutable once loaded, and never unloaded: the driver has threads of its own. Any thread.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/driver_api.h"
#include "penstock/status.h"

namespace penstock::backend::cuda {

struct Driver {
#define PENSTOCK_CUDA_MEMBER(member, symbol, ...) Call<__VA_ARGS__> member;
    PENSTOCK_CUDA_DRIVER_CALLS(PENSTOCK_CUDA_MEMBER)
    PENSTOCK_CUDA_NEWER_DRIVER_CALLS(PENSTOCK_CUDA_MEMBER)
#undef PENSTOCK_CUDA_MEMBER

    // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; the number when the driver does not know it.
    [[nodiscard]] std::string describe(int code) const;
};

// Opens and initialises the driver: PENSTOCK_LIBCUDA names another file than libcuda.so.1 (WSL,
// tests). A success is kept for the process; a failure is tried again at the next call. `why` gets
// one sentence for people.
Result<const Driver*> open_driver(std::string* why);

// The same without memory, from the file `path`.
Result<std::unique_ptr<const Driver>> load_driver(const char* path, std::string* why);

}  // namespace penstock::backend::cuda
