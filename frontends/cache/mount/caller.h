// Acts as the program that sent a request, so that what it makes is its own, and may be made by it.
#pragma once

#include <sys/types.h>

#include <vector>

#include "served.h"

namespace penstock::cache_service {

// While it lives, this thread has user, groups and mask of new files of the caller, as far as this
// process may take them. Start no thread meanwhile: it would have them too.
class AsCaller {
public:
    explicit AsCaller(fuse_req_t request);
    AsCaller(const AsCaller&) = delete;
    AsCaller& operator=(const AsCaller&) = delete;
    ~AsCaller();

    // Returns the mode to ask for where the caller asked for `mode`.
    [[nodiscard]] mode_t mode(mode_t mode) const { return masked_ ? mode : mode & ~mask_; }

private:
    void take_identity(fuse_req_t request);

    const fuse_ctx& caller_;
    const mode_t mask_;
    bool masked_ = false, changed_ = false;
    std::vector<gid_t> groups_;  // of this process
};

}  // namespace penstock::cache_service
