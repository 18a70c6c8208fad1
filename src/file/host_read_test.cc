// Goal: a host read gives the bytes of the file, whatever the range, the memory, the cache's state,
// the policy, the route and the device; its report adds up; errors name their extent and cost
// nobody else his bytes; many reads at once, cancelled, stopped or left behind, end.
#include "file/host_read_fixture.h"

#include <sys/wait.h>

#include <thread>

#include "base/clock.h"
#include "file/open_file.h"
#include "testing/bytes.h"
#include "testing/effort.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

TEST_F(HostReadTest, RandomReadsEqualTheFileByEveryPolicyAndRoute) {
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (uint64_t seed = 1; seed <= 150; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        if (seed % 4 == 1) mix_cache(&prng);
        check_read(file.value(), memory_, &prng);
        if (HasFatalFailure()) return;
    }
}

TEST_F(HostReadTest, RandomReadsReachMemoryThatTheHostCannotAddress) {
    auto cpu = backend::open_cpu({.permits = 2, .memory_size = 96 << 20});
    ASSERT_TRUE(cpu.ok()) << cpu.status().message();
    const Device device(std::make_shared<testing::RemoteDevice>(cpu.value()));
    auto* memory = static_cast<std::byte*>(device.allocate(kMemory).value());
    const auto file = File::open(path_, device);
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        if (seed % 4 == 1) mix_cache(&prng);
        check_read(file.value(), seed % 8 == 0 ? memory_ : memory, &prng);
        if (HasFatalFailure()) return;
    }
    device.free(memory);
}

// On the device that PENSTOCK_DEVICE names: a GPU where there is one.
TEST_F(HostReadTest, RandomReadsReachTheMemoryOfADevice) {
    const auto device = Device::open();
    ASSERT_TRUE(device.ok()) << device.status().message();
    auto stream = Stream::create(device.value());
    ASSERT_TRUE(stream.ok());
    auto* memory = static_cast<std::byte*>(device.value().allocate(kMemory).value());
    const auto file = File::open(path_, device.value());
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        if (seed % 4 == 1) mix_cache(&prng);
        const uint64_t offset = prng.below(kFileSize);
        const uint64_t size = prng.below(prng.below(3) == 0 ? kMemory - 4096 : 300'000);
        std::byte* to = memory + (prng.below(2) == 0 ? 0 : prng.below(4096));
        ASSERT_TRUE(stream.value().fill(to, 0xee, size).ok());
        ASSERT_TRUE(stream.value().synchronize().ok());
        Report report;
        const auto got = file.value().read(to, size, offset, random_options(&prng), &report);
        ASSERT_TRUE(got.ok()) << got.status().message();
        const uint64_t expected = std::min(size, kFileSize - offset);
        ASSERT_EQ(got.value(), expected);
        expect_sums(report);
        ASSERT_TRUE(stream.value().copy(memory_, to, size).ok());
        ASSERT_TRUE(stream.value().synchronize().ok());
        ASSERT_TRUE(testing::equal(memory_, bytes_.data() + offset, expected));
        for (uint64_t i = expected; i < size; i += 61) ASSERT_EQ(memory_[i], std::byte{0xee});
    }
    device.value().free(memory);
}

TEST_F(HostReadTest, AFailedCopyToTheDeviceIsAnErrorAndNotWrongBytes) {
    auto cpu = backend::open_cpu({.permits = 2, .memory_size = 96 << 20});
    ASSERT_TRUE(cpu.ok());
    for (int n = 1; n <= 4; ++n) {
        auto remote = std::make_shared<testing::RemoteDevice>(cpu.value());
        const Device device(remote);
        auto* memory = static_cast<std::byte*>(device.allocate(8 << 20).value());
        const auto file = File::open(path_, device);
        ASSERT_TRUE(file.ok());
        remote->fail_copy(n);
        const auto got = file.value().read(memory, 8 << 20, 0);
        ASSERT_FALSE(got.ok());
        EXPECT_EQ(got.status().error_number(), EIO);
        // It costs no other read its bytes, nor those that follow.
        remote->fail_copy(0);
        Report report;
        const auto again = file.value().read(memory, 8 << 20, 0, {}, &report);
        ASSERT_TRUE(again.ok()) << again.status().message();
        EXPECT_TRUE(testing::equal(memory, bytes_.data(), 8 << 20));
        EXPECT_GT(report.copy_ns, 0u);
        expect_sums(report);
        device.free(memory);
    }
}

// From the first read on, what the OS page cache has comes in few copies, and the rest as it does.
TEST_F(HostReadTest, WhatIsCachedReachesADeviceInFewCopiesAndWhatIsNotBesideIt) {
    auto cpu = backend::open_cpu({.permits = 2, .memory_size = 96 << 20});
    ASSERT_TRUE(cpu.ok());
    auto remote = std::make_shared<testing::RemoteDevice>(cpu.value());
    const Device device(remote);
    auto* memory = static_cast<std::byte*>(device.allocate(kFileSize).value());
    for (const uint64_t run : {uint64_t{0}, uint64_t{3} << 20, uint64_t{700'000}}) {
        SCOPED_TRACE(::testing::Message() << "cached in runs of " << run);
        const auto file = File::open(path_, device);
        ASSERT_TRUE(file.ok());
        fsync(descriptor_);
        for (int i = 0; i < 3; ++i) {
            for (uint64_t at = run; run != 0 && at < kFileSize; at += 2 * run) {
                posix_fadvise(descriptor_, static_cast<off_t>(at), static_cast<off_t>(run),
                              POSIX_FADV_DONTNEED);
            }
            std::memset(memory, 0xee, kFileSize);
            const uint64_t before = remote->copy_count();
            Report report;
            const auto got = file.value().read(memory, kFileSize, 0, {}, &report);
            ASSERT_TRUE(got.ok()) << got.status().message();
            EXPECT_EQ(report.bytes, kFileSize);
            EXPECT_TRUE(testing::equal(memory, bytes_.data(), kFileSize));
            expect_sums(report);
            EXPECT_GT(report.bytes_by(Route::kCached), 0u);
            const uint64_t copies = remote->copy_count() - before;
            if (run == 0 && report.bytes_by(Residency::kMissing) == 0) {
                EXPECT_LE(copies, 9u);
            }
        }
    }
    device.free(memory);
}

TEST_F(HostReadTest, AStreamThatFailsIsAnErrorAndAnotherTakesItsPlace) {
    auto cpu = backend::open_cpu({.permits = 2, .memory_size = 96 << 20});
    ASSERT_TRUE(cpu.ok());
    auto remote = std::make_shared<testing::RemoteDevice>(cpu.value());
    const Device device(remote);
    auto* memory = static_cast<std::byte*>(device.allocate(8 << 20).value());
    const auto file = File::open(path_, device);
    ASSERT_TRUE(file.ok());
    int failures = 0;
    for (int n = 1; n <= 4; ++n) {
        remote->fail_write(n);
        const auto got = file.value().read(memory, 8 << 20, 0);
        remote->fail_write(0);
        if (got.ok()) continue;  // fewer lots than n
        ++failures;
        EXPECT_EQ(got.status().error_number(), EIO);
    }
    EXPECT_GE(failures, 1);
    std::memset(memory, 0, 8 << 20);
    ASSERT_TRUE(file.value().read(memory, 8 << 20, 0).ok());
    EXPECT_TRUE(testing::equal(memory, bytes_.data(), 8 << 20));
    device.free(memory);
}

TEST_F(HostReadTest, ReportsOfReadsOfAnySizeSayWhereTheTimeWent) {
    FileOptions options;
    options.study.throttle_latency_us = 2000;  // no operation takes less
    const auto file = File::open(path_, {}, options);
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (const uint64_t size : {uint64_t{1}, uint64_t{5000}, uint64_t{4} << 20}) {
        Report report;
        const uint64_t begin_ns = base::monotonic_ns();
        ASSERT_EQ(file.value().read(memory_, size, 0, &report).value(), size);
        const uint64_t took_ns = base::monotonic_ns() - begin_ns;
        EXPECT_GE(report.read_ns, 2'000'000u) << size << " bytes";
        EXPECT_LE(report.queue_ns + report.read_ns, took_ns) << size << " bytes";
        EXPECT_EQ(report.predicted_ns > 0, size > 1 << 20) << "only long reads are planned";
        EXPECT_GE(report.direct_depth > 0, report.bytes_by(Route::kDirect) > 0);
        EXPECT_LE(report.direct_depth, 256u);
    }
}

TEST_F(HostReadTest, VectoredReadsFillEveryPieceAndTellTheSum) {
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        // Slow reads, so that small pieces are planned from then on.
        if (seed % 2 == 1) mix_cache(&prng);
        std::vector<ReadPiece> pieces;
        uint64_t at = 0, expected = 0;
        const size_t count = prng.below(400);
        const uint64_t sizes[] = {5000, 250'000, 400'000};
        const uint64_t size_max = sizes[prng.below(3)];
        for (size_t i = 0; i < count; ++i) {
            const uint64_t size = prng.below(size_max);
            if (at + size > kMemory) break;
            const uint64_t offset = prng.below(kFileSize + 5000);
            pieces.push_back({memory_ + at, size, offset});
            at += size;
            expected += std::min(size, offset < kFileSize ? kFileSize - offset : 0);
        }
        std::memset(memory_, 0xee, at);
        Report report;
        const bool wait = prng.below(2) == 0;
        Result<uint64_t> got = uint64_t{0};
        if (wait) {
            got = file.value().readv(pieces, random_options(&prng), &report);
        } else {
            const auto future = file.value().preadv(pieces, random_options(&prng));
            ASSERT_TRUE(future.ok());
            got = future.value().result();
            report = future.value().report();
        }
        ASSERT_TRUE(got.ok()) << got.status().message();
        ASSERT_EQ(got.value(), expected);
        ASSERT_EQ(report.bytes, expected);
        expect_sums(report);
        for (const ReadPiece& piece : pieces) {
            if (piece.offset >= kFileSize) continue;
            ASSERT_TRUE(testing::equal(piece.to, bytes_.data() + piece.offset,
                                       std::min(piece.size, kFileSize - piece.offset)));
        }
    }
}

TEST_F(HostReadTest, ManyThreadsManyFutures) {
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    std::vector<std::thread> threads;
    std::atomic<int> callbacks{0}, wrong{0};
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            base::Prng prng(t);
            std::vector<std::vector<std::byte>> places(50);
            std::vector<Future> futures;
            std::vector<uint64_t> offsets;
            for (auto& place : places) {
                place.resize(1 + prng.below(2 << 20));
                offsets.push_back(prng.below(kFileSize - place.size()));
                auto future = file.value().pread(place.data(), place.size(), offsets.back());
                future.value().on_done([&] { ++callbacks; });
                futures.push_back(future.value());
            }
            for (size_t i = 0; i < futures.size(); ++i) {
                const auto got = futures[i].result();
                wrong += !got.ok() || got.value() != places[i].size() ||
                         !testing::equal(places[i].data(), bytes_.data() + offsets[i],
                                         places[i].size());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    for (int i = 0; i < 1000 && callbacks < 200; ++i) usleep(1000);
    EXPECT_EQ(callbacks, 200);
}

TEST_F(HostReadTest, TheFileMayBeClosedAndForgottenWhileItsReadsGoOn) {
    Future future;
    {
        auto file = File::open(path_);
        ASSERT_TRUE(file.ok());
        future = file.value().pread(memory_, 16 << 20, 0).value();
        file.value().close();
        EXPECT_EQ(file.value().read(memory_, 1, 0).status().error_number(), EBADF);
    }
    const auto got = future.result();
    ASSERT_TRUE(got.ok());
    EXPECT_TRUE(testing::equal(memory_, bytes_.data(), 16 << 20));
}

TEST_F(HostReadTest, BadArgumentsAreRefused) {
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    const auto error = [&](void* to, uint64_t size, uint64_t offset) {
        return file.value().read(to, size, offset).status().error_number();
    };
    EXPECT_EQ(error(nullptr, 1, 0), EFAULT);
    EXPECT_EQ(error(nullptr, 1 << 20, 0), EFAULT);
    EXPECT_EQ(error(memory_, 1, UINT64_MAX), EINVAL);
    EXPECT_EQ(error(memory_, UINT64_MAX, 1), EINVAL);
    EXPECT_EQ(file.value().read(nullptr, 0, 0).value(), 0u);
    EXPECT_EQ(file.value().read(memory_, 10, kFileSize).value(), 0u);
    EXPECT_EQ(File::open("/nonexistent").status().error_number(), ENOENT);
    EXPECT_EQ(File::open("/tmp").status().error_number(), EISDIR);
    FileOptions many;
    many.threads = 1000;
    EXPECT_EQ(File::open(path_, {}, many).status().error_number(), EINVAL);
}

// The kernel has no such way here: bytes come all the same, and no report calls it what was asked.
TEST_F(HostReadTest, ARouteThatIsNotToBeHadShowsInTheReport) {
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    for (const uint64_t size : {uint64_t{5000}, uint64_t{4} << 20}) {
        ReadOptions peer;
        peer.route = Route::kPeer;
        Report report;
        const auto got = file.value().read(memory_, size, 0, peer, &report);
        ASSERT_TRUE(got.ok()) << got.status().message();
        EXPECT_TRUE(testing::equal(memory_, bytes_.data(), size));
        EXPECT_EQ(report.bytes_by(Route::kPeer), 0u);
        EXPECT_EQ(report.bytes_by(RouteReason::kNoPeer), size);
        expect_sums(report);
        peer.cache = CachePolicy::kBypass;
        ASSERT_TRUE(file.value().read(memory_, size, 0, peer, &report).ok());
        EXPECT_EQ(report.bytes_by(RouteReason::kNoPeer), size);
        const ReadPiece pieces[] = {{memory_, size, 0}, {memory_ + size, 700, size}};
        ASSERT_TRUE(file.value().readv(pieces, peer, &report).ok());
        EXPECT_EQ(report.bytes_by(RouteReason::kNoPeer), size + 700);
        peer.strict = true;
        EXPECT_EQ(file.value().read(memory_, size, 0, peer).status().error_number(), EOPNOTSUPP);
    }
}

TEST_F(HostReadTest, AFileThatShrinksGivesWhatIsLeft) {
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(ftruncate(descriptor_, 1'000'001), 0);
    for (const CachePolicy policy : {CachePolicy::kAuto, CachePolicy::kBypass}) {
        ReadOptions options;
        options.cache = policy;
        Report report;
        const auto got = file.value().read(memory_, 8 << 20, 0, options, &report);
        ASSERT_TRUE(got.ok()) << got.status().message();
        EXPECT_EQ(got.value(), 1'000'001u);
        expect_sums(report);
        EXPECT_TRUE(testing::equal(memory_, bytes_.data(), 1'000'001));
    }
}

TEST_F(HostReadTest, AChildOfAForkIsToldToOpenAgainAndCan) {
    if (testing::kThreadSanitizer)
        GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads";
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().read(memory_, 8 << 20, 0).ok());
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = file.value().read(memory_, 8 << 20, 0).status().error_number() ==
                             ECHILD;
        const auto again = File::open(path_);
        const bool read = again.ok() && again.value().read(memory_, 8 << 20, 1).ok() &&
                          testing::equal(memory_, bytes_.data() + 1, 8 << 20);
        _exit(refused && read ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(file.value().read(memory_, 8 << 20, 0).ok());
}

TEST_F(HostReadTest, AChildOfAForkIsToldThatAReadIsItsParents) {
    FileOptions options;
    options.study.throttle_latency_us = 300'000;
    const auto file = File::open(path_, {}, options);
    ASSERT_TRUE(file.ok());
    const Future over = file.value().pread(memory_, 4096, 0).value();
    ASSERT_EQ(over.result().value(), 4096u);
    const Future future = file.value().pread(memory_, 4096, 0).value();
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        bool called = false, right = !future.done();
        right = right && future.wait().error_number() == ECHILD;
        right = right && future.result().status().error_number() == ECHILD;
        right = right && !future.cancel();
        future.stop();
        future.on_done([&] { called = true; });
        right = right && !called && !over.cancel() && over.result().ok();
        over.stop();
        over.on_done([&] { called = true; });
        _exit(right && called ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(future.result().value(), 4096u);
}

}  // namespace
}  // namespace penstock
