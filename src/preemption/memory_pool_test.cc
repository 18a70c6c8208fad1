// Goal: ranges never overlap, and what was given back can be taken again.
#include "preemption/memory_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace penstock::preemption {
namespace {

TEST(MemoryPool, RangesAreDisjointAndReused) {
    constexpr size_t kSize = 64 << 10;
    MemoryPool pool(kSize);
    std::map<size_t, size_t> taken;
    std::mt19937 random(1);
    size_t refused = 0;
    for (int i = 0; i < 20'000; ++i) {
        if (random() % 2 == 0 && !taken.empty()) {
            auto one = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
            pool.give_back(one->first);
            taken.erase(one);
            continue;
        }
        const size_t size = 1 + random() % 5000, largest = pool.largest();
        const auto offset = pool.take(size);
        ASSERT_EQ(offset.has_value(), (size + 255) / 256 * 256 <= largest);
        if (!offset) {
            ++refused;
            continue;
        }
        ASSERT_LE(*offset + size, kSize);
        const auto behind = taken.lower_bound(*offset);
        ASSERT_TRUE(behind == taken.end() || *offset + size <= behind->first);
        ASSERT_TRUE(behind == taken.begin() ||
                    std::prev(behind)->first + std::prev(behind)->second <= *offset);
        taken[*offset] = size;
    }
    EXPECT_GT(refused, 100u);
    for (const auto& [offset, size] : taken) pool.give_back(offset);
    EXPECT_EQ(pool.largest(), kSize);
    EXPECT_FALSE(pool.take(0).has_value());
    EXPECT_FALSE(pool.take(kSize + 1).has_value());
}

}  // namespace
}  // namespace penstock::preemption
