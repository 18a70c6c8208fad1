// Goal: cooperative groups give each GPU thread what its tile holds: against loops over the ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>

#include "cuda_language/fixture.h"

namespace penstock::cuda_language {
namespace {

constexpr unsigned kThreads = 64;

class Groups : public CudaLanguage {
protected:
    void SetUp() override {
        CudaLanguage::SetUp();
        in_ = array<int>(kThreads);
        out_ = array<GroupResults>(kThreads);
        for (unsigned i = 0; i < kThreads; ++i) in_[i] = static_cast<int>(i * 37 % 101) - 20;
        const Status done = run({1, {32, 2}}, use_groups, static_cast<const int*>(in_), out_);
        ASSERT_TRUE(done.ok()) << done.message();
    }
    // Combines the values of `size` ranks from `first` on.
    template <class Operation>
    int fold(unsigned first, unsigned size, Operation operation) const {
        int total = in_[first];
        for (unsigned i = 1; i < size; ++i) total = operation(total, in_[first + i]);
        return total;
    }

    int* in_ = nullptr;
    GroupResults* out_ = nullptr;
};

int plus(int a, int b) { return a + b; }
int least(int a, int b) { return std::min(a, b); }
int largest(int a, int b) { return std::max(a, b); }

TEST_F(Groups, ThreadsKnowTheirPlace) {
    for (unsigned i = 0; i < kThreads; ++i) {
        const GroupResults& r = out_[i];
        EXPECT_EQ(r.block_rank, i + 1000 * (i / 32) + 10000 * 32);
        EXPECT_EQ(r.block_size, kThreads);
        EXPECT_EQ(r.tile_rank, i % 8);
        EXPECT_EQ(r.tile_size, 8u);
        EXPECT_EQ(r.meta_rank, i / 8);
        EXPECT_EQ(r.meta_size, kThreads / 8);
        EXPECT_EQ(r.grid_rank, i);
        EXPECT_EQ(r.coalesced_size, 1u) << "threads of a warp never run in step here";
        EXPECT_EQ(r.dynamic_size, 16);
        EXPECT_EQ(r.dynamic_rank, static_cast<int>(1600 + i % 16));
    }
}

TEST_F(Groups, TilesReduceAndScan) {
    for (unsigned i = 0; i < kThreads; ++i) {
        const GroupResults& r = out_[i];
        const unsigned tile = i / 8 * 8;
        EXPECT_EQ(r.sum, fold(tile, 8, plus));
        EXPECT_EQ(r.least, fold(i / 32 * 32, 32, least));
        EXPECT_EQ(r.largest, fold(i / 32 * 32, 32, largest));
        EXPECT_EQ(r.every, fold(tile, 8, std::bit_and<>()) + fold(tile, 8, std::bit_or<>()) +
                               fold(tile, 8, std::bit_xor<>()));
        EXPECT_EQ(r.product, fold(tile, 8, [](int a, int b) { return a * b % 1009; }));
        EXPECT_EQ(r.inclusive, fold(tile, i % 8 + 1, plus));
        EXPECT_EQ(r.exclusive, i % 8 == 0 ? 0 : fold(tile, i % 8, plus));
        EXPECT_EQ(r.small_sum, fold(i / 4 * 4, 4, plus));
        int part_sum = 0, part_size = 0;
        for (unsigned k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
            if ((k % 4 == 0) != (i % 4 == 0)) continue;
            part_sum += in_[k];
            ++part_size;
        }
        EXPECT_EQ(r.part_size, part_size);
        EXPECT_EQ(r.part_sum, part_sum);
        // Of the labels, that of lane 0 is the first, that of lane 1 the second.
        EXPECT_EQ(r.part_rank,
                  (i % 4 == 0 ? 1u : 0u) + 10 * (i % 32 % 3) + 300 + 1000 * (i % 32 / 3));
    }
}

TEST_F(Groups, TilesShuffleAndVote) {
    for (unsigned i = 0; i < kThreads; ++i) {
        const GroupResults& r = out_[i];
        const unsigned tile = i / 8 * 8, rank = i % 8;
        EXPECT_EQ(r.from_two, in_[tile + 2]);
        EXPECT_EQ(r.up, in_[rank < 3 ? i : i - 3]);
        EXPECT_EQ(r.down, in_[rank + 3 < 8 ? i + 3 : i]);
        EXPECT_EQ(r.exchanged, in_[i ^ 16]);
        for (int k = 0; k < 3; ++k) EXPECT_EQ(r.wide[k], in_[tile + 5] * (k + 1.0));
        EXPECT_EQ(r.votes, 0x55u);
        EXPECT_EQ(r.any, tile == 8 ? 1u : 0u);
        EXPECT_EQ(r.all, tile < 56 ? 1u : 0u);
        EXPECT_EQ(r.same, rank < 3 ? 0x07u : rank < 6 ? 0x38u : 0xc0u);
        EXPECT_EQ(r.all_same, 0xffu);
        EXPECT_EQ(r.copied, in_[63 - i]);
        EXPECT_EQ(r.agreed, 11);
        unsigned same = 0;
        for (unsigned k = 0; k < 32; ++k) same |= (i / 32 * 32 + k) % 3 == i % 3 ? 1u << k : 0u;
        EXPECT_EQ(r.matched, same);
    }
}

TEST_F(Groups, AGridOfOneBlockMeetsAndALargerOneSaysWhyNot) {
    int* out = array<int>(1);
    ASSERT_TRUE(run({1, 2}, sync_grid, out).ok());
    EXPECT_EQ(*out, 2);
    const Status refused = run({2, 2}, sync_grid, out);
    EXPECT_EQ(refused.error_number(), EFAULT);
    EXPECT_THAT(refused.message(), testing::HasSubstr("cuda_language_test/sync_grid"));
    EXPECT_THAT(refused.message(), testing::HasSubstr("cannot wait for each other"));
}

}  // namespace
}  // namespace penstock::cuda_language
