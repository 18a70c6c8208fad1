// Goal: a slow read that was not probed starts probing if its thread waited for storage, but not if
// other threads only kept it off its processor.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "storage/instant_queue.h"
#include "transfer/executor.h"
#include "transfer/queue_storage_fixture.h"

namespace penstock::transfer {
namespace {

constexpr uint64_t kFileSize = 4 << 20, kSize = 64 << 10;
constexpr uint64_t kLongNs = 2'000'000;

class TestFile final : public storage::File {
public:
    TestFile() : File({.size = kFileSize}, {512, 512}, -1) {}
    Status stat(storage::Identity* out) const override {
        *out = identity();
        return {};
    }
};

enum class Read { kQuick, kWaits, kIsPreempted };

// Moves nothing, and takes its time.
struct TestMove {
    const Read* how;

    storage::Completion operator()(const storage::Operation& operation) const {
        if (*how == Read::kWaits) std::this_thread::sleep_for(std::chrono::nanoseconds(kLongNs));
        const uint64_t end = base::monotonic_ns() + (*how == Read::kIsPreempted ? kLongNs : 0);
        while (base::monotonic_ns() < end) {
        }
        return {operation.cookie, operation.pieces.front().iov_len, 0};
    }
};

class TestStorage final : public QueueStorage {
public:
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        return std::unique_ptr<storage::Queue>(
            std::make_unique<storage::InstantQueue<TestMove>>(depth, TestMove{&how}));
    }

    Read how = Read::kQuick;
};

TEST(SmallTransfers, OnlyThoseThatWaitedStartProbing) {
    TestStorage storage;
    auto executor = Executor::create(storage, nullptr, {});
    ASSERT_TRUE(executor.ok());
    Source source(std::make_shared<TestFile>());
    std::vector<std::byte> memory(kSize);
    const auto probing_after = [&](Read how) {
        storage.how = how;
        const iovec to{memory.data(), memory.size()};
        EXPECT_EQ(executor.value()->move_small(source, 0, to, false, {}).completion.bytes, kSize);
        return source.trial.probing();
    };
    // Nothing is known of a thread that has never waited.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(probing_after(Read::kQuick));
    // Waits of this thread before its first slow read count for that read.
    (void)probing_after(Read::kIsPreempted);
    while (source.trial.probing()) source.trial.record(kSize, 1, true);
    EXPECT_FALSE(probing_after(Read::kIsPreempted));
    EXPECT_TRUE(probing_after(Read::kWaits));
}

// The file has been hot for so long that it is read without a question.
TEST(SmallTransfers, AFileIsHotAsLongAsNoReadOfItWaited) {
    TestStorage storage;
    auto executor = Executor::create(storage, nullptr, {});
    ASSERT_TRUE(executor.ok());
    Source source(std::make_shared<TestFile>());
    while (!source.long_hot()) source.record_residency(true);
    std::vector<std::byte> memory(1 << 20);
    const iovec to{memory.data(), memory.size()};
    const auto hot_after = [&](Read how) {
        storage.how = how;
        Request request;
        request.source = &source;
        request.size = memory.size();
        request.pieces = {&to, 1};
        EXPECT_TRUE(executor.value()->submit(request));
        Outcome outcome;
        while (executor.value()->reap({&outcome, 1}, true) == 0) {
        }
        EXPECT_EQ(outcome.bytes, memory.size());
        return source.hot();
    };
    EXPECT_TRUE(hot_after(Read::kQuick));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // before, not in it
    EXPECT_TRUE(hot_after(Read::kIsPreempted));
    EXPECT_FALSE(hot_after(Read::kWaits));
}

}  // namespace
}  // namespace penstock::transfer
