// Goal: a file cache on GPUs uses several, gives their memory back while other programs need it,
// and goes on when one is lost: exactly the files that lose bytes are told so, once.
#include "file/cache_gpus_fixture.h"
#include "testing/effort.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST_F(CacheGpusTest, ATierServesWhatTheirMemoryHasLost) {
    in_process(2, [&] {
        constexpr uint64_t kSize = 3 * kCacheSize + 100;
        make_on_gpus(1, {.tier = folder_, .tier_size = 4 * kCacheSize});
        const std::string path = write_file("a", kSize);
        const CachedFile file = open(path);
        const auto expected = bytes_of(path);
        for (int i = 0; i < 1000 && cache_.statistics().tier_used_size < kSize; ++i)
            EXPECT_EQ(read(file, kSize, 0), expected);
        const auto before = cache_.statistics();
        EXPECT_EQ(read(file, kSize, 0), expected);
        EXPECT_EQ(cache_.statistics().bytes_read, before.bytes_read);
        EXPECT_GT(cache_.statistics().tier_bytes_read, before.tier_bytes_read);
        EXPECT_EQ(FileCache::create({.devices = gpus_,
                                     .size = kCacheSize,
                                     .chunk_size = kChunk,
                                     .tier = folder_,
                                     .tier_size = 4 * kCacheSize,
                                     .tier_root = "/elsewhere",
                                     .tier_writes = true})
                      .status()
                      .error_number(),
                  EINVAL);
        // A lost device is no error of the tier.
        fake_->lost_device = 1;
        EXPECT_EQ(read(file, kSize, 0), expected);
        EXPECT_EQ(cache_.statistics().devices_lost, 1u);
        EXPECT_EQ(cache_.statistics().tier_error, "");
    });
}

TEST_F(CacheGpusTest, ChunksLieEvenlyOnTwoAndFour) {
    in_process(4, [&] {
        const std::vector<Device> all = gpus_;
        for (const size_t count : {2u, 4u}) {
            gpus_.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(count));
            make_on_gpus(1);
            const std::string path = write_file("a", 400 * kChunk + 100);
            auto expected = bytes_of(path);
            const CachedFile file = open(path);
            EXPECT_EQ(read(file, 500 * kChunk, 0), expected);
            EXPECT_EQ(read(file, 500 * kChunk, 0), expected);
            const auto told = cache_.statistics();
            EXPECT_EQ(told.bytes_read, expected.size());
            for (const auto& device : told.devices)
                EXPECT_NEAR((device.size - device.free_size) / kChunk, 400 / count, 1);
            const auto bytes = random_bytes(50 * kChunk, 3);
            ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 777).ok());
            std::ranges::copy(bytes, expected.begin() + 777);
            ASSERT_TRUE(file.sync().ok());
            EXPECT_EQ(bytes_of(path), expected);
        }
        EXPECT_EQ(fake_->foreign_copies, 0) << "each GPU has copied its own chunks";
    });
}

TEST_F(CacheGpusTest, MemoryOfTheHostAndOfAGpuMix) {
    in_process(1, [&] {
        gpus_.push_back(device_);
        make_on_gpus(1);
        const std::string path = write_file("a", 3 * kCacheSize);
        auto expected = bytes_of(path);
        const CachedFile file = open(path);
        EXPECT_EQ(read(file, 3 * kCacheSize, 0), expected);
        const auto bytes = random_bytes(50 * kChunk, 3);
        ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 777).ok());
        std::ranges::copy(bytes, expected.begin() + 777);
        ASSERT_TRUE(file.sync().ok());
        EXPECT_EQ(bytes_of(path), expected);
        EXPECT_EQ(read(file, 3 * kCacheSize, 0), expected);
    });
}

TEST_F(CacheGpusTest, CleanMemoryIsBackWithinASecondAndTakenAgain) {
    in_process(2, [&] {
        const uint64_t free = gpus_[0].free_memory();
        constexpr uint64_t kKept = uint64_t{100} << 20;
        make_on_gpus(8, {.keep_free = kKept});
        const int64_t pieces = fake_->device_pieces;
        const std::string path = write_file("a", 8 * kCacheSize);
        const CachedFile file = open(path);
        EXPECT_EQ(read(file, 8 * kCacheSize, 0), bytes_of(path));
        EXPECT_EQ(cache_.statistics().size, 16 * kCacheSize);
        // Of each GPU, two slabs and a bit are missing.
        fake_->used_by_others = free - 8 * kCacheSize - kKept + 2 * kCacheSize + 1;
        EXPECT_TRUE(shrinks_to(10 * kCacheSize, milliseconds(1000)));
        // The last slab has left the cache; a moment later its memory is free.
        for (int i = 0; i < 1000 && cache_.statistics().given_back_size != 6 * kCacheSize; ++i)
            std::this_thread::sleep_for(milliseconds(1));
        EXPECT_GE(gpus_[0].free_memory(), kKept);
        EXPECT_GE(gpus_[1].free_memory(), kKept);
        EXPECT_EQ(fake_->device_pieces, pieces - 6);
        EXPECT_EQ(cache_.statistics().given_back_size, 6 * kCacheSize);
        EXPECT_EQ(read(file, 8 * kCacheSize, 0), bytes_of(path));
        // One slab a second, and none while no more than two slabs beyond are free.
        std::this_thread::sleep_for(milliseconds(1300));
        EXPECT_EQ(cache_.statistics().size, 10 * kCacheSize);
        fake_->used_by_others = 0;
        EXPECT_TRUE(shrinks_to(11 * kCacheSize, milliseconds(1500)));
        std::this_thread::sleep_for(milliseconds(500));
        EXPECT_EQ(cache_.statistics().size, 11 * kCacheSize);
        EXPECT_TRUE(shrinks_to(12 * kCacheSize, milliseconds(1500)));
        EXPECT_EQ(read(file, 8 * kCacheSize, 0), bytes_of(path));
    });
}

TEST_F(CacheGpusTest, WhatIsGivenBackOnRequestStaysSo) {
    in_process(1, [&] {
        make_on_gpus(3, {.keep_free = 1});
        EXPECT_EQ(cache_.give_back(kCacheSize).value(), kCacheSize);
        std::this_thread::sleep_for(milliseconds(1500));
        EXPECT_EQ(cache_.statistics().size, 2 * kCacheSize);
        EXPECT_EQ(cache_.grow(kCacheSize).value(), kCacheSize);
        EXPECT_EQ(cache_.statistics().size, 3 * kCacheSize);
    });
}

TEST_F(CacheGpusTest, GivesTheMemoryOfTheGpuThatHasLeast) {
    in_process(2, [&] {
        make_on_gpus(2);
        void* other = gpus_[1].allocate(64 << 20).value();
        EXPECT_EQ(cache_.give_back(2 * kCacheSize).value(), 2 * kCacheSize);
        EXPECT_EQ(cache_.statistics().devices[0].size, 2 * kCacheSize);
        EXPECT_EQ(cache_.statistics().devices[1].size, 0u);
        gpus_[1].free(other);
    });
}

TEST_F(CacheGpusTest, DirtyMemoryIsBackAfterItsWriteBack) {
    in_process(1, [&] {
        constexpr uint64_t kKept = uint64_t{100} << 20;
        make_on_gpus(2, {.dirty_size_max = 2 * kCacheSize, .keep_free = kKept});
        const std::string path = write_file("a", 0);
        const CachedFile file = open(path);
        const auto bytes = random_bytes(2 * kCacheSize, 3);
        ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 0).ok());
        fake_->used_by_others = uint64_t{1} << 40;
        EXPECT_TRUE(shrinks_to(0, milliseconds(20'000)));
        EXPECT_EQ(bytes_of(path), bytes);
        EXPECT_EQ(read(file, 2 * kCacheSize, 0), bytes);
        EXPECT_EQ(cache_.statistics().bytes_lost, 0u);
    });
}

TEST_F(CacheGpusTest, MemoryInUseIsGivenWhenItsPinsAreGone) {
    in_process(1, [&] {
        make_on_gpus(1);
        const std::string path = write_file("a", kChunk);
        const CachedFile file = open(path);
        const auto expected = read(file, kChunk, 0);
        fake_->hold = true;
        std::thread reader([&] { EXPECT_EQ(read(file, kChunk, 0), expected); });
        std::this_thread::sleep_for(milliseconds(100));  // it is in its copy
        EXPECT_EQ(cache_.give_back(1, milliseconds(100)).status().error_number(), ETIMEDOUT);
        EXPECT_EQ(cache_.statistics().size, kCacheSize);
        fake_->hold = false;
        EXPECT_EQ(cache_.give_back(1).value(), kCacheSize);
        reader.join();
        EXPECT_EQ(read(file, kChunk, 0), expected);
    });
}

TEST_F(CacheGpusTest, ALostGpuCostsOnlyWhatWasDirtyThere) {
    in_process(2, [&] {
        make_on_gpus(1);
        const std::string clean = write_file("clean", 100 * kChunk);
        const std::string dirty = write_file("dirty", 100 * kChunk);
        const std::string synced = write_file("synced", 100 * kChunk);
        const CachedFile a = open(clean), b = open(dirty), c = open(synced);
        auto of_b = bytes_of(dirty), of_c = bytes_of(synced);
        EXPECT_EQ(read(a, 100 * kChunk, 0), bytes_of(clean));
        const auto bytes = random_bytes(10 * kChunk, 3);
        for (const CachedFile& file : {b, c})
            ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 50 * kChunk).ok());
        ASSERT_TRUE(c.sync().ok());
        std::ranges::copy(bytes, of_c.begin() + 50 * kChunk);
        fake_->lost_device = 1;
        EXPECT_EQ(read(a, 100 * kChunk, 0), bytes_of(clean));
        EXPECT_EQ(read(c, 100 * kChunk, 0), of_c);
        const auto told = cache_.statistics();
        EXPECT_EQ(told.devices_lost, 1u);
        EXPECT_EQ(told.bytes_lost, 5 * kChunk);
        EXPECT_TRUE(told.devices[1].lost);
        EXPECT_EQ(told.size, kCacheSize);
        // Every second chunk of what was written is what storage has.
        const auto got = read(b, 100 * kChunk, 0);
        int of_storage = 0;
        for (uint64_t number = 50; number < 60; ++number) {
            const auto* at = &got[number * kChunk];
            const bool old = std::memcmp(at, &of_b[number * kChunk], kChunk) == 0;
            EXPECT_TRUE(old || std::memcmp(at, &bytes[(number - 50) * kChunk], kChunk) == 0);
            of_storage += old ? 1 : 0;
        }
        EXPECT_EQ(of_storage, 5);
        EXPECT_TRUE(a.sync().ok());
        EXPECT_TRUE(c.sync().ok());
        EXPECT_EQ(b.sync().error_number(), EIO);
        EXPECT_TRUE(b.sync().ok()) << "it is told once";
        EXPECT_EQ(bytes_of(dirty), got);
    });
}

TEST_F(CacheGpusTest, AFileIsAsLongAsStorageWithoutItsLostEnd) {
    in_process(1, [&] {
        make_on_gpus(1);
        const std::string path = write_file("a", 1'000);
        const auto expected = bytes_of(path);
        const CachedFile file = open(path);
        const auto bytes = random_bytes(3 * kChunk, 3);
        ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 1'000).ok());
        EXPECT_EQ(file.size(), 1'000 + bytes.size());
        fake_->lost_device = 0;
        EXPECT_EQ(read(file, 4 * kChunk, 0), expected);
        EXPECT_EQ(file.size(), 1'000u);
        EXPECT_EQ(file.take_error().error_number(), EIO);
        // There is no memory left: reads and writes use the file.
        ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 500).ok());
        EXPECT_EQ(read(file, bytes.size(), 500), bytes);
        EXPECT_TRUE(file.sync().ok());
        EXPECT_EQ(bytes_of(path).size(), 500 + bytes.size());
    });
}

TEST_F(CacheGpusTest, AGpuLostAtAWriteBackOrAFillIsNotAskedAgain) {
    in_process(2, [&] {
        make_on_gpus(1);
        const std::string path = write_file("a", 100 * kChunk);
        const CachedFile file = open(path);
        const auto bytes = random_bytes(10 * kChunk, 3);
        ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 0).ok());
        fake_->lost_device = 0;
        EXPECT_EQ(file.sync().error_number(), EIO);
        EXPECT_TRUE(file.sync().ok());
        EXPECT_EQ(cache_.statistics().bytes_lost, 5 * kChunk);
        EXPECT_EQ(read(file, 100 * kChunk, 0), bytes_of(path));
        fake_->lost_device = 1;
        const std::string other = write_file("b", 100 * kChunk);
        EXPECT_EQ(read(open(other), 100 * kChunk, 0), bytes_of(other));  // a fill finds it
        EXPECT_EQ(cache_.statistics().devices_lost, 2u);
        EXPECT_EQ(cache_.statistics().size, 0u);
        EXPECT_EQ(cache_.statistics().write_errors, 0u);
    });
}

TEST_F(CacheGpusTest, OtherProgramsReadOnWithoutALostGpu) {
    in_process(2, [&] {
        make_on_gpus(1, {.shared = true});
        const std::string path = write_file("a", 100 * kChunk);
        const CachedFile file = open(path);
        EXPECT_EQ(read(file, 100 * kChunk, 0), bytes_of(path));
        fake_->lost_device = 0;
        EXPECT_EQ(file.fetch(0, 100 * kChunk).value(), 100 * kChunk);
        fake_->lost_device = 1;
        file.drop(0, 100 * kChunk);
        EXPECT_EQ(file.fetch(0, 100 * kChunk).value(), 0u);  // they read the file below
        EXPECT_EQ(cache_.statistics().devices_lost, 2u);
    });
}

// Whichever call of the driver fails: every operation ends, and a sync that succeeds has stored
// what was written.
TEST_F(CacheGpusTest, AnyCallOfTheDriverMayFail) {
    in_process(2, [&] {
        const auto scenario = [&](uint64_t seed) {
            const std::string path = write_file("a", 40 * kChunk);
            const auto before = bytes_of(path);
            auto opened = cache_.adopt(::open(path.c_str(), O_RDWR));
            if (!opened.ok()) return;
            const CachedFile file = opened.value();
            std::vector<std::byte> got(40 * kChunk);
            const auto size = file.read(got.data(), got.size(), 0);
            if (size.ok()) {
                EXPECT_EQ(std::memcmp(got.data(), before.data(), size.value()), 0);
            }
            const auto bytes = random_bytes(12 * kChunk, seed);
            const auto written = file.write(bytes.data(), bytes.size(), 100);
            const Status stored = file.sync();
            if (written.ok() && stored.ok()) {
                EXPECT_EQ(std::memcmp(&bytes_of(path)[100], bytes.data(), written.value()), 0);
            }
            EXPECT_TRUE(file.sync().ok());
        };
        make_on_gpus(1);
        const int64_t first = fake_->call_count;
        scenario(0);
        const int64_t calls = fake_->call_count - first;
        for (const int code : {719, 999, 2}) {
            for (int64_t n = 1; n <= calls; n += 1 + calls / testing::effort(60, 10, 2'000)) {
                make_on_gpus(1);  // the slabs are taken before the failure
                fake_->fail_code = code;
                fake_->fail_at = fake_->call_count + n;
                scenario(static_cast<uint64_t>(n));
                fake_->fail_at = 0;
                if (HasFailure()) FAIL() << "call " << n << " code " << code;
            }
        }
    });
}

}  // namespace
}  // namespace penstock
