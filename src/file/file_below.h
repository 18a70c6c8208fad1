// A file below a file cache, with one File for each device whose memory its bytes go to. Any
// thread.
#pragma once

#include <memory>
#include <vector>

#include "penstock/file.h"

namespace penstock::file {

// Files are made when they are first needed, of duplicates of one descriptor.
class FilesOfDevices;

// Copies stand for the same open file, which is closed with the last.
struct FileBelow {
    File file;            // of the host and, if there is one, of the first GPU
    int descriptor = -1;  // which `file` has
    std::shared_ptr<FilesOfDevices> more;

    // Takes over a descriptor. `devices` are those of the cache, which outlives the file. Errors:
    // those of File::adopt(); then the descriptor stays the caller's.
    static Result<FileBelow> adopt(int descriptor, const std::vector<Device>& devices,
                                   const FileOptions& options = {});
    // Returns the File that moves bytes of a device's memory, or of host memory without calls of
    // any device. Errors: EMFILE.
    [[nodiscard]] Result<File> on(uint32_t device) const;
    [[nodiscard]] Result<File> on_host() const;
};

}  // namespace penstock::file
