// The files that a list of paths means: regular files as they are, directories with all below them,
// as `grep -r`.
//
// Symbolic links are followed on the list, not below it; below it only regular files count. Entries
// of a directory come in byte order, so that results do not depend on the file system. Lists one
// directory at a time. Knows nothing of GPUs. Owned by one thread.
#pragma once

#include <string>
#include <vector>

#include "penstock/status.h"

namespace penstock::scan {

class TreeWalk {
public:
    struct Entry {
        std::string path;
        Status status;  // not ok: the path cannot be scanned, and why
    };

    // "-" stands for standard input and is handed on as it is.
    explicit TreeWalk(std::vector<std::string> paths);

    // The next file, or the next path that cannot be read; false: there is none.
    [[nodiscard]] bool next(Entry* entry);

private:
    struct Pending {
        std::string path;
        bool named;          // on the list, not found below it
        unsigned char kind;  // DT_* of the directory entry; DT_UNKNOWN: to be asked for
    };

    [[nodiscard]] bool visit(const Pending& pending, Entry* entry);
    [[nodiscard]] Status list(const std::string& folder);

    std::vector<Pending> pending_;  // next at the back
};

}  // namespace penstock::scan
