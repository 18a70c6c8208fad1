// The decisions of ondemand_readahead(), in the same order.
#include "readahead/linux_window_fixture.h"

#include <algorithm>
#include <bit>

namespace penstock::readahead {
namespace {

uint64_t first_size(uint64_t count, uint64_t most) {
    const uint64_t size = std::bit_ceil(count);
    if (size <= most / 32) return size * 4;
    if (size <= most / 4) return size * 2;
    return most;
}

uint64_t next_size(uint64_t size, uint64_t most) {
    if (size < most / 16) return 4 * size;
    if (size <= most / 2) return 2 * size;
    return most;
}

// Returns how many consecutive pages are present, downwards from the one before `index`.
uint64_t history(const LinuxPages& pages, uint64_t index, uint64_t most) {
    uint64_t count = 0;
    while (count < most && count < index && pages.has(index - 1 - count)) ++count;
    return count;
}

}  // namespace

void LinuxWindow::submit(LinuxPages& pages, uint64_t index, uint64_t count,
                         uint64_t lookahead) const {
    if (index >= file_pages_) return;
    const uint64_t mark = lookahead == 0 ? UINT64_MAX : index + count - lookahead;
    pages.submit(index, std::min(count, file_pages_ - index), mark);
}

// Places the window. Returns false for a small random read, which is read without a window.
bool LinuxWindow::place(LinuxPages& pages, uint64_t index, uint64_t count, bool marked,
                        uint64_t most) {
    if (index != 0 && (index == start_ + size_ - async_size_ || index == start_ + size_)) {
        start_ += size_;
        size_ = next_size(size_, most);
        async_size_ = size_;
        return true;
    }
    if (index != 0 && marked) {
        // Another reader left the mark: its window continues at the first missing page.
        uint64_t missing = index + 1;
        while (missing - index <= most && pages.has(missing)) ++missing;
        if (missing - index > most) {
            size_ = 0;
            return true;
        }
        start_ = missing;
        size_ = next_size(missing - index + count, most);
        async_size_ = size_;
        return true;
    }
    const bool initial = index == 0 || count > most || index - previous_ <= 1;
    if (!initial) {
        uint64_t before = history(pages, index, most);
        if (before <= count) return false;
        if (before >= index) before *= 2;
        start_ = index;
        size_ = std::min(before + count, most);
        async_size_ = 1;
        return true;
    }
    start_ = index;
    size_ = first_size(count, most);
    async_size_ = size_ > count ? size_ - count : size_;
    return true;
}

void LinuxWindow::advance(LinuxPages& pages, uint64_t index, uint64_t count, bool marked) {
    uint64_t most = kPagesMax;
    if (count > most) most = std::min(count, kRequestPagesMax);
    const uint64_t start = start_, size = size_, async_size = async_size_;
    if (!place(pages, index, count, marked, most)) {
        submit(pages, index, count, 0);
        return;
    }
    if (size_ == 0) {  // everything after the mark is present
        start_ = start, size_ = size, async_size_ = async_size;
        return;
    }
    // The read would reach the window's own mark at once, so the next window is added.
    if (index == start_ && size_ == async_size_) {
        const uint64_t more = next_size(size_, most);
        if (size_ + more <= most) {
            async_size_ = more;
            size_ += more;
        } else {
            size_ = most;
            async_size_ = most / 2;
        }
    }
    submit(pages, start_, size_, async_size_);
}

}  // namespace penstock::readahead
