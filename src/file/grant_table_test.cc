#include "file/grant_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace penstock::file {
namespace {

constexpr int kSteps = 20'000;
constexpr uint32_t kFiles = 5, kChunks = 40;

// All grants, the oldest first, looked through from end to end.
class Reference {
public:
    void add(const Grant& grant) { all_.push_back(grant); }
    void remove(const Grant& grant) { all_.erase(std::ranges::find(all_, grant)); }
    [[nodiscard]] const std::vector<Grant>& all() const { return all_; }
    [[nodiscard]] bool contains(const Grant& grant) const {
        return std::ranges::find(all_, grant) != all_.end();
    }

    [[nodiscard]] std::vector<Grant> of(uint32_t file, uint64_t first, uint64_t last) const {
        std::vector<Grant> found;
        std::ranges::copy_if(all_, std::back_inserter(found), [&](const Grant& one) {
            return one.file == file && one.number >= first && one.number <= last;
        });
        std::ranges::sort(found, {},
                          [](const Grant& one) { return std::pair(one.number, one.chunk); });
        return found;
    }

private:
    std::vector<Grant> all_;
};

TEST(GrantTable, AgreesWithAListOfAllGrants) {
    base::Prng prng(33);
    GrantTable table;
    Reference reference;
    for (int step = 0; step < kSteps; ++step) {
        const auto file = static_cast<uint32_t>(prng.below(kFiles));
        const uint64_t number = prng.below(kChunks);
        // A chunk that is stale, and the one that has taken its place.
        const auto chunk = static_cast<uint32_t>((file * kChunks + number) * 2 + prng.below(2));
        const Grant grant{chunk, chunk + 1, file, number};
        ASSERT_EQ(table.contains(grant), reference.contains(grant));
        if (!reference.contains(grant)) {
            table.add(grant);
            reference.add(grant);
        } else {
            table.remove(grant);
            reference.remove(grant);
        }
        ASSERT_EQ(table.size(), reference.all().size());
        ASSERT_EQ(table.empty(), reference.all().empty());
        ASSERT_TRUE(std::ranges::equal(table.all(), reference.all()));
        if (!table.empty()) {
            ASSERT_EQ(table.oldest(), reference.all().front());
        }
        const uint64_t first = prng.below(kChunks), last = first + prng.below(kChunks);
        ASSERT_EQ(table.of(file, first, last), reference.of(file, first, last));
        ASSERT_EQ(table.of(file), reference.of(file, 0, kChunks));
    }
}

}  // namespace
}  // namespace penstock::file
