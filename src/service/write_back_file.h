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

// What it does: write_back, hold_file, give_up_file of device/sync.cuh.
enum class FileWork : uint32_t { kWriteBack, kHold, kRelease, kForget };

// One block. `*error` (device memory): 0 or an errno; of kWriteBack, taken from what write-backs
// have left.
PENSTOCK_GLOBAL void write_back_file(FileSystemState* state, Descriptor file, FileWork work,
                                     unsigned long long* error);

}  // namespace penstock::service
