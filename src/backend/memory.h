// The kinds of memory that a device allocates. It is the only header of backend/ that storage/ may
// include.
#pragma once

#include <cstdint>

namespace penstock::backend {

enum class Memory : uint8_t {
    kDevice,  // GPU memory; on the CPU backend an arena that the host can address, on huge pages
    kServed,  // GPU memory that copy streams reach too; on the CPU backend as kDevice
    kPinned,  // host memory for GPU threads and copy engine; maybe huge pages
};

}  // namespace penstock::backend
