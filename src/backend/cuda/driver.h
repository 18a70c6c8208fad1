// libcuda.so.1, opened at run time: the table of its functions. Nothing depends on CUDA at link
// time.
//
// It does not change after loading and is never unloaded, because the driver has its own threads.
// Any thread.
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

    // Returns "CUDA_ERROR_OUT_OF_MEMORY (out of memory)", or the number if the driver does not know
    // it.
    [[nodiscard]] std::string describe(int code) const;
};

// Opens and initialises the driver. PENSTOCK_LIBCUDA names another file than libcuda.so.1 (WSL,
// tests). A success is kept for the process; after a failure the next call tries again. `why` gets
// one sentence for people.
Result<const Driver*> open_driver(std::string* why);

// Does the same from the file `path`, and keeps no success.
Result<std::unique_ptr<const Driver>> load_driver(const char* path, std::string* why);

}  // namespace penstock::backend::cuda
