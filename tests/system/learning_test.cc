// Goal: what a kernel had to wait for in one launch is there before it asks in the next, whatever
// else changed in between; and nothing is read for kernels that read something else each time.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kFilePages = 6000;

using Pages = std::vector<std::vector<uint64_t>>;  // that each block reads, in order

class LearningTest : public ::testing::TestWithParam<bool> {
protected:
    LearningTest()
        : machine_({.permits = 2,
                    .page_size = kPage,
                    .frames = 4000,
                    .helping = !GetParam(),
                    .lanes = 32,
                    .remote = GetParam()}) {}
    void SetUp() override {
        if (testing::kThreadSanitizer) GTEST_SKIP() << "counts; races are for RandomPrograms";
        if (on_gpu() && !GetParam()) GTEST_SKIP() << "as the other on a GPU";
        ASSERT_TRUE(machine_.ok());
        machine_.create_file("f", kFilePages * kPage, 7);
    }

    // Pages that a launch asked for while it ran; `learned`: ahead of it.
    uint64_t misses(const Pages& pages, uint64_t* learned = nullptr) {
        machine_.scratch().clear();
        const Descriptor file = machine_.fs().open(machine_.files().path("f")).value();
        std::vector<std::vector<Step>> blocks;
        for (const auto& mine : pages) {
            std::vector<Step> steps = {set_step(0, file)};
            for (const uint64_t page : mine) {
                steps.push_back(read_step(0, static_cast<int64_t>(page * kPage), kPage,
                                          machine_.scratch().array<std::byte>(kPage)));
            }
            blocks.push_back(std::move(steps));
        }
        const FileSystemStatistics before = machine_.fs().statistics();
        const Status status = machine_.run(&blocks);
        EXPECT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        const FileSystemStatistics after = machine_.fs().statistics();
        for (const auto& steps : blocks) {
            for (const Step& step : steps) {
                if (step.act != Act::kRead) continue;
                EXPECT_EQ(step.result, static_cast<int64_t>(kPage));
                EXPECT_EQ(machine_.files().file("f").mismatch(static_cast<uint64_t>(step.offset),
                                                              {step.out, kPage}),
                          kPage);
            }
        }
        const uint64_t ahead = after.pages.learned - before.pages.learned;
        if (learned != nullptr) *learned = ahead;
        EXPECT_TRUE(machine_.fs().close(file).ok());
        return after.demanded_pages - before.demanded_pages - ahead;
    }

    // Takes the file out of the cache, by another kernel.
    void forget() {
        const Descriptor file = machine_.fs().open(machine_.files().path("f")).value();
        Stream& stream = machine_.stream();
        ASSERT_TRUE(
            launch(stream, {{4}, {32}}, forget_file, machine_.fs().device_handle(), file).ok());
        ASSERT_TRUE(stream.synchronize(std::chrono::seconds(60)).ok());
        EXPECT_TRUE(machine_.fs().close(file).ok());
    }

    Machine machine_;
};

// Blocks whose reads depend on their number, in an order that no window follows.
Pages scattered(uint64_t blocks) {
    Pages pages(blocks);
    for (uint64_t b = 0; b < blocks; ++b) {
        for (uint64_t i = 0; i < 12; ++i) pages[b].push_back(b * 11 + i % 3 * 1700 + i / 3 * 400);
    }
    return pages;
}

Pages at_random(uint64_t blocks, uint64_t seed) {
    base::Prng prng(seed);
    Pages pages(blocks);
    for (auto& mine : pages) {
        for (int i = 0; i < 20; ++i) mine.push_back(prng.below(kFilePages));
    }
    return pages;
}

uint64_t distinct(const Pages& pages) {
    std::vector<uint64_t> all;
    for (const auto& mine : pages) all.insert(all.end(), mine.begin(), mine.end());
    std::ranges::sort(all);
    return static_cast<uint64_t>(std::ranges::unique(all).begin() - all.begin());
}

TEST_P(LearningTest, ASecondLaunchMissesNothing) {
    uint64_t learned = 0;
    EXPECT_EQ(misses(scattered(20), &learned), distinct(scattered(20)));
    EXPECT_EQ(learned, 0u);
    for (const uint64_t blocks : {20, 20, 5, 31}) {  // what depends on the block serves any grid
        forget();
        EXPECT_EQ(misses(scattered(blocks), &learned), 0u) << blocks << " blocks";
        EXPECT_EQ(learned, distinct(scattered(blocks)));
    }
    // What is cached is not asked for again.
    EXPECT_EQ(misses(scattered(20), &learned), 0u);
    EXPECT_EQ(learned, 0u);
}

// A grid that is larger than the file has room for: behind its end lie the pages of the file that
// was opened next, which are to keep their bytes.
TEST_P(LearningTest, AProgramThatLeadsBeyondTheFileEndsThere) {
    const auto by_block = [](uint64_t blocks) {
        Pages pages(blocks);
        for (uint64_t b = 0; b < blocks; ++b) {
            for (uint64_t i = 0; i < 3; ++i) pages[b].push_back((b * 512 + i * 7) % kFilePages);
        }
        return pages;
    };
    const uint64_t blocks = kFilePages / 512;
    constexpr uint64_t kLeaves = 24;
    ASSERT_TRUE(machine_.files().create("next"));
    ASSERT_TRUE(machine_.files().resize("next", kLeaves * 512 * kPage));
    for (uint64_t leaf = 0; leaf < kLeaves; ++leaf) {
        ASSERT_TRUE(machine_.files().write("next", leaf * 512 * kPage,
                                           storage::random_bytes(leaf, 8 * kPage)));
    }
    uint64_t learned = 0;
    const Descriptor first = machine_.fs().open(machine_.files().path("f")).value();
    const Descriptor other = machine_.fs().open(machine_.files().path("next")).value();
    misses(by_block(blocks), &learned);
    for (const uint64_t more : {blocks, 3 * blocks}) {
        forget();
        misses(by_block(more), &learned);
        EXPECT_EQ(machine_.broken_invariant(), 0);
    }
    EXPECT_LE(learned, kFilePages);
    auto* out = machine_.scratch().array<std::byte>(kPage);
    for (uint64_t page = 0; page < kLeaves * 512; page += 512) {
        std::vector<std::vector<Step>> steps = {
            {set_step(0, other), read_step(0, static_cast<int64_t>(page * kPage), kPage, out)}};
        ASSERT_TRUE(machine_.run(&steps).ok());
        ASSERT_EQ(machine_.files().file("next").mismatch(page * kPage, {out, kPage}), kPage)
            << "page " << page << " of another file";
    }
    EXPECT_TRUE(machine_.fs().close(other).ok());
    EXPECT_TRUE(machine_.fs().close(first).ok());
}

TEST_P(LearningTest, AStreamHasItsFirstPagesAndReadsAheadFromThere) {
    Pages pages(8);
    for (uint64_t b = 0; b < 8; ++b) {
        for (uint64_t i = 0; i < 100; ++i) pages[b].push_back(b * 700 + i);
    }
    const uint64_t missed = misses(pages);
    EXPECT_GE(missed, 8u);
    EXPECT_LT(missed, 200u) << "the rest came by windows";
    forget();
    EXPECT_EQ(misses(pages), 0u);
}

TEST_P(LearningTest, TheSameListTwiceIsBelieved) {
    const Pages pages = at_random(10, 5);
    uint64_t learned = 0;
    for (int launch = 0; launch < 2; ++launch) {
        EXPECT_EQ(misses(pages, &learned), distinct(pages));
        EXPECT_EQ(learned, 0u);
        forget();
    }
    EXPECT_EQ(misses(pages, &learned), 0u);
    EXPECT_EQ(learned, distinct(pages));
}

TEST_P(LearningTest, RandomReadsCostNothingMore) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        const uint64_t before = machine_.fs().statistics().bytes_read;
        uint64_t learned = 0;
        const Pages pages = at_random(10, seed);
        misses(pages, &learned);
        EXPECT_EQ(learned, 0u);
        EXPECT_LE(machine_.fs().statistics().bytes_read - before, distinct(pages) * kPage);
    }
}

TEST_P(LearningTest, AnotherFileIsNotTheOneThatWasLearned) {
    misses(scattered(20));
    machine_.create_file("g", 100 * kPage, 8);
    ASSERT_TRUE(machine_.files().rename("g", "f"));
    uint64_t learned = 0;
    Pages pages(4);
    for (uint64_t b = 0; b < 4; ++b) pages[b] = {b * 7, b * 7 + 61, b * 7 + 30};
    EXPECT_EQ(misses(pages, &learned), 12u);
    EXPECT_EQ(learned, 0u);
}

INSTANTIATE_TEST_SUITE_P(On, LearningTest, ::testing::Values(false, true), [](const auto& made) {
    return made.param ? "a_remote_device" : "the_device";
});

}  // namespace
}  // namespace penstock::system_test
