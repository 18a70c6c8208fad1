// A first-in, first-out queue that takes its memory once. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace penstock::base {

template <class T>
class BoundedQueue {
public:
    explicit BoundedQueue(size_t capacity) : slots_(capacity) {}

    [[nodiscard]] size_t size() const { return count_; }
    [[nodiscard]] size_t capacity() const { return slots_.size(); }
    [[nodiscard]] bool empty() const { return count_ == 0; }

    // Requires room: the user of the queue bounds its content.
    void push(const T& value) {
        PENSTOCK_CHECK(count_ < slots_.size(), "a bounded queue was fed more than its bound");
        slots_[wrap(first_ + count_)] = value;
        ++count_;
    }

    T pop() {
        PENSTOCK_CHECK(count_ > 0, "a bounded queue was popped when empty");
        T value = slots_[first_];
        first_ = wrap(first_ + 1);
        --count_;
        return value;
    }

private:
    // A division would slow small reads down.
    [[nodiscard]] size_t wrap(size_t at) const {
        return at < slots_.size() ? at : at - slots_.size();
    }

    std::vector<T> slots_;
    size_t first_ = 0;  // the oldest
    size_t count_ = 0;
};

}  // namespace penstock::base
