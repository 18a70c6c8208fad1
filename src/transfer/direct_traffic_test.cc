// Goal: all executors that read a device together keep to what it may have in flight, none of them
// goes without, and whatever becomes of operations their places are given back.
#include "transfer/direct_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "testing/effort.h"
#include "transfer/executor.h"
#include "transfer/queue_storage_fixture.h"

namespace penstock::transfer {
namespace {

using storage::Completion;
using storage::Operation;

constexpr uint64_t kSize = 1 << 20, kFileSize = 64 << 20, kBlock = 64 << 10;

// The bytes of the block of the file that `offset` is in.
int pattern(uint64_t offset) { return static_cast<int>(1 + offset / kBlock % 250); }

TEST(DirectTraffic, ReadersShareTheLimitAndNoneGoesWithout) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        base::Prng prng(seed);
        DirectTraffic traffic;
        const auto limit = static_cast<uint32_t>(1 + prng.below(40));
        traffic.hold_at(limit);
        std::vector<DirectTraffic::Reader> readers(1 + prng.below(8));
        const auto count = static_cast<uint32_t>(readers.size());
        uint32_t in_flight = 0;
        for (int i = 0; i < 3000; ++i) {
            DirectTraffic::Reader& reader = readers[prng.below(count)];
            const bool may = traffic.may_start(reader, kSize);
            ASSERT_TRUE(may || reader.in_flight > 0);
            ASSERT_TRUE(may || in_flight >= limit) << "places are left";
            if (may && prng.below(3) != 0) {
                traffic.start(&reader);
                ++in_flight;
            } else if (reader.in_flight > 0) {
                traffic.end(&reader, kSize);
                traffic.tell(&reader, false);
                --in_flight;
            }
            ASSERT_EQ(traffic.in_flight(), in_flight);
            // Who came first keeps what he has until it ends.
            ASSERT_LE(in_flight, 2 * limit + count);
        }
        // When all of them want all that they can have, each comes to its share.
        for (int i = 0; i < 1000; ++i) {
            for (DirectTraffic::Reader& reader : readers) {
                if (reader.in_flight > 0) traffic.end(&reader, kSize);
                traffic.tell(&reader, false);
                while (traffic.may_start(reader, kSize)) traffic.start(&reader);
            }
        }
        uint32_t sum = 0;
        for (const DirectTraffic::Reader& reader : readers) {
            EXPECT_GE(reader.in_flight, std::max(1u, limit / count));
            sum += reader.in_flight;
        }
        EXPECT_LE(sum, std::max(limit, count));
    }
}

// In memory; reads are over when they are reaped, one by one and in any order.
class TestFile final : public storage::File {
public:
    TestFile() : File({.size = kFileSize}, {512, 512}, -1) {}
    Status stat(storage::Identity* out) const override {
        *out = identity();
        return {};
    }
};

struct Counts {
    std::atomic<uint32_t> now{0}, most{0};  // direct operations in flight
    std::atomic<int> error{0};              // of every 5th direct operation
};

class TestQueue final : public storage::Queue {
public:
    TestQueue(uint32_t depth, Counts* counts) : Queue(depth), counts_(*counts) {}

    size_t submit(std::span<const Operation> operations) override {
        for (const Operation& operation : operations) {
            if (operation.route == Route::kDirect) {
                const uint32_t now = ++counts_.now;
                uint32_t most = counts_.most.load();
                while (most < now && !counts_.most.compare_exchange_weak(most, now)) {
                }
            }
            taken_.push_back(operation);
        }
        return operations.size();
    }
    size_t reap(std::span<Completion> out, bool /*wait*/) override {
        if (taken_.empty() || out.empty()) return 0;
        const size_t index = prng_.below(taken_.size());
        const Operation operation = taken_[index];
        taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(index));
        out[0] = {operation.cookie, 0, 0};
        const bool direct = operation.route == Route::kDirect;
        if (direct) --counts_.now;
        if (direct && counts_.error.load() != 0 && prng_.below(5) == 0) {
            out[0].error = counts_.error.load();
            return 1;
        }
        for (const iovec& piece : operation.pieces) {
            auto* to = static_cast<std::byte*>(piece.iov_base);
            for (size_t i = 0; i < piece.iov_len; i += kBlock)
                std::memset(to + i, pattern(operation.offset + out[0].bytes + i), kBlock);
            out[0].bytes += piece.iov_len;
        }
        return 1;
    }
    [[nodiscard]] size_t outstanding() const override { return taken_.size(); }

private:
    Counts& counts_;
    base::Prng prng_{11};
    std::vector<Operation> taken_;
};

class TestStorage final : public QueueStorage {
public:
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        return std::unique_ptr<storage::Queue>(std::make_unique<TestQueue>(depth, &counts));
    }

    Counts counts;
};

// `count` requests of 4 MiB, direct; how many brought all their bytes.
size_t read_direct(storage::Storage* storage, Source* source, int count) {
    constexpr size_t kRequestSize = 4 << 20;
    auto executor = Executor::create(*storage, nullptr, {});
    const size_t places = Executor::Limits{}.requests;
    std::vector<std::byte> memory(places * kRequestSize + 4096);
    auto* begin = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) /
                                               4096 * 4096);
    std::vector<iovec> pieces(places);
    std::vector<size_t> free;
    for (size_t i = 0; i < places; ++i) {
        pieces[i] = {begin + i * kRequestSize, kRequestSize};
        free.push_back(i);
    }
    std::vector<uint64_t> offsets(places);
    std::vector<Outcome> outcomes(places);
    size_t good = 0;
    for (int begun = 0, done = 0; done < count;) {
        for (; begun < count && !free.empty(); ++begun, free.pop_back()) {
            Request request;
            request.source = source;
            request.offset = static_cast<uint64_t>(begun) * kRequestSize % kFileSize;
            request.size = kRequestSize;
            offsets[free.back()] = request.offset;
            std::memset(pieces[free.back()].iov_base, 0, kRequestSize);
            request.pieces = {&pieces[free.back()], 1};
            request.options.route = Route::kDirect;
            request.cookie = free.back();
            if (!executor.value()->submit(request)) break;
        }
        const size_t reaped = executor.value()->reap(outcomes, true);
        for (const Outcome& outcome : std::span(outcomes).first(reaped)) {
            const auto* bytes = static_cast<const unsigned char*>(pieces[outcome.cookie].iov_base);
            bool right = outcome.bytes == kRequestSize;
            for (size_t i = 0; right && i < kRequestSize; i += kBlock / 2)
                right = bytes[i] == pattern(offsets[outcome.cookie] + i);
            good += right ? 1 : 0;
            free.push_back(outcome.cookie);
        }
        done += static_cast<int>(reaped);
    }
    return good;
}

TEST(DirectTraffic, ExecutorsKeepToTheLimit) {
    constexpr auto kReads = static_cast<int>(testing::usually(40, 12));
    for (const uint32_t limit : {1u, 2u, 3u, 7u, 16u, 40u}) {
        for (const unsigned executors : {1u, 2u, 4u}) {
            TestStorage storage;
            Source source(std::make_shared<TestFile>());
            source.costs->traffic().hold_at(limit);
            std::vector<std::thread> threads;
            std::atomic<size_t> good{0};
            for (unsigned i = 0; i < executors; ++i)
                threads.emplace_back([&] { good += read_direct(&storage, &source, kReads); });
            for (std::thread& thread : threads) thread.join();
            EXPECT_EQ(good, executors * size_t{kReads});
            EXPECT_EQ(source.costs->traffic().in_flight(), 0u);
            // Looking and starting are two steps, and the first of an executor needs no look.
            const uint32_t most = storage.counts.most;
            EXPECT_LE(most, executors == 1 ? limit : 2 * limit + executors) << limit;
            const uint32_t least = std::min(limit, Executor::Limits{}.depth);
            EXPECT_GE(most, least);
        }
    }
}

// Also those of reads that failed, and of those that were refused and went through the cache.
TEST(DirectTraffic, PlacesAreGivenBackAfterErrors) {
    for (const int error : {EIO, EINVAL, EMFILE}) {
        TestStorage storage;
        storage.counts.error = error;
        Source source(std::make_shared<TestFile>());
        source.costs->traffic().hold_at(3);
        const size_t good = read_direct(&storage, &source, 60);
        EXPECT_EQ(good == 60, error != EIO);
        EXPECT_EQ(source.costs->traffic().in_flight(), 0u) << error;
        EXPECT_LE(storage.counts.most, 3u);
        storage.counts.error = 0;
        EXPECT_EQ(read_direct(&storage, &source, 10), 10u);
    }
}

// The depth is tuned by what executors tell, within its bounds.
TEST(DirectTraffic, ExecutorsTellWhatTheySee) {
    TestStorage storage;
    Source source(std::make_shared<TestFile>());
    EXPECT_EQ(source.costs->traffic().depth(kSize), planner::Concurrency::kStart);
    std::vector<std::thread> threads;
    std::atomic<size_t> good{0};
    std::atomic<size_t> wanted{0};
    std::atomic<bool> tried{false};
    for (unsigned i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 100 && !tried; ++round) {
                wanted += 100;
                good += read_direct(&storage, &source, 100);
                // It may be over again by the end of a round.
                if (source.costs->traffic().depth(kSize) != planner::Concurrency::kStart)
                    tried = true;
            }
            wanted += 1;
        });
    }
    while (wanted % 100 != 4) {  // until all threads are done
        if (source.costs->traffic().trying()) tried = true;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(good, wanted - 4);
    EXPECT_EQ(source.costs->traffic().in_flight(), 0u);
    EXPECT_TRUE(tried) << "nothing was told";
}

}  // namespace
}  // namespace penstock::transfer
