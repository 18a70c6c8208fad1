// How host code starts the scan kernel (scan.cu). Any thread.
#pragma once

#include "penstock/device.h"
#include "penstock/file_system.h"
#include "scan/scan_batch.h"

namespace penstock::scan {

enum class Search : uint8_t {
    kByLanes,   // every GPU thread a slice: what runs on GPUs
    kByLeader,  // one thread with the host's wide instructions: CPU backend only
};

// Puts one launch over `batch` behind what is in `stream`. `threads` is 1 to kScanThreadsMax;
// records of strides that a stop left out stay as they were.
Status launch_scan(Stream& stream, unsigned blocks, unsigned threads, Search search,
                   DeviceFileSystem fs, const ScanBatch& batch);

}  // namespace penstock::scan
