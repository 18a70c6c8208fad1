#include "transfer/window_cutter.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "transfer/request.h"

namespace penstock::transfer {
namespace {

constexpr uint64_t kCutSize = 64 << 10;  // file alignment of cuts that are not at window boundaries
// Windows in a staged range. All threads must have a share of it, but the cost of giving out a
// window must stay small.
constexpr uint64_t kRangeWindows = 16;
constexpr uint64_t kRangeWindowSizeMin = kPlanSizeMin, kRangeWindowSizeMax = 1 << 20;
// The size of the first staged range after a miss.
constexpr uint64_t kRangeSizeAgain = 4 << 20;

// Returns the length of the next window, of `left` bytes from `begin` of the file on. It ends at a
// multiple of the window size in the file, so that direct transfers of neighbours meet at aligned
// offsets.
uint64_t cut_size(uint64_t begin, uint64_t left, uint64_t window_size) {
    if (left <= window_size) return left;
    uint64_t size = window_size - begin % window_size;
    // Less than kPlanSizeMin would go through the page cache and stay there.
    if (size < kPlanSizeMin) size += window_size / 2;
    if (left - size >= kPlanSizeMin) return size;
    return left <= kRequestSizeMax ? left : base::align_down(begin + left / 2, kCutSize) - begin;
}

}  // namespace

WindowCutter::WindowCutter(std::vector<Piece> pieces, uint64_t window_size)
    : pieces_(std::move(pieces)), window_size_(std::min(window_size, kRequestSizeMax)) {
    size_t jumps = 0;
    for (const Piece& piece : pieces_) {
        if (&piece != pieces_.data() && piece.offset != (&piece)[-1].offset + (&piece)[-1].size)
            ++jumps;
        left_ += piece.size;
        window_count_ += (piece.size + window_size_ - 1) / window_size_;
        window_size_max_ = std::max(window_size_max_, std::min(piece.size, window_size_));
    }
    scattered_ = 2 * jumps > pieces_.size();
    skip_ended_pieces();
}

void WindowCutter::skip_ended_pieces() {
    for (; piece_ < pieces_.size() && begin_ == pieces_[piece_].size; begin_ = 0) ++piece_;
}

// Returns the next `size` bytes.
Window WindowCutter::next(uint64_t size) const {
    const Piece& piece = pieces_[piece_];
    return {piece_, static_cast<std::byte*>(piece.to) + begin_, piece.offset + begin_, size,
            nullptr};
}

Window WindowCutter::cut() {
    const bool of_range = range_left_ != 0;
    const uint64_t left = of_range ? range_left_ : piece_left();
    const uint64_t begin = pieces_[piece_].offset + begin_;
    Window window = next(cut_size(begin, left, of_range ? range_window_size_ : window_size_));
    if (of_range) {
        window.range = range_;
        range_left_ -= window.size;
    }
    left_ -= window.size;
    begin_ += window.size;
    skip_ended_pieces();
    return window;
}

Window WindowCutter::next_range() const {
    const uint64_t begin = pieces_[piece_].offset + begin_, left = piece_left();
    uint64_t size = next_range_size_;
    if (piece_ + 1 == pieces_.size())  // the last staged range is copied while nothing is read
        size = std::min(size, base::align_up(left / 2, kRangeSizeMin));
    size = base::align_down(begin + size, kRangeSizeMin) - begin;
    if (size < kRangeSizeMin / 2) size += kRangeSizeMin;  // avoids a copy of a few bytes
    size = std::min(left, size);
    if (left - size < kRangeSizeMin) size = left;  // the rest is too short for its own staged range
    return next(size);
}

void WindowCutter::open(StagedRange* range) {
    range_ = range;
    range_left_ = next_range().size;
    const uint64_t least = missed_ ? kRangeWindowSizeMax : kRangeWindowSizeMin;
    range_window_size_ = std::clamp(base::align_up(range_left_ / kRangeWindows, kCutSize), least,
                                    kRangeWindowSizeMax);
    next_range_size_ = std::min(2 * next_range_size_, kRangeSizeMax);
}

void WindowCutter::miss() {
    missed_ = true;
    next_range_size_ = kRangeSizeAgain;
}

}  // namespace penstock::transfer
