// Which memory an allocation of a device lies in. The one header of backend/ that storage/ may
// include.
#pragma once

#include <cstdint>

namespace penstock::backend {

enum class Memory : uint8_t {
    kDevice,  // GPU memory; on the CPU backend an arena that the host can address, on huge pages
    kServed,  // GPU memory that streams of create_copy_stream reach too; elsewhere as kDevice
    kPinned,  // host memory that GPU threads can address and the copy engine can read; on huge
              // pages where given
};

}  // namespace penstock::backend
