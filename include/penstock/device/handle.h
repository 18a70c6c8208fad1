// What a kernel is given to reach files. Apart from file.cuh so that host code needs no device code
// to pass it.
#pragma once

#include "penstock/abi/file_system.h"

namespace penstock {

// Passed by value to kernels; made by FileSystem::device_handle(). Device address; the host does
// not look inside.
struct DeviceFileSystem {
    FileSystemState* state = nullptr;
};

}  // namespace penstock
