// The kernel of closed_while_reading_test.cu, for the test.
#pragma once

#include "penstock/device/handle.h"
#include "penstock/kernel.h"

// Every warp of the block calls gread together until it no longer gives `size` bytes, and leaves
// what it gave then in `*last`. `buffer` has room for them.
PENSTOCK_GLOBAL void read_until_closed(penstock::DeviceFileSystem fs, penstock::Descriptor file,
                                       uint64_t size, std::byte* buffer, long long* last);
