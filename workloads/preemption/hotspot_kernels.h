// The kernel of HotSpot, as host code launches it, and its formula for one cell.
//
// HotSpot gives the temperatures of a chip from the power that its parts dissipate, by explicit
// steps of a grid of thermal resistances and capacities (Huang et al., IEEE Transactions on VLSI
// Systems 14(5), 2006).
#pragma once

#include "penstock/device.h"
#include "preemption/arithmetic.h"

namespace penstock::workloads {

constexpr int kHeatWidth = 16;  // columns of a block's tile, and its GPU threads in x and in y
// Steps a launch: a block's tile loses a cell at each side in each step, and some must be left.
constexpr int kHeatStepsMax = 6;

// Where the blocks have a point, by which the state that is live there is chosen (seed 001, section
// 6.1). A thread has `cells` cells of its block's tile.
enum class HeatPoint : uint8_t {
    kNone,
    kAtStart,       // nothing is live
    kInRegisters,   // two floats for each cell of the thread
    kBetweenSteps,  // one float for each cell of the thread, and the tile in shared memory
};

// What the grid is made of: the share of a cell's power and of the differences from its neighbours
// that changes its temperature in one step.
struct HeatRates {
    float power = 0.1F, vertical = 0.12F, horizontal = 0.11F, ambient = 0.01F;
    float ambient_temperature = 80;
};

struct HeatJob {
    int columns = 0, rows = 0;  // of the chip, in cells
    int steps = 1;              // of this launch, at most kHeatStepsMax
    HeatRates rates;
    const float* power = nullptr;  // of each cell, row-major
    const float* from = nullptr;   // temperatures before the first step
    float* to = nullptr;           // receives those after the last
};

struct HeatNeighbours {
    float north, south, west, east;
};

// The temperature of a cell after one step.
PENSTOCK_BOTH inline float heat_step(float own, const HeatNeighbours& near, float power,
                                     const HeatRates& rates) {
    const float vertical = near.north + near.south - times(2, own);
    const float horizontal = near.west + near.east - times(2, own);
    const float change = times(power, rates.power) + times(vertical, rates.vertical) +
                         times(horizontal, rates.horizontal) +
                         times(rates.ambient_temperature - own, rates.ambient);
    return own + change;
}

// The blocks of one launch.
constexpr Dimensions heat_grid(int columns, int rows, int steps, unsigned cells) {
    const int wide = kHeatWidth - 2 * steps;
    const int high = kHeatWidth * static_cast<int>(cells) - 2 * steps;
    return {static_cast<unsigned>((columns + wide - 1) / wide),
            static_cast<unsigned>((rows + high - 1) / high)};
}

// Adds one launch to the stream. `cells` is 1, 2, 4 or 8: the cells of a GPU thread.
Status launch_heat(Stream& stream, unsigned cells, HeatPoint point, const HeatJob& job);

}  // namespace penstock::workloads
