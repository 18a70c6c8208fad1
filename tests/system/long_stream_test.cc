// Goal: a stream that is longer than its ring of frames keeps what it read first for the next time,
// and all bytes are as the file has them; who reads the same pages a little later finds them.
//
// Tests that count pages do not run under ThreadSanitizer: which windows arrive in time is another
// matter there. SharedStreamTest.BlocksReadTheSamePages and the random programs look for races. Nor
// do they on a GPU, whose next launch may have its block elsewhere, with another ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPiece = 16 * kPage;

using Blocks = std::vector<std::vector<Step>>;

struct Kind {
    const char* name;
    Shape shape;
    bool by_age = false;  // the oldest go whatever the stream
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class LongStreamTest : public ::testing::TestWithParam<Kind> {
protected:
    // For as many blocks at most as read all of the file each, which is twice the cache.
    static constexpr unsigned kBlocksMax = 3;
    LongStreamTest() : machine_(GetParam().shape, 16 << 20, 2 * kBlocksMax) {}
    void SetUp() override {
        if (on_gpu() && GetParam().shape.remote) GTEST_SKIP() << "a GPU always is";
        ASSERT_TRUE(machine_.ok());
        pages_ = 2 * machine_.frame_count();
        machine_.create_file("f", pages_ * kPage, 7);
        file_ = machine_.fs().open(machine_.files().path("f")).value();
    }

    // Each of `block_count` blocks reads all of the file from its start. Pages of it that were
    // found in the cache.
    uint64_t read_all(unsigned block_count) {
        const uint64_t size = pages_ * kPage;
        machine_.scratch().clear();
        auto* out = machine_.scratch().array<std::byte>(block_count * size);
        Blocks blocks(block_count);
        for (uint64_t b = 0; b < block_count; ++b) {
            blocks[b].push_back(set_step(0, file_));
            for (uint64_t at = 0; at < size; at += kPiece) {
                blocks[b].push_back(read_step(0, static_cast<int64_t>(at),
                                              std::min(kPiece, size - at), out + b * size + at));
            }
        }
        const FileStatistics before = counts();
        const Status status = machine_.run(&blocks);
        EXPECT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        for (const auto& steps : blocks) {
            for (const Step& step : steps) {
                if (step.act != Act::kRead) continue;
                EXPECT_EQ(step.result, static_cast<int64_t>(step.size));
            }
        }
        for (uint64_t b = 0; b < block_count; ++b)
            EXPECT_EQ(machine_.files().file("f").mismatch(0, {out + b * size, size}), size);
        EXPECT_EQ(machine_.broken_invariant(), 0);
        return counts().hits - before.hits;
    }
    FileStatistics counts() { return machine_.fs().file_statistics(file_).value(); }
    // Whether a ring that has all of the cache is outrun.
    bool can_be_outrun() {
        const FileSystemState* state = machine_.service().host_state();
        return !GetParam().by_age && state->readahead.outrun_slabs <= state->slab_count;
    }

    // Frames that pages which are read once take turns in.
    uint64_t turning() {
        const FileSystemState* state = machine_.service().host_state();
        return state->readahead.once_slabs * state->slab_frames;
    }
    // All but those, and what goes where a pass begins.
    uint64_t kept() { return (machine_.frame_count() - turning()) * 3 / 4; }

    Machine machine_;
    uint64_t pages_ = 0;
    Descriptor file_ = -1;
};

TEST_P(LongStreamTest, KeepsWhatItReadFirst) {
    if (testing::kThreadSanitizer || on_gpu()) GTEST_SKIP() << "it counts pages";
    ASSERT_TRUE(can_be_outrun() || GetParam().by_age);
    EXPECT_EQ(read_all(1), 0u);
    const uint64_t frames = machine_.frame_count();
    for (int i = 0; i < 4; ++i) {
        const uint64_t bytes = machine_.fs().statistics().bytes_read;
        const uint64_t hits = read_all(1);
        if (can_be_outrun()) {
            EXPECT_GE(hits, kept()) << "of " << frames << " frames";
            EXPECT_LE(machine_.fs().statistics().bytes_read - bytes, (pages_ - hits) * kPage);
        } else {
            EXPECT_LE(hits, frames / 8) << "of " << frames << " frames";
        }
    }
}

TEST_P(LongStreamTest, FillsTheCacheAnewWhenItsPagesWereDropped) {
    if (testing::kThreadSanitizer || on_gpu()) GTEST_SKIP() << "it counts pages";
    if (!can_be_outrun()) GTEST_SKIP() << "frames go by age here: nothing is kept";
    for (int i = 0; i < 2; ++i) {
        (void)read_all(1);
        ASSERT_TRUE(launch(machine_.stream(), {{1}, {32}}, forget_file,
                           machine_.fs().device_handle(), file_)
                        .ok());
        ASSERT_TRUE(machine_.stream().synchronize().ok());
        EXPECT_LE(read_all(1), 64u) << "what was asked for ahead and not read";
        EXPECT_GE(read_all(1), kept());
    }
}

// Pages that were read before and are read again behind the reader, further back than what takes
// turns, nearer than the ring is long.
TEST_P(LongStreamTest, ASecondCursorOfTheBlockFindsThePages) {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "it counts pages";
    if (!can_be_outrun()) GTEST_SKIP() << "frames go by age here: nothing is kept";
    const uint64_t behind = (turning() + machine_.frame_count()) / 2 * kPage / kPiece * kPiece;
    auto* out = machine_.scratch().array<std::byte>(kPiece);
    std::vector<Step> steps = {set_step(0, file_)};
    for (uint64_t at = 0; at < pages_ * kPage / kPiece * kPiece; at += kPiece) {
        steps.push_back(read_step(0, static_cast<int64_t>(at), kPiece, out));
        if (at >= behind) {
            steps.push_back(read_step(0, static_cast<int64_t>(at - behind), kPiece, out));
        }
    }
    Blocks blocks = {steps};
    ASSERT_TRUE(machine_.run(&blocks).ok());
    EXPECT_LE(machine_.fs().statistics().bytes_read, (pages_ + pages_ / 8) * kPage);
}

class SharedStreamTest : public LongStreamTest {
protected:
    // A block that reads all, and one that does so `behind` pieces later: bytes from storage.
    uint64_t read_trailing(uint64_t behind) {
        constexpr uint64_t kSlack = 4;  // pieces that it may be later still
        const uint64_t pieces = pages_ * kPage / kPiece;
        auto* out = machine_.scratch().array<std::byte>(2 * kPiece);
        auto* words = machine_.scratch().array<uint64_t>(2 * pieces);
        const auto told = [words](uint64_t i) { return reinterpret_cast<std::byte*>(words + i); };
        Blocks blocks = {{set_step(0, file_)}, {set_step(0, file_)}};
        const auto read = [&](uint64_t block, uint64_t piece) {
            blocks[block].push_back(
                read_step(0, static_cast<int64_t>(piece * kPiece), kPiece, out + block * kPiece));
            blocks[block].push_back(
                {.act = Act::kShare, .file = 0, .out = told(block * pieces + piece)});
        };
        const auto wait = [&](uint64_t block, uint64_t other, uint64_t piece) {
            blocks[block].push_back({.act = Act::kLoop, .out = told(other * pieces + piece)});
        };
        for (uint64_t i = 0; i < pieces; ++i) {
            if (i >= behind + kSlack) wait(0, 1, i - behind - kSlack);
            read(0, i);
            wait(1, 0, std::min(i + behind, pieces - 1));
            read(1, i);
        }
        const uint64_t before = machine_.fs().statistics().bytes_read;
        const Status status = machine_.run(&blocks, std::chrono::seconds(60));
        EXPECT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        return machine_.fs().statistics().bytes_read - before;
    }
};

TEST_P(SharedStreamTest, AnotherBlockFindsThePagesBehind) {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "it counts pages";
    if (on_gpu() || GetParam().shape.warps)
        GTEST_SKIP() << "a block here spins until another has read: both must run, whole blocks";
    const uint64_t ring = machine_.frame_count() / 2;
    ASSERT_LT(turning(), ring);
    const uint64_t behind = (turning() + ring) / 2 * kPage / kPiece;
    // By age alone the second block finds 40 to 60 % of them.
    for (int i = 0; i < 4; ++i)
        EXPECT_LE(read_trailing(behind), pages_ * 37 / 20 * kPage) << behind << " pieces";
}

TEST_P(SharedStreamTest, BlocksReadTheSamePages) {
    for (const unsigned block_count : {1u, 2u, kBlocksMax}) (void)read_all(block_count);
}

// One block at once: else the next launch's may have another ring.
INSTANTIATE_TEST_SUITE_P(
    Kinds, LongStreamTest,
    ::testing::Values(
        Kind{"helping", {.permits = 1, .frames = 2048, .short_rings = true}},
        Kind{"workers", {.permits = 1, .frames = 2048, .helping = false, .short_rings = true}},
        Kind{"warps",
             {.permits = 1, .frames = 2048, .warps = true, .short_rings = true, .lanes = 64}},
        Kind{"remote", {.permits = 1, .frames = 4096, .helping = false, .remote = true}},
        Kind{"static_windows",
             {.permits = 1, .frames = 2048, .readahead = Readahead::kStatic},
             true},
        Kind{"global_lra",
             {.permits = 1,
              .frames = 2048,
              .replacement = Replacement::kGlobalLra,
              .short_rings = true},
             true}),
    [](const auto& made) { return std::string(made.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Kinds, SharedStreamTest,
    ::testing::Values(Kind{"helping", {.frames = 2048, .short_rings = true}},
                      Kind{"workers", {.frames = 2048, .helping = false, .short_rings = true}},
                      Kind{"warps",
                           {.frames = 2048, .warps = true, .short_rings = true, .lanes = 64}},
                      Kind{"remote", {.frames = 2048, .helping = false, .remote = true}}),
    [](const auto& made) { return std::string(made.param.name); });

}  // namespace
}  // namespace penstock::system_test
