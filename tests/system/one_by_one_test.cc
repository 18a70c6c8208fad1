// Goal: the original of seed 000 (Readahead::kSeed) is the baseline it says it is: a read asks for
// one page and waits for it before it asks for the next, and pages that are asked for at the same
// time are read each by itself.
#include "system/readahead_fixture.h"

namespace penstock::system_test {
namespace {

class OneByOneTest : public ::testing::TestWithParam<Way> {
protected:
    static constexpr unsigned kBlocks = 8;
    static constexpr uint64_t kPages = 64;

    // The first storage call stands until release(): what is asked for meanwhile can be counted.
    void SetUp() override {
        if (on_gpu() && GetParam().remote) GTEST_SKIP() << "a GPU always is";
        machine_ = std::make_unique<Machine>(Shape{.permits = kBlocks,
                                                   .frames = 256,
                                                   .helping = false,
                                                   .workers = 1,
                                                   .warps = GetParam().warps,
                                                   .readahead = Readahead::kSeed,
                                                   .faults = true,
                                                   .remote = GetParam().remote});
        ASSERT_TRUE(machine_->ok());
        machine_->create_file("f", kPages * kPage, 3);
        machine_->faults().inject({.action = Action::kBlock});
    }
    void begin(Blocks blocks) {
        blocks_ = std::move(blocks);
        written_ = machine_->write_down(blocks_);
        const Status status = machine_->start(machine_->stream(), written_, blocks_.size());
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(machine_->faults().wait_blocked(1, 10'000'000'000));
    }
    uint64_t asked() {
        return machine_->fs().statistics().requests + machine_->service().observe().backlog;
    }
    void finish() {
        machine_->faults().release();
        const Status status = machine_->wait();
        ASSERT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
        for (size_t b = 0; b < blocks_.size(); ++b)
            expect_bytes(*machine_, {written_[b].steps, written_[b].steps + written_[b].count});
        EXPECT_EQ(machine_->broken_invariant(), 0);
    }

    std::unique_ptr<Machine> machine_;
    Blocks blocks_;
    BlockSteps* written_ = nullptr;
};

TEST_P(OneByOneTest, AReadAsksForNoPageBeforeItHasTheLast) {
    const Descriptor file = machine_->fs().open(machine_->files().path("f")).value();
    Blocks blocks = {{set_step(0, file)}};
    add_walk(*machine_, blocks[0], {0, 0, kPages * kPage, 1});
    begin(std::move(blocks));
    EXPECT_EQ(asked(), 1u);
    finish();
    EXPECT_EQ(machine_->fs().statistics().requests, kPages);
    EXPECT_EQ(machine_->fs().statistics().reads, kPages);
    EXPECT_EQ(machine_->fs().statistics().bytes_read, kPages * kPage);
}

// Others would be read as one.
TEST_P(OneByOneTest, PagesOfManyBlocksAreReadEachByItself) {
    const Descriptor file = machine_->fs().open(machine_->files().path("f")).value();
    Blocks blocks(kBlocks, {set_step(0, file)});
    for (unsigned b = 0; b < kBlocks; ++b)
        add_walk(*machine_, blocks[b], {b * kSignedPage, 0, kPage, 1});
    begin(std::move(blocks));
    EXPECT_TRUE(Machine::wait_until([&] { return asked() == kBlocks; }));
    finish();
    EXPECT_EQ(machine_->fs().statistics().requests, kBlocks);
    EXPECT_EQ(machine_->fs().statistics().reads, kBlocks);
}

INSTANTIATE_TEST_SUITE_P(Ways, OneByOneTest,
                         ::testing::Values(Way{"worker", false, false, false},
                                           Way{"warps", false, true, false},
                                           Way{"remote", false, false, true},
                                           Way{"remote_warps", false, true, true}),
                         name_of_way);

}  // namespace
}  // namespace penstock::system_test
