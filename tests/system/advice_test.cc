// Goal: the advice that changes what is read does so on every device, a GPU too: what is needed is
// there before it is read, strides are read ahead from the first read on, and what is not reused
// leaves the rest in the cache. What each of them does in full: src/file/advice_test.cc.
#include <gtest/gtest.h>

#include "system/readahead_fixture.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

class AdviceEffectTest : public ::testing::TestWithParam<Way> {
protected:
    void SetUp() override {
        if (testing::kThreadSanitizer) GTEST_SKIP() << "counts; races are for RandomPrograms";
        if (on_gpu() && GetParam().remote) GTEST_SKIP() << "a GPU always is";
    }
    static Shape shape(uint64_t frames) {
        return {.permits = 1,
                .frames = frames,
                .helping = GetParam().helping,
                .workers = 2,
                .warps = GetParam().warps,
                .lanes = 96,
                .remote = GetParam().remote};
    }
};

TEST_P(AdviceEffectTest, WhatIsNeededIsThereBeforeItIsRead) {
    Machine machine(shape(2048));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 100 * kPage, 1);
    const Descriptor file = machine.fs().open(machine.files().path("f")).value();
    // No more than four requests of a slab of frames each, which is small on a GPU.
    Blocks blocks = {{set_step(0, file), advise_step(0, Advice::kRandom),
                      advise_step(0, Advice::kWillNeed, 3 * kSignedPage + 5, 11 * kPage)}};
    run_well(machine, blocks);
    EXPECT_EQ(blocks[0].back().result, 0);
    ASSERT_TRUE(machine.service().serve_all(std::chrono::seconds(30)).ok());
    EXPECT_EQ(machine.fs().statistics().requests, 12u) << "pages 3 to 14";
    EXPECT_EQ(machine.fs().file_statistics(file).value().advised, 12u);
    blocks = {{set_step(0, file)}};
    add_walk(machine, blocks[0], {0, kSignedPage, kPage, 30});
    run_well(machine, blocks);
    EXPECT_EQ(machine.fs().statistics().requests, 30u) << "those that were not there";
    EXPECT_EQ(machine.fs().file_statistics(file).value().hits, 12u);
}

TEST_P(AdviceEffectTest, StridesAreReadAheadFromTheFirstReadOn) {
    constexpr uint64_t kReads = 60;
    for (const int64_t step : {8 * kSignedPage, -8 * kSignedPage}) {
        const int64_t first = step > 0 ? 0 : static_cast<int64_t>(kReads) * -step;
        for (const uint64_t reads : {uint64_t{1}, kReads}) {
            Machine machine(shape(2048));
            ASSERT_TRUE(machine.ok());
            machine.create_file("f", 500 * kPage, 1);
            const Descriptor file = machine.fs().open(machine.files().path("f")).value();
            Blocks blocks = {{set_step(0, file), advise_step(0, Advice::kStrided, step, kPage)}};
            add_walk(machine, blocks[0], {first, step, kPage, reads});
            run_well(machine, blocks);
            const FileStatistics pages = machine.fs().file_statistics(file).value();
            EXPECT_GT(pages.prefetched, 0u) << step;
            EXPECT_EQ(pages.window_hits + pages.window_late, reads - 1) << step;
            EXPECT_EQ(pages.wasted, 0u) << step;
        }
    }
}

TEST_P(AdviceEffectTest, WhatIsNotReusedLeavesTheRestInTheCache) {
    constexpr uint64_t kReadPages = 4;
    for (const bool once : {false, true}) {
        // Without windows, which on a GPU are larger than what takes turns in such a cache.
        Shape wanted = shape(1024);
        wanted.readahead = Readahead::kOff;
        Machine machine(wanted);
        ASSERT_TRUE(machine.ok());
        // Half of the cache; then one and a half caches of another file.
        const uint64_t kept_reads = machine.frame_count() / 2 / kReadPages;
        machine.create_file("f", kept_reads * kReadPages * kPage, 1);
        machine.create_file("other", 3 * kept_reads * kReadPages * kPage, 2);
        const Descriptor file = machine.fs().open(machine.files().path("f")).value();
        const Descriptor other = machine.fs().open(machine.files().path("other")).value();
        auto* out = machine.scratch().array<std::byte>(kReadPages * kPage);
        std::vector<Step> steps = {set_step(0, file), set_step(1, other),
                                   advise_step(1, once ? Advice::kNoReuse : Advice::kNormal)};
        const auto read_all = [&](uint32_t which, uint64_t reads) {
            for (uint64_t i = 0; i < reads; ++i)
                steps.push_back(read_step(which, static_cast<int64_t>(i * kReadPages * kPage),
                                          kReadPages * kPage, out));
        };
        read_all(0, kept_reads);
        read_all(1, 3 * kept_reads);
        read_all(0, kept_reads);
        for (const Step& step : machine.run_block(steps)) {
            if (step.act == Act::kRead) {
                ASSERT_EQ(step.result, int64_t{kReadPages * kPage});
            }
        }
        const FileStatistics pages = machine.fs().file_statistics(file).value();
        EXPECT_EQ(pages.pages, 2 * kept_reads * kReadPages);
        if (once) {
            EXPECT_EQ(pages.hits, kept_reads * kReadPages) << "all of it is still there";
        } else {
            EXPECT_LT(pages.hits, kept_reads * kReadPages / 2) << "or the test shows nothing";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, AdviceEffectTest,
                         ::testing::Values(Way{"worker", false, false, false},
                                           Way{"warps", false, true, false},
                                           Way{"remote_warps", false, true, true}),
                         name_of_way);

}  // namespace
}  // namespace penstock::system_test
