// Byte ranges of a file: overlap, adjacency, and merging of sorted ranges into runs.
//
// Pure: no I/O, no clock, no allocation. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::extent {

// Bytes [offset, end()). offset + size must fit in 64 bits; files end below 2^63.
struct Extent {
    uint64_t offset = 0;
    uint64_t size = 0;

    [[nodiscard]] constexpr uint64_t end() const { return offset + size; }
    [[nodiscard]] constexpr bool empty() const { return size == 0; }
    [[nodiscard]] constexpr bool contains(uint64_t byte) const {
        return byte >= offset && byte - offset < size;
    }
    friend constexpr bool operator==(const Extent&, const Extent&) = default;
};

// Returns whether they share a byte. An empty extent shares none.
[[nodiscard]] constexpr bool overlap(const Extent& a, const Extent& b) {
    return !a.empty() && !b.empty() && a.offset < b.end() && b.offset < a.end();
}

// Returns whether one begins where the other ends.
[[nodiscard]] constexpr bool adjacent(const Extent& a, const Extent& b) {
    return a.end() == b.offset || b.end() == a.offset;
}

// Returns the shared bytes. If there are none, returns an empty extent at the later of the two
// offsets.
[[nodiscard]] constexpr Extent intersect(const Extent& a, const Extent& b) {
    const uint64_t offset = std::max(a.offset, b.offset);
    const uint64_t end = std::min(a.end(), b.end());
    return {offset, end > offset ? end - offset : 0};
}

// Returns the smallest extent that covers both. An empty extent adds nothing.
[[nodiscard]] constexpr Extent cover(const Extent& a, const Extent& b) {
    if (a.empty()) return b;
    if (b.empty()) return a;
    const uint64_t offset = std::min(a.offset, b.offset);
    return {offset, std::max(a.end(), b.end()) - offset};
}

// Joins, in place, extents that overlap or are adjacent. A run never becomes longer than `size_max`
// bytes by joining, so neighbouring runs may still overlap if `size_max` is reached. Empty extents
// are removed. `extents` must be sorted by offset. Returns the count of runs that are left, at the
// front and sorted.
constexpr size_t merge_sorted(std::span<Extent> extents, uint64_t size_max = UINT64_MAX) {
    size_t count = 0;
    for (const Extent& next : extents) {
        if (next.empty()) continue;
        if (count > 0 && next.offset <= extents[count - 1].end()) {
            const Extent joined = cover(extents[count - 1], next);
            if (joined.size <= size_max) {
                extents[count - 1] = joined;
                continue;
            }
        }
        extents[count++] = next;
    }
    return count;
}

}  // namespace penstock::extent
