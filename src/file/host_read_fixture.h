// A file of known random bytes, memory to read it into, and what every report must hold: for tests
// of host reads.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/prng.h"
#include "penstock/file.h"
#include "testing/bytes.h"

namespace penstock {

class HostReadTest : public ::testing::Test {
protected:
    static constexpr size_t kFileSize = (20 << 20) + 12'345;

    void SetUp() override {
        path_ = ::testing::TempDir() + "/penstock-host-read-XXXXXX";
        descriptor_ = mkstemp(path_.data());
        ASSERT_GE(descriptor_, 0);
        bytes_ = testing::random_bytes(9, kFileSize);
        ASSERT_EQ(write(descriptor_, bytes_.data(), kFileSize), static_cast<ssize_t>(kFileSize));
        memory_ = static_cast<std::byte*>(
            mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    }
    void TearDown() override {
        munmap(memory_, kMemory);
        close(descriptor_);
        unlink(path_.c_str());
    }

    // Random parts of the file in the OS cache, others not, a few pages dirty.
    void mix_cache(base::Prng* prng) {
        fsync(descriptor_);
        for (int i = 0; i < 6; ++i) {
            const uint64_t offset = prng->below(kFileSize) & ~4095ull;
            const uint64_t size = prng->below(8 << 20);
            posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(size),
                          prng->below(3) == 0 ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED);
        }
        const uint64_t at = prng->below(kFileSize - 4096);
        ASSERT_EQ(pwrite(descriptor_, bytes_.data() + at, 4096, static_cast<off_t>(at)), 4096);
    }

    static void expect_sums(const Report& report) {
        const auto sum = [](const auto& all) {
            return std::accumulate(all.begin(), all.end(), uint64_t{0});
        };
        EXPECT_EQ(sum(report.route_bytes), report.bytes);
        EXPECT_EQ(sum(report.reason_bytes), report.bytes);
        EXPECT_EQ(sum(report.residency_bytes), report.bytes);
    }

    static ReadOptions random_options(base::Prng* prng) {
        ReadOptions options;
        options.cache = static_cast<CachePolicy>(prng->below(4));
        if (prng->below(4) == 0)
            options.route = prng->below(2) == 0 ? Route::kCached : Route::kDirect;
        return options;
    }

    // One read against the flat bytes.
    void check_read(const File& file, std::byte* to, base::Prng* prng) {
        const uint64_t offset = prng->below(kFileSize + 10'000) &
                                (prng->below(2) == 0 ? ~uint64_t{0} : ~uint64_t{4095});
        const uint64_t size = prng->below(prng->below(3) == 0 ? kMemory - 4096 : 300'000);
        to += prng->below(2) == 0 ? 0 : prng->below(4096);
        const ReadOptions options = random_options(prng);
        std::memset(to, 0xee, size);
        Report report;
        const auto got = file.read(to, size, offset, options, &report);
        ASSERT_TRUE(got.ok()) << got.status().message();
        const uint64_t there = offset < kFileSize ? kFileSize - offset : 0;
        const uint64_t expected = std::min(size, there);
        ASSERT_EQ(got.value(), expected) << offset << " + " << size;
        ASSERT_EQ(report.bytes_asked, size);
        ASSERT_EQ(report.bytes, expected);
        expect_sums(report);
        if (expected > 0) {
            ASSERT_TRUE(testing::equal(to, bytes_.data() + offset, expected))
                << offset << " + " << size << " to " << to;
        }
        for (uint64_t i = expected; i < size; i += 61) ASSERT_EQ(to[i], std::byte{0xee});
    }

    std::string path_;
    int descriptor_ = -1;
    std::vector<std::byte> bytes_;
    static constexpr size_t kMemory = 20 << 20;
    std::byte* memory_ = nullptr;
};

}  // namespace penstock
