// The kernel that goes ahead of those that read, where a program splits them by hand.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::bench {

// Announces the first `size` bytes of a file; each block an equal part of them. Waits for nothing.
PENSTOCK_GLOBAL void announce_reads(DeviceFileSystem fs, Descriptor file, uint64_t size);

}  // namespace penstock::bench
