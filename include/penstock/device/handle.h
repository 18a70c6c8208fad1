// What a kernel receives to access files. It is apart from file.cuh so that host code can pass it
// without any device code.
#pragma once

#include "penstock/abi/file_system.h"

namespace penstock {

// A file system as kernels see it. FileSystem::device_handle() makes it, and it is passed to
// kernels by value. `state` is a device address; the host does not dereference it.
struct DeviceFileSystem {
    FileSystemState* state = nullptr;
};

}  // namespace penstock
