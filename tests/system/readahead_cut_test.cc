// Goal: of a file that is cut while windows of it are on their way, reads bring what lies below the
// new end and a short count there, whoever serves them, and nothing that was before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "system/readahead_fixture.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

// A file that is cut while a read of it stands before its n-th storage operation.
class CutReadaheadTest : public BadReadaheadTest {
protected:
    static constexpr uint64_t kSize = kFilePages * kPage + 500;

    // Each makes a file system.
    static bool every_round() { return !testing::kThreadSanitizer && !on_gpu(); }
    // All files of a round have other bytes, so that none are taken for another's.
    void begin_round(uint64_t round) {
        machine_->renew();
        machine_->scratch().clear();
        all_ = storage::random_bytes(round, kSize);
        ASSERT_TRUE(machine_->files().resize("f", 0));
        ASSERT_TRUE(machine_->files().write("f", 0, all_));
        file_ = open("f");
    }
    // Launches the blocks, holds the `n`-th storage operation until the file was cut to `where()`,
    // and waits. `blocks` have their results then. False: there were not so many operations.
    template <class Where>
    bool run_and_cut(Blocks& blocks, uint64_t n, const Where& where) {
        machine_->faults().inject({.call = Call::kRead, .action = Action::kBlock, .first = n});
        BlockSteps* written = machine_->write_down(blocks);
        EXPECT_TRUE(machine_->start(machine_->stream(), written, blocks.size()).ok());
        const auto calls = [&] { return machine_->faults().calls(Call::kRead); };
        const auto over = [&] { return machine_->stream().idle().value(); };
        EXPECT_TRUE(Machine::wait_until([&] { return calls() >= n || over(); }));
        const bool held = calls() >= n && machine_->faults().wait_blocked(1, 10'000'000'000);
        if (held) {
            EXPECT_TRUE(machine_->files().resize("f", where()));
        }
        machine_->faults().release();
        const Status status = machine_->stream().synchronize(std::chrono::seconds(30));
        EXPECT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
        for (size_t b = 0; b < blocks.size(); ++b)
            std::copy_n(written[b].steps, written[b].count, blocks[b].begin());
        return held;
    }
    // Every read brought the bytes below the new end. Beyond it none, unless it is of a page below
    // `arrived`, which may have been read before the cut; nor once a read of the block has found
    // the new end. `meanwhile`: or during the cut, when read(2) itself may bring zeros from beyond.
    void expect_cut(const std::vector<Step>& steps, uint64_t cut, uint64_t arrived,
                    bool meanwhile = false) {
        bool found = false;
        for (const Step& step : steps) {
            EXPECT_EQ(step.disagreements, 0u);
            if (step.act != Act::kRead) continue;
            const auto offset = static_cast<uint64_t>(step.offset);
            const auto count = [&](uint64_t size) {
                return static_cast<int64_t>(size > offset ? std::min(step.size, size - offset) : 0);
            };
            const bool may_be_old = !found && offset / kPage < arrived;
            ASSERT_TRUE(step.result == count(cut) || (may_be_old && step.result == count(kSize)))
                << step.result << " bytes of page " << offset / kPage << ", cut to " << cut
                << ", arrived " << arrived;
            found = found || step.result < count(kSize);
            for (uint64_t i = 0; i < static_cast<uint64_t>(step.result); ++i) {
                if (meanwhile && offset + i >= cut && step.out[i] == std::byte{0}) continue;
                ASSERT_EQ(step.out[i], all_[offset + i])
                    << "at " << offset + i << ", cut to " << cut;
            }
        }
    }
    void expect_new_end(uint64_t cut) {
        std::vector<Step> steps = {set_step(0, file_)};
        add_walk(*machine_, steps, {0, kSignedPage, kPage, kFilePages + 1});
        expect_cut(machine_->run_block(steps), cut, 0);
        EXPECT_EQ(machine_->fs().size(file_).value(), cut);
    }
    // It grows again, for who opens now.
    void expect_grown(uint64_t round, uint64_t cut) {
        machine_->scratch().clear();
        ASSERT_TRUE(machine_->files().write("f", cut, storage::random_bytes(round, 30 * kPage)));
        std::vector<Step> steps = {set_step(0, open("f"))};
        add_walk(*machine_, steps, {0, kSignedPage, kPage, kFilePages + 35});
        run(steps);
    }

    Bytes all_;
    Descriptor file_ = -1;
};

TEST_P(CutReadaheadTest, AFileIsCutWhileAWindowIsOnItsWay) {
    uint64_t round = 100, seen = 0;
    for (const uint64_t n : {1, 2, 3, 5, 8}) {
        if (!every_round() && n != 2) continue;
        // In pages from the first that has not arrived: at it, in it, behind it; further on in what
        // was asked for, and beyond that; and where pages have arrived before.
        for (const double place : {0.0, 0.02, 1.0, 1.5, 7.3, 40.0, -0.5, -2.0}) {
            if (testing::kThreadSanitizer && std::abs(place) >= 1 && place != 7.3) continue;
            begin_round(++round);
            std::vector<Step> steps = {set_step(0, file_), advise_step(0, Advice::kSequential)};
            add_walk(*machine_, steps, {0, kSignedPage, kPage, kFilePages + 1});
            Blocks blocks = {steps};
            uint64_t arrived = 0, cut = 0;
            const bool held = run_and_cut(blocks, n, [&] {
                arrived = machine_->fs().statistics().bytes_read / kPage;
                const double at = (static_cast<double>(arrived) + place) * kPage;
                return cut = static_cast<uint64_t>(std::clamp<double>(at, 0, kSize - 1));
            });
            if (!held) continue;
            ++seen;
            SCOPED_TRACE("operation " + std::to_string(n) + ", " + std::to_string(arrived) +
                         " pages had arrived, cut to " + std::to_string(cut));
            EXPECT_GT(prefetched(), 0u);
            expect_cut(blocks[0], cut, arrived);
            expect_new_end(cut);
            expect_grown(++round, cut);
            EXPECT_EQ(machine_->broken_invariant(), 0);
            if (HasFailure()) return;
        }
    }
    EXPECT_GE(seen, every_round() ? 24u : 1u) << "or the test shows nothing";
}

// Two blocks go on side by side, one from the end of the file: the other may be served meanwhile,
// by itself or by a worker, and find the new end first.
TEST_P(CutReadaheadTest, AFileIsCutUnderTwoBlocks) {
    uint64_t round = 500, seen = 0;
    for (const uint64_t n : {1, 2, 4, 7, 11}) {
        if (!every_round() && n != 2) continue;
        for (const uint64_t cut : {uint64_t{0}, 60 * kPage, 100 * kPage + 77, 199 * kPage + 4095}) {
            begin_round(++round);
            Blocks blocks(2);
            for (std::vector<Step>& steps : blocks)
                steps = {set_step(0, file_), advise_step(0, Advice::kSequential)};
            add_walk(*machine_, blocks[0], {0, kSignedPage, kPage, kFilePages + 1});
            add_walk(*machine_, blocks[1],
                     {kFilePages * kSignedPage, -kSignedPage, kPage, kFilePages + 1});
            if (!run_and_cut(blocks, n, [&] { return cut; })) continue;
            ++seen;
            SCOPED_TRACE("operation " + std::to_string(n) + ", cut to " + std::to_string(cut));
            for (const auto& steps : blocks) expect_cut(steps, cut, kFilePages + 1, true);
            EXPECT_EQ(machine_->broken_invariant(), 0);
            expect_grown(++round, cut);
            if (HasFailure()) return;
        }
    }
    EXPECT_GE(seen, every_round() ? 12u : 1u) << "or the test shows nothing";
}

INSTANTIATE_TEST_SUITE_P(Ways, CutReadaheadTest, kWays, name_of_way);

}  // namespace
}  // namespace penstock::system_test
