// The kernel by which the host writes a file back. A close or sync on behalf of the host takes the
// same path as gclose and gfsync.
//
// The registry finds it by its key, so that a program that links only this room works without it.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"

namespace penstock::service {

constexpr const char* kWriteBackKey = "penstock/penstock::service::write_back_file";
constexpr unsigned kWriteBackThreads = 128;

// What the kernel does: write_back() of device/sync.cuh, or close_file() of device/close.cuh for
// the host or for files that kernels have left open.
enum class FileWork : uint32_t { kWriteBack, kClose, kGiveUp };

// Makes the kernel's result. High 32 bits: errno of the write-back. Low 32 bits: errno of the
// close.
PENSTOCK_BOTH constexpr unsigned long long make_file_result(int written, int closed) {
    return static_cast<unsigned long long>(written) << 32 | static_cast<unsigned>(closed);
}

// Runs as one block. `*result` is in device memory. The errno of the write-back is the one that
// write-backs have left.
PENSTOCK_GLOBAL void write_back_file(FileSystemState* state, Descriptor file, FileWork work,
                                     unsigned long long* result);

}  // namespace penstock::service
