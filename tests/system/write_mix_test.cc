// Goal: whatever blocks do to one file that they write, beside storage that fails and takes its
// time: no call hangs or returns what it must not, nothing is left behind, and what the cache has
// in the end is what the file has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "base/prng.h"
#include "system/write_fixture.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kBlocks = 4, kPages = 16, kOpens = 6;

class WriteMix : public WriteTest {
protected:
    static void inject(Machine& machine, base::Prng& prng) {
        constexpr Call kFailing[] = {Call::kWrite, Call::kWrite, Call::kTruncate, Call::kRead};
        constexpr Call kSlow[] = {Call::kWrite, Call::kTruncate, Call::kRead, Call::kSync};
        const bool fails = prng.below(2) == 0;
        for (int i = 0; i < 4; ++i) {
            if (fails)
                machine.faults().inject({.call = kFailing[prng.below(4)],
                                         .first = 1 + prng.below(25),
                                         .count = 1 + prng.below(6),
                                         .error = ENOSPC,
                                         .delay_ns = prng.below(2) * kMillisecond});
            machine.faults().inject({.call = kSlow[prng.below(4)],
                                     .action = Action::kDelay,
                                     .first = 1 + prng.below(40),
                                     .count = 1 + prng.below(6),
                                     .delay_ns = kMillisecond});
        }
    }

    static int flags_of(base::Prng& prng) {
        constexpr int kFlags[] = {kOpenReadWrite | kOpenNoSync,
                                  kOpenReadWrite | kOpenTruncate,
                                  kOpenReadWrite | kOpenAppend,
                                  kOpenReadOnly,
                                  kOpenReadWrite,
                                  kOpenReadWrite};
        return kFlags[prng.below(std::size(kFlags))];
    }

    static void add_call(Machine& machine, base::Prng& prng, std::byte* out,
                         std::vector<Step>& steps) {
        const auto offset = static_cast<int64_t>(prng.below(kPages * kPage - 9000));
        const uint64_t size = 1 + prng.below(9000), seed = prng.below(1u << 30);
        switch (prng.below(8)) {
            case 0:
            case 1:
            case 2:
                steps.push_back(
                    write_step(0, offset, size, machine.put(storage::random_bytes(seed, size))));
                return;
            case 3:
            case 4:
                steps.push_back(read_step(0, offset, size, out));
                return;
            case 5:
                steps.push_back(sync_step(0));
                return;
            case 6:
                steps.push_back(cut_step(0, prng.below(kPages * kPage)));
                return;
            default:
                steps.push_back(map_step(0, 0, offset, size, out));
                steps.push_back(unmap_step(0));
        }
    }

    // What a call may return: of a file that is full or not open for that, empty views included,
    // and where views hold all frames that they may.
    static bool is_allowed(int64_t result) {
        return result >= 0 || result == -ENOSPC || result == -EBADF || result == -EINVAL ||
               result == -ENOMEM;
    }
};

TEST_P(WriteMix, EndsWithTheCacheAsTheFile) {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "its blocks race for bytes, on purpose";
    for (uint64_t round = 0; round < testing::effort(60, 60, 2000) && !HasFailure(); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        base::Prng prng(991'000 + round);
        Shape shape = side_by_side(6 + prng.below(20));
        shape.workers = 2;
        shape.warps = prng.below(3) == 0;
        Machine machine(shape, 32 << 20);
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", kPages * kPage, 1 + round);
        const char* path = path_of(machine, "f");
        inject(machine, prng);
        auto* out = machine.scratch().array<std::byte>(kBlocks * kPages * kPage);
        std::vector<std::vector<Step>> blocks(kBlocks);
        for (uint64_t b = 0; b < kBlocks; ++b) {
            for (uint64_t i = 0; i < kOpens; ++i) {
                blocks[b].push_back(open_step(0, path, flags_of(prng)));
                for (uint64_t n = 1 + prng.below(6); n > 0; --n)
                    add_call(machine, prng, out + b * kPages * kPage, blocks[b]);
                blocks[b].push_back(close_step(0));
            }
        }
        const Status status = machine.run(&blocks);
        ASSERT_TRUE(status.ok()) << status.message() << machine.picture();
        for (const auto& block : blocks) {
            for (const Step& step : block)
                EXPECT_TRUE(is_allowed(step.result))
                    << "act " << static_cast<int>(step.act) << ": " << step.result;
        }
        machine.faults().clear();
        const auto left = machine.fs().reclaim();
        ASSERT_TRUE(left.ok()) << left.status().message();
        EXPECT_EQ(left.value().views, 0u);
        EXPECT_EQ(machine.dirty_pages(), 0u);
        EXPECT_EQ(machine.held_pins(), 0u);
        EXPECT_EQ(machine.broken_invariant(), 0);
        const Bytes now = bytes_of_file(machine.files().path("f"));
        const auto done = machine.run_block({open_step(0, path), stat_step(0),
                                             read_step(0, 0, 2 * kPages * kPage, out),
                                             close_step(0)});
        EXPECT_EQ(done[1].result, static_cast<int64_t>(now.size()));
        ASSERT_EQ(done[2].result, static_cast<int64_t>(now.size()));
        EXPECT_TRUE(std::equal(now.begin(), now.end(), out)) << "stale";
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, WriteMix, ::testing::Bool(), name_of_device);

}  // namespace
}  // namespace penstock::system_test
