// Goal: runs of words never overlap, nothing is lost, and what comes back is one run again.
#include "service/directory_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace penstock::service {
namespace {

TEST(DirectorySpaceTest, runs_grow_only_into_what_is_free_behind_them) {
    DirectorySpace space(100);
    EXPECT_EQ(space.take(10), 0u);
    EXPECT_EQ(space.take(20), 10u);
    EXPECT_EQ(space.take_at(10, 5), 0u) << "taken";
    EXPECT_EQ(space.take_at(30, 5), 5u);
    EXPECT_EQ(space.take_at(35, 1000), 65u);
    EXPECT_EQ(space.take(1), std::nullopt);
    space.give_back(0, 10);
    EXPECT_EQ(space.take(11), std::nullopt);
    EXPECT_EQ(space.take(10), 0u);
}

TEST(DirectorySpaceTest, random_runs_equal_a_flat_array) {
    constexpr uint64_t kWords = 256;
    base::Prng random(7);
    DirectorySpace space(kWords);
    std::vector<int> owner(kWords, 0);  // 0: free
    struct Run {
        uint64_t first, count;
        int name;
    };
    std::vector<Run> runs;
    const auto claim = [&](uint64_t first, uint64_t count, int name) {
        for (uint64_t i = first; i < first + count; ++i) {
            ASSERT_EQ(owner.at(i), 0);
            owner[i] = name;
        }
    };
    for (int name = 1; name <= 20'000; ++name) {
        const uint64_t what = random.below(3);
        if (what == 0) {
            const uint64_t count = 1 + random.below(24);
            uint64_t longest = 0, length = 0;
            for (const int mine : owner) {
                length = mine == 0 ? length + 1 : 0;
                longest = std::max(longest, length);
            }
            const auto first = space.take(count);
            ASSERT_EQ(first.has_value(), longest >= count);
            if (!first.has_value()) continue;
            claim(*first, count, name);
            runs.push_back({*first, count, name});
        } else if (!runs.empty() && what == 1) {
            Run& run = runs[random.below(runs.size())];
            const uint64_t end = run.first + run.count, most = 1 + random.below(16);
            uint64_t room = 0;
            while (room < most && end + room < kWords && owner[end + room] == 0) ++room;
            const uint64_t more = space.take_at(end, most);
            ASSERT_EQ(more, room);
            claim(end, more, run.name);
            run.count += more;
        } else if (!runs.empty()) {
            std::swap(runs[random.below(runs.size())], runs.back());
            const Run run = runs.back();
            runs.pop_back();
            for (uint64_t i = run.first; i < run.first + run.count; ++i) owner[i] = 0;
            space.give_back(run.first, run.count);
        }
    }
    for (const Run& run : runs) space.give_back(run.first, run.count);
    EXPECT_EQ(space.take(kWords), 0u);
}

}  // namespace
}  // namespace penstock::service
