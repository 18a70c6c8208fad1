// Goal: a throttled storage is never faster than its stated figures, overlaps latencies of
// operations in flight, and shares its bandwidth between queues. Upper bounds are loose: other work
// may hold the test up.
#include "storage/throttle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/clock.h"
#include "storage/ram.h"
#include "storage/storage_fixture.h"

namespace penstock::storage {
namespace {

constexpr uint64_t kMs = 1'000'000;

struct Slow {
    std::shared_ptr<Storage> storage;
    std::shared_ptr<File> file;

    explicit Slow(const ThrottleOptions& options) {
        auto ram = std::make_shared<RamStorage>();
        EXPECT_TRUE(ram->create("f", 1 << 20).ok());
        storage = open_throttle(ram, options).value();
        file = storage->open("f", O_RDONLY).value();
    }

    // `count` reads of `size` bytes in flight at once; how long until the last is reaped.
    [[nodiscard]] uint64_t time_ns(uint32_t count, size_t size) const {
        const std::unique_ptr<Queue> queue = std::move(storage->make_queue(count).value());
        Bytes got(size);
        const iovec piece{got.data(), got.size()};
        const std::vector<Operation> operations(count, {file.get(), 0, {&piece, 1}, 3});
        const uint64_t start_ns = base::monotonic_ns();
        EXPECT_EQ(queue->submit(operations), count);
        while (queue->outstanding() > 0) {
            Completion completion;
            EXPECT_EQ(queue->reap({&completion, 1}, true), 1u);
            EXPECT_EQ(completion.cookie, 3u);
            EXPECT_EQ(completion.bytes, size);
        }
        return base::monotonic_ns() - start_ns;
    }
};

TEST(Throttle, LatenciesOfOperationsInFlightOverlap) {
    const Slow slow({.latency_us = 20'000});
    const uint64_t one_ns = slow.time_ns(1, 4096);
    EXPECT_GE(one_ns, 20 * kMs);
    const uint64_t many_ns = slow.time_ns(32, 4096);
    EXPECT_GE(many_ns, 20 * kMs);
    EXPECT_LT(many_ns, 32 * 20 * kMs / 2);
}

TEST(Throttle, BandwidthIsSharedByAllQueues) {
    const Slow slow({.latency_us = 0, .bandwidth_mbs = 100});
    const uint64_t start_ns = base::monotonic_ns();
    std::thread other([&] { EXPECT_GT(slow.time_ns(4, 1'000'000), 0u); });
    EXPECT_GT(slow.time_ns(4, 1'000'000), 0u);
    other.join();
    EXPECT_GE(base::monotonic_ns() - start_ns, 80 * kMs);  // 8 MB at 100 MB/s
}

TEST(Throttle, LatencyAndTransferAddUp) {
    const Slow slow({.latency_us = 10'000, .bandwidth_mbs = 50});
    EXPECT_GE(slow.time_ns(1, 1'000'000), 30 * kMs);
}

TEST(Throttle, NothingIsHandedOutEarly) {
    const Slow slow({.latency_us = 30'000});
    const std::unique_ptr<Queue> queue = std::move(slow.storage->make_queue(1).value());
    Bytes got(16);
    const iovec piece{got.data(), got.size()};
    const Operation operation{slow.file.get(), 0, {&piece, 1}, 3};
    const uint64_t start_ns = base::monotonic_ns();
    ASSERT_EQ(queue->submit({&operation, 1}), 1u);
    Completion completion;
    while (queue->reap({&completion, 1}, false) == 0) {
        ASSERT_EQ(queue->outstanding(), 1u);
        std::this_thread::yield();
    }
    EXPECT_GE(base::monotonic_ns() - start_ns, 30 * kMs);
}

TEST(Throttle, FiguresThatMeanNothingAreRefused) {
    const auto ram = std::make_shared<RamStorage>();
    EXPECT_EQ(open_throttle(ram, {.latency_us = -1}).status().error_number(), EINVAL);
    EXPECT_EQ(open_throttle(ram, {.latency_us = NAN}).status().error_number(), EINVAL);
    EXPECT_EQ(open_throttle(ram, {.bandwidth_mbs = INFINITY}).status().error_number(), EINVAL);
    EXPECT_EQ(open_throttle(ram, {.bandwidth_mbs = 1e-300}).status().error_number(), EINVAL);
    EXPECT_TRUE(open_throttle(ram, {.latency_us = 3.6e9, .bandwidth_mbs = 1e-6}).ok());
}

}  // namespace
}  // namespace penstock::storage
