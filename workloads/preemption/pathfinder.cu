// PathFinder: the cheapest path through a wall from one row to the next, by dynamic programming.
//
// After the benchmark of that name in Rodinia (Che et al., IISWC 2009). From a column a path goes
// on to the same column or a neighbour. A block carries a strip of columns over several rows in
// shared memory. At either side of the strip it loses one column a row, which the neighbouring
// block computes, too.
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"
#include "preemption/pathfinder_kernels.h"

namespace penstock::workloads {
namespace {

constexpr int kNoPath = 0x7fffffff;  // the cost of a column outside of the wall

// With kFromFile a row of the wall is read before it is used: a point at which the costs of the row
// before are live, in shared memory, and the row of the wall is not.
template <bool kFromFile>
__global__ void path_rows(PathJob job) {
    __shared__ int before[kPathWidth];
    __shared__ int wall[kPathWidth];
    const int place = static_cast<int>(threadIdx.x);
    const int first = (kPathWidth - 2 * job.rows) * static_cast<int>(blockIdx.x) - job.rows;
    const int column = first + place;
    const bool inside = column >= 0 && column < job.columns;
    // The strip's columns that the wall has.
    const int begin = max(first, 0), end = min(first + kPathWidth, job.columns);
    const auto cheapest = [&](int at) {
        return min(before[at], min(before[max(at - 1, 0)], before[min(at + 1, kPathWidth - 1)]));
    };
    before[place] = inside ? job.from[column] : kNoPath;
    __syncthreads();
    for (int row = 0; row < job.rows; ++row) {
        const int64_t at = int64_t{job.first_row + row} * job.columns;
        if constexpr (kFromFile) {
            const uint64_t size = sizeof(int) * static_cast<unsigned>(end - begin);
#pragma preempt
            const int64_t got = gread(job.fs, job.file, (at + begin) * int64_t{sizeof(int)}, size,
                                      wall + (begin - first));
            if (place == 0 && got != static_cast<int64_t>(size)) atomicAdd(job.failures, 1ull);
        } else {
            wall[place] = inside ? job.wall[at + column] : 0;
        }
        const int cost = inside ? cheapest(place) + wall[place] : kNoPath;
        __syncthreads();
        before[place] = cost;
        __syncthreads();
    }
    const bool finished = place >= job.rows && place < kPathWidth - job.rows;
    if (inside && finished) job.to[column] = before[place];
}

}  // namespace

PENSTOCK_KERNEL(path_rows<false>)
PENSTOCK_KERNEL(path_rows<true>)

#ifndef __NVCC__
Status launch_path(Stream& stream, bool reads_file, const PathJob& job) {
    const LaunchShape shape{{path_blocks(job.columns, job.rows)}, {kPathWidth}};
    if (reads_file) return launch(stream, shape, path_rows<true>, job);
    return launch(stream, shape, path_rows<false>, job);
}
#endif

}  // namespace penstock::workloads
