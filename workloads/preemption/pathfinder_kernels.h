// The kernel of PathFinder, as host code launches it.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device.h"
#include "penstock/device/handle.h"

namespace penstock::workloads {

// Columns that a block works on, and its GPU threads. It finishes 2 * rows fewer of them.
constexpr int kPathWidth = 256;
// Rows a launch, so that a block finishes half of its columns at least.
constexpr int kPathRowsMax = kPathWidth / 4;

// One launch goes `rows` rows further through a wall of `columns` columns.
struct PathJob {
    DeviceFileSystem fs;
    Descriptor file = -1;       // the wall: rows of `columns` ints
    const int* wall = nullptr;  // the same in device memory
    int columns = 0;
    int first_row = 0, rows = 0;  // of this launch; rows is at most kPathRowsMax
    const int* from = nullptr;    // the cost of the cheapest path to each column of first_row - 1
    int* to = nullptr;            // receives that of the last row of the launch
    unsigned long long* failures = nullptr;  // += reads that did not bring their bytes
};

// The blocks of one launch.
constexpr unsigned path_blocks(int columns, int rows) {
    const int finished = kPathWidth - 2 * rows;
    return static_cast<unsigned>((columns + finished - 1) / finished);
}

// Adds one launch to the stream. `reads_file`: the wall comes from the file, a row at a time.
Status launch_path(Stream& stream, bool reads_file, const PathJob& job);

}  // namespace penstock::workloads
