#include "service/write_back_file.h"

#include "penstock/device/file.cuh"

namespace penstock::service {

__global__ void write_back_file(FileSystemState* state, Descriptor file, FileWork work,
                                unsigned long long* result) {
    const device::Block group;
    device::Closed closed;
    if (work == FileWork::kWriteBack) {
        closed.written = device::write_back({state}, file, group);
    } else {
        const Opener opener = work == FileWork::kClose ? Opener::kHost : Opener::kReclaim;
        closed = device::close_file({state}, file, opener, group);
    }
    if (threadIdx.x == 0)
        *result = make_file_result(static_cast<int>(-closed.written),
                                   static_cast<int>(-closed.answer));
}

}  // namespace penstock::service

PENSTOCK_KERNEL(penstock::service::write_back_file)
