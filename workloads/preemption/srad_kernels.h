// The kernels of SRAD, as host code launches them, and its formula for one cell.
//
// SRAD removes speckle from an image by anisotropic diffusion (Yu and Acton, IEEE Transactions on
// Image Processing 11(11), 2002). One iteration takes three kernels: sums over the image, which say
// how strong the speckle is; the diffusion coefficient of each cell; and the new image.
//
// The image is an array of tiles, each kSradTile * kSradTile floats, row-major over tiles and
// within them; the file that the first sums may read holds the same.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device.h"
#include "penstock/device/handle.h"
#include "preemption/arithmetic.h"

namespace penstock::workloads {

constexpr int kSradTile = 16;
constexpr unsigned kSradThreads = kSradTile * kSradTile;  // of a block, in every kernel

// What stands round a cell, as differences from it.
struct alignas(16) SradSlopes {
    float north, south, west, east;
};

struct SradJob {
    DeviceFileSystem fs;
    Descriptor file = -1;
    int tile_columns = 0, tile_rows = 0;  // of the image
    unsigned blocks = 0;  // of a kernel; each works on an equal share of the tiles in a row
    float lambda = 0;     // share of the change that is applied
    float* image = nullptr;
    float* coefficient = nullptr;            // of each cell
    SradSlopes* slopes = nullptr;            // of each cell
    float* partial_sums = nullptr;           // for each block: sum, sum of squares
    float* speckle = nullptr;                // one float: the variance over the square of the mean
    unsigned long long* failures = nullptr;  // += reads that did not bring their bytes
};

PENSTOCK_BOTH inline float srad_coefficient(float cell, SradSlopes slopes, float speckle) {
    const float squares = times(slopes.north, slopes.north) + times(slopes.south, slopes.south) +
                          times(slopes.west, slopes.west) + times(slopes.east, slopes.east);
    const float gradient = squares / times(cell, cell);
    const float laplacian = (slopes.north + slopes.south + slopes.west + slopes.east) / cell;
    const float above = times(0.5F, gradient) - times(0.0625F, times(laplacian, laplacian));
    const float below = 1 + times(0.25F, laplacian);
    const float local = above / times(below, below);
    const float excess = (local - speckle) / times(speckle, 1 + speckle);
    const float coefficient = 1 / (1 + excess);
    return coefficient < 0 ? 0 : coefficient > 1 ? 1 : coefficient;
}

// The cell after one iteration. `own`, `below` and `right` are coefficients.
PENSTOCK_BOTH inline float srad_diffused(float cell, SradSlopes slopes, float own, float below,
                                         float right, float lambda) {
    const float flow = times(own, slopes.north) + times(below, slopes.south) +
                       times(own, slopes.west) + times(right, slopes.east);
    return cell + times(times(0.25F, lambda), flow);
}

// The speckle of an image of `count` cells.
PENSTOCK_BOTH inline float srad_speckle(float sum, float squares, float count) {
    const float mean = sum / count;
    const float variance = squares / count - times(mean, mean);
    return variance / times(mean, mean);
}

// Each adds one launch to the stream. `reads_file`: the image comes from the file, and goes to
// job.image, too.
Status launch_srad_sums(Stream& stream, bool reads_file, const SradJob& job);
Status launch_srad_speckle(Stream& stream, const SradJob& job);  // one block
Status launch_srad_coefficients(Stream& stream, const SradJob& job);
Status launch_srad_update(Stream& stream, const SradJob& job);

}  // namespace penstock::workloads
