#include "service/write_back_file.h"

#include "penstock/device/file.cuh"

namespace penstock::service {

__global__ void write_back_file(FileSystemState* state, Descriptor file, FileWork work,
                                unsigned long long* error) {
    const device::Block group;
    int64_t result = 0;
    if (work == FileWork::kWriteBack) {
        result = device::write_back({state}, file, group);
    } else if (work == FileWork::kHold) {
        result = device::hold_file({state}, file, 0, group);
    } else {
        device::give_up_file({state}, file, work == FileWork::kForget, group);
    }
    if (threadIdx.x == 0) *error = static_cast<unsigned long long>(-result);
}

}  // namespace penstock::service

PENSTOCK_KERNEL(penstock::service::write_back_file)
