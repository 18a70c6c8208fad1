#include "service/write_back_file.h"

#include "penstock/device/file.cuh"

namespace penstock::service {

__global__ void write_back_file(FileSystemState* state, Descriptor file, bool forgets,
                                unsigned long long* error) {
    int64_t result = 0;
    if (forgets) {
        device::forget_writes({state}, file, device::Block());
    } else {
        result = device::write_back({state}, file, device::Block());
    }
    if (threadIdx.x == 0) *error = static_cast<unsigned long long>(-result);
}

}  // namespace penstock::service

PENSTOCK_KERNEL(penstock::service::write_back_file)
