// The files whose reads by the program are observed, and the access programs of PENSTOCK_SIGNATURE.
//
// Their descriptors are in a table of the observing thread's own: the program does not see them,
// cannot close them, and keeps its record locks when they are closed.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "penstock/access.h"
#include "penstock/file.h"

namespace penstock::preload {

class ObservedFiles {
public:
    ObservedFiles();
    // As penstock_preload_observe().
    uint64_t observe(int fd, unsigned meaning, off_t offset, size_t size);

private:
    struct Entry {
        unsigned meaning = 0;
        std::optional<File> file;  // none: it cannot be opened
    };
    static constexpr size_t kFilesMax = 64;

    [[nodiscard]] std::optional<File> open(int fd);

    std::map<int, Entry> entries_;  // by the program's descriptor
    AccessPrograms programs_;
    bool has_programs_ = false;
};

}  // namespace penstock::preload
