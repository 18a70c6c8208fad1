// Goal: a small read that was slow raises doubt where its thread waited for storage, and none where
// others only kept it off its processor.
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

constexpr uint64_t kFileSize = 1 << 20, kSize = 64 << 10;
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

TEST(SmallReadsOfAnExecutor, OnlyThoseThatWaitedRaiseDoubt) {
    TestStorage storage;
    auto executor = Executor::create(storage, nullptr, {});
    ASSERT_TRUE(executor.ok());
    Source source(std::make_shared<TestFile>());
    std::vector<std::byte> memory(kSize);
    const auto doubtful_behind = [&](Read how) {
        storage.how = how;
        const iovec to{memory.data(), memory.size()};
        EXPECT_EQ(executor.value()->read_small(source, 0, to, {}).completion.bytes, kSize);
        return source.small.doubtful();
    };
    EXPECT_FALSE(doubtful_behind(Read::kQuick));
    // What this thread waited for before its first slow read is not known to have been elsewhere.
    (void)doubtful_behind(Read::kIsPreempted);
    while (source.small.doubtful()) source.small.tally(kSize, 1, true, false);
    EXPECT_FALSE(doubtful_behind(Read::kIsPreempted));
    EXPECT_TRUE(doubtful_behind(Read::kWaits));
}

}  // namespace
}  // namespace penstock::transfer
