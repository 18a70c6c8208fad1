// The kernel by which the host has a file written back: what closes or syncs on behalf of the host
// goes the way of gclose and gfsync.
//
// Found in the registry by its key, so that programs that link this room alone do without.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kWriteBackKey = "penstock/penstock::service::write_back_file";
constexpr unsigned kWriteBackThreads = 128;

// One block. `*error` (device memory): 0 or an errno, taken from what write-backs have left.
// `forgets`: nothing is written, what is dirty is given up.
PENSTOCK_GLOBAL void write_back_file(FileSystemState* state, Descriptor file, bool forgets,
                                     unsigned long long* error);

}  // namespace penstock::service
