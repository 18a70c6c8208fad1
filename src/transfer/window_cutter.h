// Cuts the pieces of one call into windows, from front to back. The windows of a staged range are
// smaller, because several threads share them.
//
// Pure. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::transfer {

struct StagedRange;  // staged_range.h
// A read of at least kRangeSizeMin uses staged ranges. The first ones are short, so that the link
// is soon busy, and so are the last ones.
inline constexpr uint64_t kRangeSizeMin = 1 << 20, kRangeSizeMax = 8 << 20;

// Bytes [offset, offset + size) of the file are read into `to`. In a write they come from `to`,
// which is then only read.
struct Piece {
    void* to = nullptr;
    uint64_t size = 0;
    uint64_t offset = 0;
};

// A part of a piece. It is small enough for one request of an executor.
struct Window {
    size_t piece = 0;
    std::byte* to = nullptr;
    uint64_t offset = 0;  // in the file
    uint64_t size = 0;
    StagedRange* range = nullptr;  // the staged range that it is part of; null: none
};

class WindowCutter {
public:
    // A window has at most `window_size` bytes, and at most kRequestSizeMax.
    WindowCutter(std::vector<Piece> pieces, uint64_t window_size);

    [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
    // Returns the most windows that all pieces can give. Pieces need not start at window
    // boundaries.
    [[nodiscard]] uint64_t window_count() const { return window_count_; }
    [[nodiscard]] uint64_t window_size_max() const { return window_size_max_; }
    // Returns whether most pieces do not begin where the one before ends.
    [[nodiscard]] bool scattered() const { return scattered_; }

    // Returns the bytes that are not cut yet.
    [[nodiscard]] uint64_t left() const { return left_; }
    // Cuts the next window. Requires left() > 0.
    Window cut();

    // Returns whether a staged range may begin here: none is open, and a long part of a piece
    // follows.
    [[nodiscard]] bool may_open() const {
        return range_left_ == 0 && piece_left() >= kRangeSizeMin;
    }
    // Returns the bytes of the staged range that begins here. Requires may_open().
    [[nodiscard]] Window next_range() const;
    // Begins the staged range `range`, which spans next_range(). Its windows are cut next.
    void open(StagedRange* range);
    // Records that a window is in no staged range, because the file is not hot. Later staged ranges
    // have longer windows, because a miss in one window delays all windows of its staged range.
    void miss();
    [[nodiscard]] bool missed() const { return missed_; }
    // Returns the newest staged range and its bytes that are not cut yet.
    [[nodiscard]] StagedRange* range() const { return range_; }
    [[nodiscard]] uint64_t range_left() const { return range_left_; }

private:
    [[nodiscard]] uint64_t piece_left() const {
        return left_ == 0 ? 0 : pieces_[piece_].size - begin_;
    }
    [[nodiscard]] Window next(uint64_t size) const;
    void skip_ended_pieces();

    const std::vector<Piece> pieces_;
    const uint64_t window_size_;
    uint64_t window_count_ = 0;
    uint64_t window_size_max_ = 0;  // of all windows
    bool scattered_ = false;

    size_t piece_ = 0;    // the piece of the first byte that is not cut
    uint64_t begin_ = 0;  // of that byte, within the piece
    uint64_t left_ = 0;
    StagedRange* range_ = nullptr;
    uint64_t range_left_ = 0;
    uint64_t range_window_size_ = 0;
    uint64_t next_range_size_ = kRangeSizeMin;  // doubles up to kRangeSizeMax
    bool missed_ = false;
};

}  // namespace penstock::transfer
