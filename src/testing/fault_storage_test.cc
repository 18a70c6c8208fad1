// Goal: injected faults meet exactly the calls they name, on every kind of storage, and leave all
// others alone.
#include "testing/fault_storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "storage/storage_fixture.h"

namespace penstock::testing {
namespace {

using storage::Bytes;
using storage::Completion;

class FaultStorageTest : public ::testing::TestWithParam<storage::Kind> {
protected:
    void SetUp() override {
        Result<std::shared_ptr<storage::Storage>> under = storage::make_storage(
            {.kind = GetParam()});
        if (!under.ok() && GetParam() == storage::Kind::kUring) {
            GTEST_SKIP() << under.status().message();
        }
        ASSERT_TRUE(under.ok()) << under.status().message();
        folder_.write("f", 0, bytes_);
        storage_ = std::make_shared<FaultStorage>(under.value());
        file_ = storage_->open(folder_.path("f"), O_RDWR).value();
        queue_ = std::move(storage_->make_queue(8).value());
    }

    Completion read(Bytes* got) { return storage::read_into(queue_.get(), file_.get(), 0, got); }

    Completion write(const Bytes& bytes) {
        return storage::write_from(queue_.get(), file_.get(), 0, bytes);
    }

    const Bytes bytes_ = storage::random_bytes(1, 10'000);
    storage::ScratchFolder folder_;
    std::shared_ptr<FaultStorage> storage_;
    std::shared_ptr<storage::File> file_;
    std::unique_ptr<storage::Queue> queue_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, FaultStorageTest,
                         ::testing::Values(storage::Kind::kPosix, storage::Kind::kUring),
                         [](const auto& made) { return std::string(storage::name(made.param)); });

TEST_P(FaultStorageTest, TheNthReadFailsAndNoOther) {
    storage_->plan().inject({.call = Call::kRead, .first = 3, .count = 2, .error = EIO});
    for (int n = 1; n <= 6; ++n) {
        Bytes got(bytes_.size());
        const Completion completion = read(&got);
        const bool failed = n == 3 || n == 4;
        EXPECT_EQ(completion.error, failed ? EIO : 0) << n;
        EXPECT_EQ(completion.bytes, failed ? 0 : bytes_.size()) << n;
        EXPECT_EQ(got, failed ? Bytes(bytes_.size()) : bytes_) << n;
    }
    EXPECT_EQ(storage_->plan().calls(Call::kRead), 6u);
    EXPECT_EQ(storage_->plan().calls(Call::kOpen), 1u);
}

TEST_P(FaultStorageTest, OpenAndStatFail) {
    storage_->plan().inject({.call = Call::kOpen, .first = 2, .error = EMFILE});
    storage_->plan().inject({.call = Call::kStat, .first = 1, .error = ESTALE});
    EXPECT_EQ(storage_->open(folder_.path("f"), O_RDONLY).status().error_number(), EMFILE);
    EXPECT_TRUE(storage_->open(folder_.path("f"), O_RDONLY).ok());
    storage::Identity now;
    EXPECT_EQ(file_->stat(&now).error_number(), ESTALE);
    EXPECT_TRUE(file_->stat(&now).ok());
    EXPECT_EQ(now, file_->identity());
}

TEST_P(FaultStorageTest, ShortReadsWithAndWithoutAnError) {
    storage_->plan().inject({.action = Action::kShort, .first = 1, .error = EIO, .bytes = 4097});
    storage_->plan().inject({.action = Action::kShort, .first = 2, .bytes = 5});
    for (const uint64_t good : {4097, 5}) {
        Bytes got(bytes_.size());
        const Completion completion = read(&got);
        EXPECT_EQ(completion.error, good == 5 ? 0 : EIO);
        EXPECT_EQ(completion.bytes, good);
        EXPECT_TRUE(
            std::equal(got.begin(), got.begin() + static_cast<ptrdiff_t>(good), bytes_.begin()));
        EXPECT_EQ(got[good], std::byte{0});
    }
    Bytes got(bytes_.size());
    EXPECT_EQ(read(&got).bytes, bytes_.size());
}

TEST_P(FaultStorageTest, ABadByteStopsTheReadsThatReachIt) {
    storage_->plan().inject(
        {.action = Action::kBad, .count = UINT64_MAX, .error = EIO, .offset = 5000});
    for (const uint64_t offset : {0, 4999, 5000, 5001}) {
        Bytes got(bytes_.size() - offset);
        const Completion completion = storage::read_into(queue_.get(), file_.get(), offset, &got);
        EXPECT_EQ(completion.error, offset <= 5000 ? EIO : 0) << offset;
        EXPECT_EQ(completion.bytes, offset <= 5000 ? 5000 - offset : bytes_.size() - offset);
    }
}

TEST_P(FaultStorageTest, FailedAndGoodOnesOfOneBatch) {
    storage_->plan().inject({.call = Call::kRead, .first = 2, .error = EIO});
    Bytes got(3 * 1000);
    std::vector<iovec> pieces;
    std::vector<storage::Operation> operations;
    for (size_t i = 0; i < 3; ++i) pieces.push_back({got.data() + i * 1000, 1000});
    for (size_t i = 0; i < 3; ++i) {
        operations.push_back({file_.get(), i * 1000, {&pieces[i], 1}, 100 + i});
    }
    ASSERT_EQ(queue_->submit(operations), 3u);
    std::vector<int> errors(3, -1);
    while (queue_->outstanding() > 0) {
        Completion out[8];
        const size_t count = queue_->reap(out, true);
        for (size_t i = 0; i < count; ++i) errors[out[i].cookie - 100] = out[i].error;
    }
    EXPECT_EQ(errors, (std::vector<int>{0, EIO, 0}));
}

TEST_P(FaultStorageTest, ADelayedCallIsLateAndGood) {
    storage_->plan().inject({.action = Action::kDelay, .first = 1, .delay_ns = 30'000'000});
    const uint64_t start_ns = base::monotonic_ns();
    Bytes got(bytes_.size());
    EXPECT_EQ(read(&got).bytes, bytes_.size());
    EXPECT_GE(base::monotonic_ns() - start_ns, 30'000'000u);
    EXPECT_EQ(got, bytes_);
}

TEST_P(FaultStorageTest, ABlockedCallStandsUntilReleased) {
    storage_->plan().inject({.action = Action::kBlock, .first = 1});
    Bytes got(bytes_.size());
    std::thread worker([&] { EXPECT_EQ(read(&got).bytes, bytes_.size()); });
    EXPECT_TRUE(storage_->plan().wait_blocked(1, 10'000'000'000));
    EXPECT_FALSE(storage_->plan().wait_blocked(2, 1'000'000));
    storage_->plan().release();
    worker.join();
    EXPECT_EQ(got, bytes_);
}

TEST_P(FaultStorageTest, TheNthWriteSyncAndCutFailAndNoOther) {
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
        FaultPlan& plan = storage_->plan();
        plan.clear();
        for (const Call call : {Call::kWrite, Call::kSync, Call::kTruncate, Call::kUnlink})
            plan.inject({.call = call, .first = plan.calls(call) + 2, .error = error});
        for (int n = 1; n <= 3; ++n) {
            const int expected = n == 2 ? error : 0;
            const Bytes bytes = storage::random_bytes(static_cast<uint64_t>(n), 5000);
            const Completion completion = write(bytes);
            EXPECT_EQ(completion.error, expected);
            EXPECT_EQ(completion.bytes, n == 2 ? 0u : 5000u);
            EXPECT_EQ(file_->sync(n % 2 == 0).error_number(), expected);
            EXPECT_EQ(file_->truncate(8000).error_number(), expected);
            folder_.write("other", 0, {});
            EXPECT_EQ(storage_->unlink(folder_.path("other")).error_number(), expected);
            Bytes got(5000);
            EXPECT_EQ(read(&got).error, 0);
            if (n != 2) {
                EXPECT_EQ(got, bytes);
            }
        }
    }
}

TEST_P(FaultStorageTest, AWriteIsCutShort) {
    storage_->plan().inject({.call = Call::kWrite,
                             .action = Action::kShort,
                             .first = 1,
                             .count = 1,
                             .error = ENOSPC,
                             .bytes = 3000});
    const Bytes bytes = storage::random_bytes(9, 5000);
    const Completion completion = write(bytes);
    EXPECT_EQ(completion.error, ENOSPC);
    EXPECT_EQ(completion.bytes, 3000u);
    Bytes got(5000), expected(bytes_.begin(), bytes_.begin() + 5000);
    std::copy_n(bytes.begin(), 3000, expected.begin());
    EXPECT_EQ(read(&got).bytes, 5000u);
    EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace penstock::testing
