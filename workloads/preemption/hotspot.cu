// HotSpot: the temperatures of a chip from the power of its parts.
//
// After the benchmark of that name in Rodinia (Che et al., IISWC 2009). A block takes a tile of the
// chip through several steps in shared memory. At each side of the tile it loses a cell in each
// step, which the neighbouring block computes, too. The points offer the block's place to others.
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"
#include "preemption/hotspot_kernels.h"

namespace penstock::workloads {
namespace {

template <int kCells, HeatPoint kPoint>
__global__ void heat_steps(HeatJob job) {
    constexpr int kHeight = kHeatWidth * kCells;
    __shared__ float tile[kHeight][kHeatWidth];
    if constexpr (kPoint == HeatPoint::kAtStart) {
        penstock::yield();
    }
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
    // Where the tile's first cell lies on the chip, which may be outside of it.
    const int left = (kHeatWidth - 2 * job.steps) * static_cast<int>(blockIdx.x) - job.steps;
    const int top = (kHeight - 2 * job.steps) * static_cast<int>(blockIdx.y) - job.steps;
    const int columns = job.columns, rows = job.rows;
    const auto outside = [=](int row, int column) {
        return row < 0 || row >= rows || column < 0 || column >= columns;
    };
    float power[kCells];
    float temperature[kCells];
    for (int i = 0; i < kCells; ++i) {
        // Outside of the chip, the nearest cell: nothing uses it.
        const int row = min(max(top + y + i * kHeatWidth, 0), rows - 1);
        const int64_t at = int64_t{row} * columns + min(max(left + x, 0), columns - 1);
        power[i] = job.power[at];
        temperature[i] = job.from[at];
    }
    if constexpr (kPoint == HeatPoint::kInRegisters) {
        penstock::yield();
    }
    for (int i = 0; i < kCells; ++i) tile[y + i * kHeatWidth][x] = temperature[i];
    __syncthreads();
    // A cell at the border of the chip is its own neighbour there.
    const int west = x == 0 || left + x == 0 ? x : x - 1;
    const int east = x == kHeatWidth - 1 || left + x == columns - 1 ? x : x + 1;
    for (int step = 0; step < job.steps; ++step) {
        float next[kCells];
        for (int i = 0; i < kCells; ++i) {
            const int row = y + i * kHeatWidth;
            const int north = row == 0 || top + row == 0 ? row : row - 1;
            const int south = row == kHeight - 1 || top + row == rows - 1 ? row : row + 1;
            const HeatNeighbours near{tile[north][x], tile[south][x], tile[row][west],
                                      tile[row][east]};
            next[i] = heat_step(tile[row][x], near, power[i], job.rates);
        }
        __syncthreads();
        for (int i = 0; i < kCells; ++i) tile[y + i * kHeatWidth][x] = next[i];
        __syncthreads();
        if constexpr (kPoint == HeatPoint::kBetweenSteps) {
            if (step + 1 < job.steps) {
                penstock::yield();
            }
        }
    }
    for (int i = 0; i < kCells; ++i) {
        const int row = y + i * kHeatWidth;
        const bool finished = x >= job.steps && x < kHeatWidth - job.steps && row >= job.steps &&
                              row < kHeight - job.steps;
        if (finished && !outside(top + row, left + x))
            job.to[int64_t{top + row} * columns + left + x] = tile[row][x];
    }
}

}  // namespace

PENSTOCK_KERNEL(heat_steps<1, HeatPoint::kNone>)
PENSTOCK_KERNEL(heat_steps<2, HeatPoint::kNone>)
PENSTOCK_KERNEL(heat_steps<4, HeatPoint::kNone>)
PENSTOCK_KERNEL(heat_steps<8, HeatPoint::kNone>)
PENSTOCK_KERNEL(heat_steps<1, HeatPoint::kAtStart>)
PENSTOCK_KERNEL(heat_steps<2, HeatPoint::kAtStart>)
PENSTOCK_KERNEL(heat_steps<4, HeatPoint::kAtStart>)
PENSTOCK_KERNEL(heat_steps<8, HeatPoint::kAtStart>)
PENSTOCK_KERNEL(heat_steps<1, HeatPoint::kInRegisters>)
PENSTOCK_KERNEL(heat_steps<2, HeatPoint::kInRegisters>)
PENSTOCK_KERNEL(heat_steps<4, HeatPoint::kInRegisters>)
PENSTOCK_KERNEL(heat_steps<8, HeatPoint::kInRegisters>)
PENSTOCK_KERNEL(heat_steps<1, HeatPoint::kBetweenSteps>)
PENSTOCK_KERNEL(heat_steps<2, HeatPoint::kBetweenSteps>)
PENSTOCK_KERNEL(heat_steps<4, HeatPoint::kBetweenSteps>)
PENSTOCK_KERNEL(heat_steps<8, HeatPoint::kBetweenSteps>)

#ifndef __NVCC__
namespace {

template <int kCells>
Status launch_cells(Stream& stream, HeatPoint point, const HeatJob& job) {
    const LaunchShape shape{heat_grid(job.columns, job.rows, job.steps, kCells),
                            {kHeatWidth, kHeatWidth}};
    switch (point) {
        case HeatPoint::kAtStart:
            return launch(stream, shape, heat_steps<kCells, HeatPoint::kAtStart>, job);
        case HeatPoint::kInRegisters:
            return launch(stream, shape, heat_steps<kCells, HeatPoint::kInRegisters>, job);
        case HeatPoint::kBetweenSteps:
            return launch(stream, shape, heat_steps<kCells, HeatPoint::kBetweenSteps>, job);
        default:
            return launch(stream, shape, heat_steps<kCells, HeatPoint::kNone>, job);
    }
}

}  // namespace

Status launch_heat(Stream& stream, unsigned cells, HeatPoint point, const HeatJob& job) {
    switch (cells) {
        case 1:
            return launch_cells<1>(stream, point, job);
        case 2:
            return launch_cells<2>(stream, point, job);
        case 4:
            return launch_cells<4>(stream, point, job);
        case 8:
            return launch_cells<8>(stream, point, job);
        default:
            return {EINVAL, "HotSpot", "a thread has 1, 2, 4 or 8 cells"};
    }
}
#endif

}  // namespace penstock::workloads
