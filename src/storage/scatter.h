// A place within the pieces of an operation: what is still to be moved after a short call, and the
// bounds of a request.
//
// Pure: makes no system call. One thread an object.
#pragma once

#include <limits.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>

#include "storage/storage.h"

namespace penstock::storage {

// Linux moves no more than this in one call, whatever is asked.
inline constexpr uint64_t kCallSizeMax = 0x7ffff000;
inline constexpr size_t kCallPiecesMax = IOV_MAX;

// 0, or the errno with which `operation` is refused before any byte moves; `*size` is the sum of
// its lengths. EINVAL as preadv and pwritev give it: the end lies beyond off_t.
inline int validate(const Operation& operation, uint64_t* size) {
    constexpr uint64_t kOffsetMax = INT64_MAX;
    *size = 0;
    if (operation.file == nullptr) return EBADF;
    const Rights rights = operation.file->rights();
    if (!(operation.write ? rights.write : rights.read)) return EBADF;
    if (operation.offset > kOffsetMax) return EINVAL;
    for (const iovec& piece : operation.pieces) {
        if (piece.iov_len > kOffsetMax - operation.offset - *size) return EINVAL;
        if (piece.iov_base == nullptr && piece.iov_len != 0) return EFAULT;
        *size += piece.iov_len;
    }
    return 0;
}

// What is left of an operation. Each call to next() names one piece of it that a single system call
// can take.
class Scatter {
public:
    // What one call is to move: either one range, or `count` whole pieces.
    struct Call {
        void* base = nullptr;  // one range, when `count` is 0
        size_t size = 0;       // bytes of the call in both forms
        const iovec* pieces = nullptr;
        unsigned count = 0;
    };

    Scatter() = default;
    Scatter(std::span<const iovec> pieces, uint64_t size) : pieces_(pieces), left_(size) {}

    [[nodiscard]] bool done() const { return left_ == 0; }

    // Not when done(). A piece that is begun, alone, or longer than a call can move goes as one
    // range; no array is ever copied.
    Call next() {
        while (skip_ == pieces_.front().iov_len) drop_piece();
        const iovec& first = pieces_.front();
        Call call;
        size_t count = 0;
        if (skip_ == 0) {
            const size_t bound = std::min(pieces_.size(), kCallPiecesMax);
            for (; count < bound && pieces_[count].iov_len <= kCallSizeMax - call.size; ++count) {
                call.size += pieces_[count].iov_len;
            }
        }
        if (count > 1) {
            call.pieces = pieces_.data();
            call.count = static_cast<unsigned>(count);
        } else {
            call.base = static_cast<char*>(first.iov_base) + skip_;
            call.size = std::min<uint64_t>(first.iov_len - skip_, kCallSizeMax);
        }
        return call;
    }

    // `size` bytes have moved: at most what next() asked for.
    void advance(uint64_t size) {
        left_ -= size;
        while (size > 0) {
            const uint64_t step = std::min<uint64_t>(size, pieces_.front().iov_len - skip_);
            skip_ += step;
            size -= step;
            if (skip_ == pieces_.front().iov_len) drop_piece();
        }
    }

private:
    void drop_piece() {
        pieces_ = pieces_.subspan(1);
        skip_ = 0;
    }

    std::span<const iovec> pieces_;  // the first is the one in work
    uint64_t skip_ = 0;              // bytes of it that are over
    uint64_t left_ = 0;              // bytes over all pieces
};

}  // namespace penstock::storage
