// A position within the pieces of an operation. It says what a short call has left to move, and
// checks the bounds of a request.
//
// Pure: makes no system call. One thread per object.
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

// Linux moves at most this many bytes in one call.
inline constexpr uint64_t kCallSizeMax = 0x7ffff000;
inline constexpr size_t kCallPiecesMax = IOV_MAX;

// Returns 0, or the errno that refuses `operation` before any byte moves. Stores the sum of its
// lengths in `*size`. As with preadv and pwritev, EINVAL means that the end lies beyond off_t.
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

// The rest of an operation. Each call of next() returns a part of it that one system call can take.
class Scatter {
public:
    // What one call moves: either one range, or `count` whole pieces.
    struct Call {
        void* base = nullptr;  // the range, if `count` is 0
        size_t size = 0;       // bytes of the call in either form
        const iovec* pieces = nullptr;
        unsigned count = 0;
    };

    Scatter() = default;
    Scatter(std::span<const iovec> pieces, uint64_t size) : pieces_(pieces), left_(size) {}

    [[nodiscard]] bool done() const { return left_ == 0; }

    // Returns the next call. Requires !done(). A piece goes as one range if it is partly moved, is
    // the only one, or is longer than a call can move. No array is ever copied.
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

    // Records that `size` bytes have moved; next() must have returned at least that many.
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

    std::span<const iovec> pieces_;  // the first one is in progress
    uint64_t skip_ = 0;              // bytes of the first piece that have moved
    uint64_t left_ = 0;              // bytes left in all pieces
};

}  // namespace penstock::storage
