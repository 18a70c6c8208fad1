// The files whose reads by the program are observed, by the program's own descriptors: nothing is
// opened, and no thread is started.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string_view>

#include "penstock/access.h"
#include "penstock/read_ahead.h"

namespace penstock::preload {

class ObservedFiles {
public:
    // `signature`: access programs of an earlier run, or nothing.
    explicit ObservedFiles(std::string_view signature);
    // As penstock_preload_observe().
    uint64_t observe(int fd, unsigned meaning, off_t offset, size_t size);

private:
    struct Entry {
        unsigned meaning = 0;
        std::optional<ReadAhead> ahead;  // none: nothing is read ahead of it
    };
    static constexpr size_t kFilesMax = 256;

    [[nodiscard]] std::optional<ReadAhead> begin(int fd) const;

    std::map<int, Entry> entries_;  // by the program's descriptor
    AccessPrograms programs_;
    bool has_programs_ = false;
};

}  // namespace penstock::preload
