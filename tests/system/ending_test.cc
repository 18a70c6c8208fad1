// Goal: nothing waits for ever. A dead worker, an aborted file system and an aborted device end
// every waiting block within five seconds, with an error that names the cause; storage that is only
// slow is waited for, longer than any of the limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

using testing::Action;
using testing::Call;
using Blocks = std::vector<std::vector<Step>>;

constexpr uint64_t kSecondNs = 1'000'000'000;

constexpr size_t kReaders = 8;

constexpr int64_t kReadersSpan = kReaders * 3 * 4096;  // bytes of the file that they read in

// Blocks that read two pages each, all different, of a file that is open.
Blocks readers(Machine& machine, Descriptor file, int64_t first = 0) {
    Blocks blocks(kReaders);
    for (size_t b = 0; b < blocks.size(); ++b) {
        const auto offset = first + static_cast<int64_t>(b * 4096 * 3);
        blocks[b] = {set_step(0, file),
                     read_step(0, offset, 4096, machine.scratch().array<std::byte>(4096)),
                     read_step(0, offset + 4096, 4096, machine.scratch().array<std::byte>(4096))};
    }
    return blocks;
}

Descriptor open_file(Machine& machine) {
    machine.create_file("f", 100'000, 7);
    return machine.fs().open(machine.files().path("f")).value();
}

TEST(EndingTest, AKilledWorkerEndsEveryBlock) {
    struct Dying {
        Machine machine;
        BlockSteps* written = nullptr;
    } dying[] = {
        {Machine({.permits = 4, .helping = false, .workers = 1, .lanes = 8})},
        {Machine({.permits = 4, .helping = false, .workers = 1, .warps = true, .lanes = 64})}};
    const uint64_t start_ns = base::monotonic_ns();
    for (auto& [machine, written] : dying) {
        ASSERT_TRUE(machine.ok());
        const Descriptor file = open_file(machine);
        machine.service().kill_worker(0);
        written = machine.write_down(readers(machine, file));
        ASSERT_TRUE(machine.start(machine.stream(), written, kReaders).ok());
    }
    for (auto& [machine, written] : dying) {
        const Status status = machine.stream().synchronize(std::chrono::seconds(30));
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_LT(base::monotonic_ns() - start_ns, 5 * kSecondNs);
        for (size_t b = 0; b < kReaders; ++b) {
            EXPECT_EQ(written[b].steps[1].result, -EOWNERDEAD);
            EXPECT_EQ(written[b].steps[2].result, -EOWNERDEAD);
        }
        EXPECT_EQ(machine.fs().abort_cause(), "worker 0 stopped while it held requests");
    }
}

// The others go on until the dead one has got requests; then every wait ends.
TEST(EndingTest, OneOfSeveralWorkersDies) {
    Machine machine({.permits = 4, .frames = 8, .helping = false, .workers = 4, .lanes = 8});
    ASSERT_TRUE(machine.ok());
    // So large that every round asks for pages that no earlier one did, however large the cache is.
    constexpr int64_t kRounds = 10'000;
    ASSERT_TRUE(machine.files().create("f"));
    ASSERT_TRUE(machine.files().resize("f", kRounds * kReadersSpan));
    const Descriptor file = machine.fs().open(machine.files().path("f")).value();
    machine.service().kill_worker(2);
    int64_t round = 0;
    const uint64_t start_ns = base::monotonic_ns();
    while (machine.fs().abort_cause().empty() && base::monotonic_ns() - start_ns < 20 * kSecondNs) {
        machine.scratch().clear();
        Blocks blocks = readers(machine, file, round++ % kRounds * kReadersSpan);
        ASSERT_TRUE(machine.run(&blocks, std::chrono::seconds(30)).ok());
        for (const auto& steps : blocks) {
            for (size_t k = 1; k < 3; ++k) {
                EXPECT_TRUE(steps[k].result == 4096 || steps[k].result == -EOWNERDEAD);
            }
        }
    }
    EXPECT_EQ(machine.fs().abort_cause(), "worker 2 stopped while it held requests");
}

enum class Aborted { kFileSystem, kDevice, kByAGpuThread };

// The abort arrives while a worker stands in the storage and all blocks wait. A GPU thread raises
// it that has given up what its host had read.
class AbortTest : public ::testing::TestWithParam<Aborted> {};

TEST_P(AbortTest, EndsEveryBlock) {
    const bool whole_device = GetParam() == Aborted::kDevice;
    Machine machine({.permits = 4,
                     .helping = false,
                     .workers = 1,
                     .lanes = 8,
                     .faults = true,
                     .own_device = whole_device});
    ASSERT_TRUE(machine.ok());
    const Descriptor file = open_file(machine);
    machine.faults().inject({.action = Action::kBlock});
    Blocks blocks = readers(machine, file);
    BlockSteps* written = machine.write_down(blocks);
    ASSERT_TRUE(machine.start(machine.stream(), written, blocks.size()).ok());
    ASSERT_TRUE(machine.faults().wait_blocked(1, 10 * kSecondNs));
    const uint64_t start_ns = base::monotonic_ns();
    const Status cause{ECANCELED, "test", "told to stop"};
    if (whole_device) {
        machine.device().abort(cause);
    } else if (GetParam() == Aborted::kFileSystem) {
        machine.fs().abort(cause);
    } else {
        std::atomic_ref<uint64_t>(machine.service().host_state()->host->abort).store(ECANCELED);
    }
    const Status status = machine.stream().synchronize(std::chrono::seconds(30));
    EXPECT_LT(base::monotonic_ns() - start_ns, 5 * kSecondNs);
    EXPECT_EQ(status.error_number(), whole_device ? ECANCELED : 0);
    for (size_t b = 0; b < blocks.size() && !whole_device; ++b) {
        EXPECT_EQ(written[b].steps[1].result, -ECANCELED) << "block " << b;
        EXPECT_EQ(written[b].steps[2].result, -ECANCELED) << "block " << b;
    }
    if (GetParam() == Aborted::kByAGpuThread) {  // the monitor sees it with its next beat
        while (machine.fs().abort_cause().empty() &&
               base::monotonic_ns() - start_ns < 10 * kSecondNs)
            base::sleep_until_ns(base::monotonic_ns() + kSecondNs / 100);
        EXPECT_THAT(machine.fs().abort_cause(), ::testing::HasSubstr("the program stood still"));
    } else {
        // On a GPU it is the file system that ends what waits, whoever asked for it.
        EXPECT_EQ(machine.fs().abort_cause(), whole_device && !on_gpu() ? "" : cause.message());
    }
    machine.faults().release();
}

INSTANTIATE_TEST_SUITE_P(Of, AbortTest,
                         ::testing::Values(Aborted::kFileSystem, Aborted::kDevice,
                                           Aborted::kByAGpuThread),
                         [](const auto& made) -> std::string {
                             if (made.param == Aborted::kByAGpuThread) return "by_a_gpu_thread";
                             return made.param == Aborted::kDevice ? "the_device"
                                                                   : "the_file_system";
                         });

// A read and an open that take longer than the heartbeat's limit, a worker's and the watchdog's.
class SlowStorageTest : public ::testing::TestWithParam<bool> {};

TEST_P(SlowStorageTest, IsWaitedFor) {
    if (on_gpu() && GetParam()) GTEST_SKIP() << "blocks of a GPU do not help";
    const bool full = testing::nightly() || (!testing::kSanitizer && !GetParam() && !on_gpu());
    const uint64_t delay_ns = 6 * kSecondNs;  // beyond every limit
    const uint64_t read_delay_ns = (full ? 20 : 6) * kSecondNs;
    Machine machine({.permits = 2,
                     .helping = GetParam(),
                     .workers = 2,
                     .lanes = 8,
                     .faults = true,
                     .watchdog_seconds = 2});
    ASSERT_TRUE(machine.ok());
    const Descriptor file = open_file(machine);
    machine.faults().inject({.action = Action::kDelay, .delay_ns = read_delay_ns});
    machine.faults().inject(
        {.call = Call::kOpen, .action = Action::kDelay, .first = 2, .delay_ns = delay_ns});
    Blocks blocks = readers(machine, file);
    blocks[0].insert(
        blocks[0].begin(),
        {open_step(1, machine.scratch().text(machine.files().path("f"))), close_step(1)});
    const uint64_t start_ns = base::monotonic_ns();
    const Status status = machine.run(&blocks, std::chrono::seconds(100));
    ASSERT_TRUE(status.ok()) << status.message() << machine.device().diagnosis();
    EXPECT_GE(base::monotonic_ns() - start_ns, read_delay_ns);
    const testing::ReferenceFile& bytes = machine.files().file("f");
    for (const auto& steps : blocks) {
        for (const Step& step : steps) {
            if (step.act != Act::kRead) continue;
            ASSERT_EQ(step.result, 4096);
            EXPECT_EQ(bytes.mismatch(static_cast<uint64_t>(step.offset), {step.out, 4096}), 4096u);
        }
    }
    EXPECT_GE(blocks[0][0].result, 0);
    EXPECT_EQ(blocks[0][1].result, 0);
    EXPECT_EQ(machine.fs().abort_cause(), "");
}

INSTANTIATE_TEST_SUITE_P(By, SlowStorageTest, ::testing::Bool(), [](const auto& made) {
    return std::string(made.param ? "helping_blocks" : "workers");
});

}  // namespace
}  // namespace penstock::system_test
