// Goal: an executor's thread copies while storage moves what comes direct, also where there is more
// of that than its queue takes.
#include "transfer/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "transfer/queue_storage_fixture.h"

namespace penstock::transfer {
namespace {

using storage::Completion;
using storage::Operation;

constexpr uint64_t kFileSize = 8 << 20;

// In memory, with one byte everywhere.
class TestFile final : public storage::File {
public:
    TestFile() : File({.size = kFileSize}, {512, 512}, -1) {}
    Status stat(storage::Identity* out) const override {
        *out = identity();
        return {};
    }
};

// Cached reads are over at once; direct ones only when somebody has nothing else to do than to wait
// for them.
class TestQueue final : public storage::Queue {
public:
    TestQueue(uint32_t depth, std::vector<Route>* log) : Queue(depth), log_(*log) {}

    size_t submit(std::span<const Operation> operations) override {
        for (const Operation& operation : operations) {
            log_.push_back(operation.route);
            Completion done{operation.cookie, 0, 0};
            for (const iovec& piece : operation.pieces) {
                std::memset(piece.iov_base, 1, piece.iov_len);
                done.bytes += piece.iov_len;
            }
            (operation.route == Route::kDirect ? direct_ : cached_).push_back(done);
        }
        return operations.size();
    }
    size_t reap(std::span<Completion> out, bool wait) override {
        std::vector<Completion>& over = wait && cached_.empty() ? direct_ : cached_;
        const size_t count = std::min(out.size(), over.size());
        std::copy_n(over.begin(), count, out.begin());
        over.erase(over.begin(), over.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }
    [[nodiscard]] size_t outstanding() const override { return direct_.size() + cached_.size(); }

private:
    std::vector<Route>& log_;
    std::vector<Completion> direct_, cached_;
};

class TestStorage final : public QueueStorage {
public:
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        return std::unique_ptr<storage::Queue>(std::make_unique<TestQueue>(depth, &log));
    }

    std::vector<Route> log;
};

TEST(Executor, CopiesStartBesideMoreDirectTransfersThanItsQueueTakes) {
    for (const uint32_t depth : {1u, 2u, 4u, 8u, 16u}) {
        SCOPED_TRACE(testing::Message() << "depth " << depth);
        TestStorage storage;
        auto executor = Executor::create(storage, nullptr, {.depth = depth, .requests = 2});
        ASSERT_TRUE(executor.ok());
        Source source(std::make_shared<TestFile>());
        std::vector<std::byte> memory(2 * kFileSize + 4096);
        std::byte* const aligned = memory.data() +
                                   (4096 - reinterpret_cast<uintptr_t>(memory.data()) % 4096);
        const iovec pieces[] = {{aligned, kFileSize}, {aligned + kFileSize, kFileSize}};
        Request request;
        request.source = &source;
        request.size = kFileSize;
        request.pieces = {&pieces[0], 1};
        request.options.route = Route::kCached;
        request.cookie = 0;
        Request direct = request;
        direct.pieces = {&pieces[1], 1};
        direct.options.route = Route::kDirect;
        direct.cookie = 1;
        // Not begun before its executor is reaped, since submitting makes no copies.
        ASSERT_TRUE(executor.value()->submit(request));
        ASSERT_TRUE(executor.value()->submit(direct));
        Outcome outcomes[2];
        size_t done = 0;
        while (done < 2) {
            const size_t count = executor.value()->reap(std::span(outcomes).subspan(done), true);
            for (size_t i = 0; i < count; ++i, ++done) EXPECT_EQ(outcomes[done].bytes, kFileSize);
            // Copies are over before any direct transfer had to be waited for.
            if (done == count && count > 0) {
                EXPECT_EQ(outcomes[0].cookie, 0u);
            }
        }
        const auto first_copy = std::find(storage.log.begin(), storage.log.end(), Route::kCached);
        EXPECT_EQ(first_copy - storage.log.begin(), std::min<std::ptrdiff_t>(depth - 1, 8));
        EXPECT_TRUE(std::all_of(aligned, aligned + 2 * kFileSize,
                                [](std::byte byte) { return byte == std::byte{1}; }));
    }
}

}  // namespace
}  // namespace penstock::transfer
