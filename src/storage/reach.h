// Decides how an operation reaches its file: through which descriptor, and with which flags of
// preadv2(2) and pwritev2(2).
//
// One thread per object.
#pragma once

#include <cerrno>
#include <cstdint>

#include "storage/storage.h"

namespace penstock::storage {

#ifdef RWF_DONTCACHE
inline constexpr int kDropFlag = RWF_DONTCACHE;
#else
inline constexpr int kDropFlag = 0x80;  // Linux 6.14; older kernels refuse it with EOPNOTSUPP
#endif

struct Reach {
    int descriptor = -1;
    int flags = 0;
    int error = 0;           // why there is no descriptor, or why no call may be made
    bool must_drop = false;  // no call may be made without the flag
    uint64_t alignment = 0;  // of a direct read's length; 0: not direct, or a write
    File* file = nullptr;

    Reach() = default;
    explicit Reach(const Operation& operation) : file(operation.file) {
        if (operation.write) file->begin_write();
        if (operation.route == Route::kDirect) {
            descriptor = file->direct_descriptor();
            if (descriptor < 0) error = -descriptor;
            if (!operation.write) alignment = file->direct_alignment().offset;
        } else if (operation.route != Route::kCached) {
            error = EOPNOTSUPP;
        } else {
            descriptor = file->descriptor();
            if (!operation.drop) return;
            must_drop = operation.must_drop;
            if (!file->drop_refused()) {
                flags = kDropFlag;
            } else if (must_drop) {
                error = EOPNOTSUPP;
            }
        }
    }

    // Returns whether `error_number` means that the kernel refused the flags. If so, this file
    // never uses them again, and the caller repeats the call without them. If `must_drop` is set,
    // `error` is set and the call must not be repeated.
    bool again_without_flags(int error_number) {
        if (flags == 0 || (error_number != EOPNOTSUPP && error_number != EINVAL)) return false;
        flags = 0;
        file->refuse_drop();
        if (must_drop) error = EOPNOTSUPP;
        return true;
    }

    // Returns whether a direct read has reached the end of the file: no aligned read can continue
    // from its length.
    [[nodiscard]] bool at_end(uint64_t bytes) const {
        return alignment != 0 && bytes % alignment != 0;
    }
};

}  // namespace penstock::storage
