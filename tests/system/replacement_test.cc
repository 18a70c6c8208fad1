// Goal: who has a second chance, by each policy, of a page that is read again and again while a
// block reads more than the cache holds: by CLOCK any, by age none, in rings what other blocks use.
#include "system/readahead_fixture.h"

namespace penstock::system_test {
namespace {

struct Hot {
    const char* name;
    Replacement replacement;
    bool by_other;  // block 1 reads the page again, not the one that reads the rest
    bool kept;
    bool warps = false;
};
void PrintTo(const Hot& hot, std::ostream* out) { *out << hot.name; }

class SecondChanceTest : public ::testing::TestWithParam<Hot> {};

TEST_P(SecondChanceTest, AHotPageWhileALongFileIsRead) {
    constexpr uint64_t kTurns = 4, kReadPages = 4;  // times round the cache; pages a read
    Machine machine({.permits = 2,
                     .frames = 256,
                     .helping = false,
                     .warps = GetParam().warps,
                     .readahead = Readahead::kOff,
                     .replacement = GetParam().replacement});
    ASSERT_TRUE(machine.ok());
    const uint64_t reads = kTurns * machine.frame_count() / kReadPages;
    // So often that the hand never comes by twice between.
    const uint64_t period = machine.frame_count() / kReadPages / 4;
    machine.create_file("long", reads * kReadPages * kPage, 1);
    machine.create_file("hot", kPage, 2);
    const Descriptor file = machine.fs().open(machine.files().path("long")).value();
    const Descriptor hot = machine.fs().open(machine.files().path("hot")).value();
    auto* out = machine.scratch().array<std::byte>(kReadPages * kPage);
    auto* hot_out = machine.scratch().array<std::byte>(2 * kPage);  // a page for each block
    // The blocks take turns: each says by a word that the other may go on.
    auto* words = machine.scratch().array<uint64_t>(2 * (reads / period));
    const auto pass = [](uint64_t* word) {
        return Step{.act = Act::kShare, .out = reinterpret_cast<std::byte*>(word)};
    };
    const auto await = [](uint64_t* word) {
        return Step{.act = Act::kLoop, .out = reinterpret_cast<std::byte*>(word)};
    };
    Blocks blocks(2, {set_step(0, file), set_step(1, hot)});
    for (uint64_t i = 0; i < reads; ++i) {
        blocks[0].push_back(
            read_step(0, static_cast<int64_t>(i * kReadPages * kPage), kReadPages * kPage, out));
        if ((i + 1) % period != 0) continue;
        // Its own ring has it, whoever reads it again.
        if (!GetParam().by_other || i < period)
            blocks[0].push_back(read_step(1, 0, kPage, hot_out));
        blocks[0].push_back(pass(words));
        blocks[1].push_back(await(words++));
        if (GetParam().by_other) blocks[1].push_back(read_step(1, 0, kPage, hot_out + kPage));
        blocks[1].push_back(pass(words));
        blocks[0].push_back(await(words++));
    }
    const Status status = machine.run(&blocks);
    ASSERT_TRUE(status.ok()) << status.message() << machine.device().diagnosis();
    for (const auto& steps : blocks) {
        for (const Step& step : steps) {
            if (step.act == Act::kRead) {
                ASSERT_EQ(step.result, static_cast<int64_t>(step.size));
            }
        }
    }
    EXPECT_EQ(machine.broken_invariant(), 0);
    EXPECT_EQ(machine.fs().file_statistics(file).value().misses, reads * kReadPages);
    const uint64_t misses = machine.fs().file_statistics(hot).value().misses;
    if (GetParam().kept) {
        EXPECT_EQ(misses, 1u);
    } else {
        EXPECT_GE(misses, kTurns - 1);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, SecondChanceTest,
    ::testing::Values(Hot{"clock", Replacement::kClock, false, true},
                      Hot{"clock_warps", Replacement::kClock, false, true, true},
                      Hot{"global_lra", Replacement::kGlobalLra, false, false},
                      Hot{"global_lra_by_another", Replacement::kGlobalLra, true, false},
                      Hot{"rings", Replacement::kRings, false, false},
                      Hot{"rings_warps", Replacement::kRings, false, false, true},
                      Hot{"rings_by_another", Replacement::kRings, true, true},
                      Hot{"rings_by_another_warps", Replacement::kRings, true, true, true}),
    [](const auto& made) { return std::string(made.param.name); });

}  // namespace
}  // namespace penstock::system_test
