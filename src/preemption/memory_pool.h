// Divides one range of memory among launches: first fit. Not thread safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace penstock::preemption {

class MemoryPool {
public:
    explicit MemoryPool(size_t size = 0) : size_(size) {}

    // Returns the offset of a free range, aligned to 256, or nothing if there is none.
    std::optional<size_t> take(size_t size) {
        size = (size + kAlignment - 1) / kAlignment * kAlignment;
        size_t offset = 0;
        for (const auto& [begin, end] : taken_) {
            if (begin - offset >= size) break;
            offset = end;
        }
        if (size == 0 || size_ - offset < size) return {};
        taken_[offset] = offset + size;
        return offset;
    }
    void give_back(size_t offset) { taken_.erase(offset); }
    // Returns the size of the largest free range.
    [[nodiscard]] size_t largest() const {
        size_t offset = 0, largest = 0;
        for (const auto& [begin, end] : taken_) {
            if (begin - offset > largest) largest = begin - offset;
            offset = end;
        }
        return size_ - offset > largest ? size_ - offset : largest;
    }

private:
    static constexpr size_t kAlignment = 256;
    size_t size_;
    std::map<size_t, size_t> taken_;  // begin and end, disjoint
};

}  // namespace penstock::preemption
