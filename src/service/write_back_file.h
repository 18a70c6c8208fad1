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

// What it does: write_back() of device/sync.cuh; close_file() of device/close.cuh for the host, or
// for what kernels have left open.
enum class FileWork : uint32_t { kWriteBack, kClose, kGiveUp };

// Its result: errno of what could not be written back 32 | errno of closing 32, from the high end.
PENSTOCK_BOTH constexpr unsigned long long make_file_result(int written, int closed) {
    return static_cast<unsigned long long>(written) << 32 | static_cast<unsigned>(closed);
}

// One block. `*result` is in device memory; the errno of writing back is taken from what
// write-backs have left.
PENSTOCK_GLOBAL void write_back_file(FileSystemState* state, Descriptor file, FileWork work,
                                     unsigned long long* result);

}  // namespace penstock::service
