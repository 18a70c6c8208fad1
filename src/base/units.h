// Sizes in bytes, and rounding to powers of two. Pure. Host only; device/ has its own for device
// code.
#pragma once

#include <cstdint>

namespace penstock::base {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

[[nodiscard]] constexpr bool is_power_of_two(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

// Rounds down. `alignment` is a power of two.
[[nodiscard]] constexpr uint64_t align_down(uint64_t value, uint64_t alignment) {
    return value & ~(alignment - 1);
}

// Rounds up. The result must fit: `value` <= UINT64_MAX - alignment + 1.
[[nodiscard]] constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
    return align_down(value + alignment - 1, alignment);
}

}  // namespace penstock::base
