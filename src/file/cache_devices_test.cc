// Goal: a file cache over several devices has as many chunks in each, gives memory back and takes
// it again, and shows the right bytes whatever memory it has at the time.
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "base/prng.h"
#include "file/file_cache_fixture.h"
#include "testing/effort.h"

namespace penstock {
namespace {

class CacheDevicesTest : public FileCacheTest {
protected:
    // Makes a cache over a number of devices, with so many slabs on each.
    void make_over(size_t devices, uint64_t slabs, FileCacheOptions options = {}) {
        for (size_t i = 0; i < devices; ++i)
            options.devices.push_back(Device::open("cpu:1", {.memory_size = 64 << 20}).value());
        options.size = slabs * kCacheSize;
        make(std::move(options));
    }
    [[nodiscard]] std::vector<uint64_t> chunks_of_devices() const {
        std::vector<uint64_t> counts;
        for (const auto& device : cache_.statistics().devices)
            counts.push_back((device.size - device.free_size) / kChunk);
        return counts;
    }
    // Returns how much memory of the operating system the chunks have.
    [[nodiscard]] uint64_t arena_size() const {
        struct stat state {};
        EXPECT_EQ(fstat(cache_.shared().arena, &state), 0);
        return static_cast<uint64_t>(state.st_blocks) * 512;
    }
};

TEST_F(CacheDevicesTest, ChunksLieEvenlyOnTwoAndFourDevices) {
    for (const size_t devices : {2u, 4u}) {
        make_over(devices, 2);
        const std::string path = write_file("a", 800 * kChunk + 100);
        const auto before = bytes_of(path);
        const CachedFile file = open(path);
        EXPECT_EQ(read(file, 800 * kChunk, 0), std::vector(before.begin(), before.end() - 100));
        EXPECT_EQ(chunks_of_devices(), std::vector<uint64_t>(devices, 800 / devices));
        std::vector<std::byte> bytes(100 * kChunk);
        testing::fill_randomly(bytes.data(), bytes.size(), 7);
        ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 100 * kChunk).ok());
        for (const auto& device : cache_.statistics().devices)
            EXPECT_EQ(device.dirty_size, bytes.size() / devices);
        EXPECT_EQ(read(file, bytes.size(), 100 * kChunk), bytes);
        ASSERT_TRUE(file.sync().ok());
        auto expected = before;
        std::ranges::copy(bytes, expected.begin() + 100 * kChunk);
        EXPECT_EQ(bytes_of(path), expected);
    }
}

TEST_F(CacheDevicesTest, TakesMemoryOfTheHostAsItIsUsed) {
    constexpr uint64_t kSlabs = 8;
    for (const size_t devices : {1u, 2u}) {
        make_over(devices, kSlabs / devices, {.shared = true});
        EXPECT_EQ(arena_size(), devices * kCacheSize);
        const std::string path = write_file("a", 3 * kCacheSize);
        const CachedFile file = open(path);
        EXPECT_EQ(read(file, 3 * kCacheSize, 0), bytes_of(path));
        FileCacheStatistics told = cache_.statistics();
        EXPECT_EQ(told.evicted, 0u);
        EXPECT_EQ(told.size, kSlabs * kCacheSize);
        EXPECT_EQ(told.free_size, (kSlabs - 3) * kCacheSize);
        EXPECT_LE(arena_size(), 5 * kCacheSize);

        // Each thread takes a slab's memory at some time, or waits for another one that does.
        std::vector<std::string> paths;
        for (const char* name : {"b", "c", "d", "e"}) paths.push_back(write_file(name, 0));
        const Bytes bytes = some_bytes(kCacheSize, devices);
        std::vector<std::thread> threads;
        for (const std::string& one : paths)
            threads.emplace_back([&, file = open(one)] {
                for (uint64_t at = 0; at < bytes.size(); at += kChunk)
                    ASSERT_TRUE(file.write(&bytes[at], kChunk, at).ok());
            });
        for (std::thread& thread : threads) thread.join();
        told = cache_.statistics();
        EXPECT_EQ(told.evicted, 0u);
        EXPECT_EQ(told.free_size, kCacheSize);
        EXPECT_EQ(told.allocations, kSlabs);
        EXPECT_EQ(arena_size(), kSlabs * kCacheSize);
        ASSERT_TRUE(cache_.flush().ok());
        for (const std::string& one : paths) EXPECT_EQ(bytes_of(one), bytes);
        for (const std::string& one : paths) EXPECT_EQ(read(open(one), bytes.size(), 0), bytes);
    }
}

TEST_F(CacheDevicesTest, GivesCleanMemoryBackAndTakesItAgain) {
    make_over(2, 2, {.shared = true});
    const std::string path = write_file("a", 3 * kCacheSize);
    const CachedFile file = open(path);
    EXPECT_EQ(read(file, 3 * kCacheSize, 0), bytes_of(path));
    EXPECT_EQ(arena_size(), 4 * kCacheSize);
    EXPECT_EQ(cache_.give_back(kCacheSize + 1).value(), 2 * kCacheSize);  // whole slabs
    EXPECT_EQ(arena_size(), 2 * kCacheSize);
    auto told = cache_.statistics();
    EXPECT_EQ(told.size, 2 * kCacheSize);
    EXPECT_EQ(told.given_back_size, 2 * kCacheSize);
    EXPECT_EQ(told.allocations, 4u);
    EXPECT_EQ(read(file, 3 * kCacheSize, 0), bytes_of(path));
    EXPECT_EQ(arena_size(), 2 * kCacheSize);
    EXPECT_EQ(cache_.grow(3 * kCacheSize).value(), 2 * kCacheSize);  // up to what it had
    EXPECT_EQ(arena_size(), 4 * kCacheSize);
    told = cache_.statistics();
    EXPECT_EQ(told.size, 4 * kCacheSize);
    EXPECT_EQ(told.given_back_size, 0u);
    EXPECT_EQ(told.allocations, 6u);
    EXPECT_EQ(read(file, 3 * kCacheSize, 0), bytes_of(path));
    EXPECT_EQ(cache_.grow(kCacheSize).value(), 0u);
}

TEST_F(CacheDevicesTest, DirtyMemoryIsWrittenBackFirst) {
    make_over(1, 2, {.dirty_size_max = 2 * kCacheSize, .dirty_age = std::chrono::hours(1)});
    const std::string path = write_file("a", 0);
    const CachedFile file = open(path);
    std::vector<std::byte> bytes(3 * kCacheSize / 2);
    testing::fill_randomly(bytes.data(), bytes.size(), 7);
    ASSERT_TRUE(file.write(bytes.data(), bytes.size(), 0).ok());
    EXPECT_EQ(cache_.give_back(1).value(), kCacheSize);
    auto told = cache_.statistics();
    EXPECT_GT(told.dirty_size, 0u) << "the other slab is not written back";
    EXPECT_LE(told.dirty_size, kCacheSize);
    EXPECT_EQ(read(file, bytes.size(), 0), bytes);
    EXPECT_EQ(cache_.give_back(~0ull).value(), kCacheSize);
    EXPECT_EQ(bytes_of(path), bytes);
}

TEST_F(CacheDevicesTest, MemoryThatCannotBeWrittenBackIsKept) {
    make_over(1, 1, {.dirty_age = std::chrono::hours(1)});
    const std::string path = write_file("a", 10'000);
    const CachedFile file = open(path);
    ASSERT_TRUE(file.write("kept", 4, 60'000).ok());
    {
        const FileSizeLimit limit(20'000);
        EXPECT_EQ(cache_.give_back(1).status().error_number(), EFBIG);
    }
    EXPECT_EQ(file.take_error().error_number(), EFBIG);
    EXPECT_EQ(cache_.statistics().size, kCacheSize);
    EXPECT_EQ(std::memcmp(read(file, 4, 60'000).data(), "kept", 4), 0);
    EXPECT_EQ(read(file, 60'004, 0).size(), 60'004u);
    EXPECT_GT(cache_.statistics().free_size, 0u);
    EXPECT_EQ(cache_.give_back(1).value(), kCacheSize);
    EXPECT_EQ(std::memcmp(&bytes_of(path)[60'000], "kept", 4), 0);
}

TEST_F(CacheDevicesTest, WithoutMemoryReadsAndWritesUseTheFile) {
    make_over(2, 1);
    const std::string path = write_file("a", 100'000);
    auto expected = bytes_of(path);
    const CachedFile file = open(path), writer = open(path, O_WRONLY);
    EXPECT_EQ(cache_.give_back(~0ull).value(), 2 * kCacheSize);
    EXPECT_EQ(read(file, 100'000, 0), expected);
    ASSERT_EQ(file.write("inside", 6, 50'000).value(), 6u);
    ASSERT_EQ(writer.write("at the end", 10, 99'998).value(), 10u);
    std::memcpy(&expected[50'000], "inside", 6);
    expected.resize(100'008);
    std::memcpy(&expected[99'998], "at the end", 10);
    EXPECT_EQ(bytes_of(path), expected);
    EXPECT_EQ(read(file, 200'000, 0), expected);
    EXPECT_EQ(cache_.statistics().dirty_size, 0u);
    EXPECT_EQ(cache_.grow(~0ull).value(), 2 * kCacheSize);
    EXPECT_EQ(read(file, 200'000, 0), expected);
    EXPECT_GT(cache_.statistics().clean_size, 0u);
}

TEST_F(CacheDevicesTest, KeepsMemoryOfTheHostFree) {
    // No machine has so much: all memory goes.
    make_over(2, 2, {.keep_free = uint64_t{1} << 60});
    const std::string path = write_file("a", kCacheSize);
    const CachedFile file = open(path);
    const auto begin = std::chrono::steady_clock::now();
    while (cache_.statistics().given_back_size < 4 * kCacheSize &&
           std::chrono::steady_clock::now() < begin + std::chrono::seconds(20)) {
        ASSERT_TRUE(file.write("dirty", 5, 1'000).ok());
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(cache_.statistics().given_back_size, 4 * kCacheSize);
    auto expected = bytes_of(path);
    std::memcpy(&expected[1'000], "dirty", 5);
    EXPECT_EQ(read(file, kCacheSize, 0), expected);
    // And with enough of it none.
    make_over(2, 2, {.keep_free = 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(cache_.statistics().size, 4 * kCacheSize);
}

// Threads read and write pieces of their own while memory goes and comes.
TEST_F(CacheDevicesTest, BytesAreRightWhileMemoryGoesAndComes) {
    constexpr unsigned kThreads = 3;
    constexpr uint64_t kPiece = 512, kPieces = 4 * kCacheSize / kPiece;
    make_over(3, 1, {.dirty_age = std::chrono::milliseconds(5)});
    const std::string path = write_file("a", kPieces * kPiece);
    std::vector<std::byte> expected = bytes_of(path);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            base::Prng prng(thread);
            const CachedFile file = open(path);
            for (uint64_t step = 0; step < testing::effort(4000, 400, 100'000); ++step) {
                const uint64_t piece = prng.below(kPieces / kThreads) * kThreads + thread;
                std::byte bytes[kPiece];
                std::byte* const own = &expected[piece * kPiece];
                if (prng.below(2) == 0) {
                    EXPECT_EQ(file.read(bytes, kPiece, piece * kPiece).value(), kPiece);
                    EXPECT_EQ(std::memcmp(bytes, own, kPiece), 0) << "piece " << piece;
                } else {
                    testing::fill_randomly(own, kPiece, prng.next());
                    EXPECT_EQ(file.write(own, kPiece, piece * kPiece).value(), kPiece);
                }
            }
        });
    }
    std::thread neighbour([&] {
        base::Prng prng(99);
        while (!stop) {
            EXPECT_TRUE(cache_.give_back(prng.below(4 * kCacheSize)).ok());
            EXPECT_TRUE(cache_.grow(prng.below(4 * kCacheSize)).ok());
        }
    });
    for (std::thread& thread : threads) thread.join();
    stop = true;
    neighbour.join();
    EXPECT_TRUE(cache_.grow(~0ull).ok());
    EXPECT_EQ(cache_.statistics().size, 3 * kCacheSize);
    EXPECT_TRUE(open(path).sync().ok());
    EXPECT_EQ(bytes_of(path), expected);
}

TEST_F(CacheDevicesTest, NoOperationAllocatesMemoryOfADevice) {
    make_over(2, 1, {.dirty_age = std::chrono::milliseconds(1)});
    const std::string path = write_file("a", 8 * kCacheSize);
    const CachedFile file = open(path);
    base::Prng prng(5);
    std::vector<std::byte> bytes(8 * kChunk);
    for (uint64_t step = 0; step < testing::effort(5000, 1000, 100'000); ++step) {
        const uint64_t size = prng.below(bytes.size()) + 1, offset = prng.below(8 * kCacheSize);
        switch (prng.below(200)) {
            case 0:
                ASSERT_TRUE(file.truncate(offset).ok());
                break;
            case 1:
                ASSERT_TRUE(file.flush().ok());
                break;
            case 2:
                file.drop(offset, size);
                break;
            default:
                if (prng.below(2) == 0) {
                    ASSERT_TRUE(file.read(bytes.data(), size, offset).ok());
                } else {
                    ASSERT_TRUE(file.write(bytes.data(), size, offset).ok());
                }
        }
    }
    EXPECT_GT(cache_.statistics().evicted, 0u);
    EXPECT_EQ(cache_.statistics().allocations, 2u);
}

}  // namespace
}  // namespace penstock
