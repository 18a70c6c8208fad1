// Kernels of the tests of the first path: each does one thing with the device API and writes down
// the results.
#include "file/read_test.h"
#include "penstock/device/file.cuh"

namespace penstock::file_test {

template <class Group>
__global__ void read_whole(DeviceFileSystem fs, Descriptor file, uint64_t piece, std::byte* out,
                           int64_t* result) {
    Group group;
    FileStatus status;
    if (gstat(fs, file, &status, group) != 0) return;
    // Blocks take turns: block b reads pieces b, b + gridDim.x, ...
    for (uint64_t offset = blockIdx.x * piece; offset < status.size; offset += gridDim.x * piece) {
        const int64_t count = gread(fs, file, static_cast<int64_t>(offset), piece, out + offset,
                                    group);
        if (threadIdx.x == 0) {
            if (count < 0) {
                atomicExch(reinterpret_cast<unsigned long long*>(result + 1),
                           static_cast<unsigned long long>(-count));
            } else {
                atomicAdd(reinterpret_cast<unsigned long long*>(result),
                          static_cast<unsigned long long>(count));
            }
        }
    }
}

template <class Group>
__global__ void every_call(DeviceFileSystem fs, const char* path, std::byte* out, int64_t* result) {
    Group group;
    const Descriptor file = gopen(fs, path, 0, group);
    FileStatus status;
    const int stat = gstat(fs, file, &status, group);
    View view = gmmap(fs, file, 10, 100, group);
    if (view.data != nullptr && threadIdx.x < 100) out[threadIdx.x] = view.data[threadIdx.x];
    const int64_t mapped = view.size;
    const int unmap = gmunmap(fs, view, group);
    const int again = gmunmap(fs, view, group);
    const int advise = gadvise(fs, file, 0, 0, Advice::kRandom, group);
    const int64_t beyond = gread(fs, file, static_cast<int64_t>(status.size) + 5, 10, out, group);
    const int64_t tail = gread(fs, file, static_cast<int64_t>(status.size) - 3, 10, out + 200,
                               group);
    const int64_t negative = gread(fs, file, -1, 10, out, group);
    const int64_t null = gread(fs, file, 0, 10, nullptr, group);
    const int64_t nothing = gread(fs, file, 0, 0, nullptr, group);
    const int close = gclose(fs, file, group);
    const int64_t closed = gread(fs, file, 0, 10, out, group);
    const int close_again = gclose(fs, file, group);
    if (threadIdx.x != 0) return;
    const int64_t all[] = {file,     stat,   static_cast<int64_t>(status.size),
                           mapped,   unmap,  again,
                           advise,   beyond, tail,
                           negative, null,   nothing,
                           close,    closed, close_again};
    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); ++i) result[i] = all[i];
}

template <class Group>
__global__ void open_only(DeviceFileSystem fs, const char* path, int flags, int64_t* result) {
    const Descriptor file = gopen(fs, path, flags, Group{});
    if (threadIdx.x == 0) result[blockIdx.x] = file;
}

}  // namespace penstock::file_test

PENSTOCK_KERNEL(penstock::file_test::read_whole<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::file_test::read_whole<penstock::device::Warps>)
PENSTOCK_KERNEL(penstock::file_test::every_call<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::file_test::every_call<penstock::device::Warps>)
PENSTOCK_KERNEL(penstock::file_test::open_only<penstock::device::Block>)
