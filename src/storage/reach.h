// How an operation reaches its file: by which descriptor and with which flags of preadv2(2) and
// pwritev2(2).
//
// One thread an object.
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
    int error = 0;           // why there is no descriptor, or no call
    bool must_drop = false;  // no call without the flag
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

    // The flags were refused: the same call goes again without them, here and for good; or, where
    // it must not, `error` says so.
    bool again_without_flags(int error_number) {
        if (flags == 0 || (error_number != EOPNOTSUPP && error_number != EINVAL)) return false;
        flags = 0;
        file->refuse_drop();
        if (must_drop) error = EOPNOTSUPP;
        return true;
    }

    // A direct read that has come to a length that no aligned one can go on from has reached the
    // end of the file.
    [[nodiscard]] bool at_end(uint64_t bytes) const {
        return alignment != 0 && bytes % alignment != 0;
    }
};

}  // namespace penstock::storage
