// The kernel of count_lines.cu, as host code sees it: a function that penstock::launch starts.
#pragma once

#include "penstock/device/handle.h"
#include "penstock/kernel.h"

// Adds the number of '\n' bytes of the file to `*lines` (device memory). If a read fails, the
// negative errno is left in `*error`. Any grid; blocks of any size.
PENSTOCK_GLOBAL void count_lines(penstock::DeviceFileSystem files, penstock::Descriptor file,
                                 unsigned long long* lines, long long* error);
