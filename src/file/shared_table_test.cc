#include "file/shared_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/prng.h"
#include "penstock/file_cache.h"
#include "testing/effort.h"

namespace penstock::file {
namespace {

constexpr uint32_t kChunk = 4096;
constexpr uint64_t kCacheSize = uint64_t{1024} * kChunk;

// Maps a shared cache as another process would.
class Client {
public:
    explicit Client(const SharedFileCache& shared) {
        table_ = map(shared.table, PROT_READ, &table_size_);
        arena_ = map(shared.arena, PROT_READ, &arena_size_);
        marks_ = map(shared.marks, PROT_READ | PROT_WRITE, &marks_size_);
        reader.table = chunk_table::Table(table_);
        reader.marks = chunk_table::Marks(marks_, reader.table.shape.file_count,
                                          reader.table.shape.chunk_count);
        arena = static_cast<const std::byte*>(arena_);
    }
    ~Client() {
        munmap(table_, table_size_);
        munmap(arena_, arena_size_);
        munmap(marks_, marks_size_);
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    chunk_table::Reader reader;
    const std::byte* arena = nullptr;

private:
    static void* map(int descriptor, int protection, size_t* size) {
        struct stat status {};
        EXPECT_EQ(fstat(descriptor, &status), 0);
        *size = static_cast<size_t>(status.st_size);
        void* mapped = mmap(nullptr, *size, protection, MAP_SHARED, descriptor, 0);
        EXPECT_NE(mapped, MAP_FAILED);
        return mapped;
    }
    void *table_ = nullptr, *arena_ = nullptr, *marks_ = nullptr;
    size_t table_size_ = 0, arena_size_ = 0, marks_size_ = 0;
};

class SharedTableTest : public ::testing::Test {
protected:
    void SetUp() override {
        const Device device = Device::open("cpu:1", {.memory_size = 64 << 20}).value();
        cache_ = FileCache::create({.devices = {device},
                                    .size = kCacheSize,
                                    .chunk_size = kChunk,
                                    .dirty_age = std::chrono::milliseconds(1),
                                    .shared = true})
                     .value();
        client_ = std::make_unique<Client>(cache_.shared());
        descriptor_ = mkstemp(path_);
        ASSERT_GE(descriptor_, 0);
        struct stat status {};
        ASSERT_EQ(fstat(descriptor_, &status), 0);
        device_ = status.st_dev;
        inode_ = status.st_ino;
    }
    void TearDown() override {
        close(descriptor_);
        unlink(path_);
    }
    // Makes the file of words that tell their place and a version, older than the clock's tick.
    void write_file(uint64_t size, uint64_t version) {
        std::vector<uint64_t> words(size / 8);
        for (uint64_t i = 0; i < words.size(); ++i) words[i] = word_of(i, version);
        ASSERT_EQ(pwrite(descriptor_, words.data(), size, 0), static_cast<ssize_t>(size));
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    static uint64_t word_of(uint64_t place, uint64_t version) { return place << 16 | version; }
    CachedFile open() { return cache_.adopt(::open(path_, O_RDWR | O_CLOEXEC)).value(); }
    [[nodiscard]] uint32_t slot() const { return client_->reader.find_file(device_, inode_); }
    size_t read(void* to, size_t size, uint64_t offset) const {
        const uint32_t found = slot();
        if (found == client_->reader.table.shape.file_count) return 0;
        auto copy = [&](size_t done, uint64_t at, size_t part) {
            std::memcpy(static_cast<std::byte*>(to) + done, client_->arena + at, part);
            return true;
        };
        return client_->reader.read(found, device_, inode_, size, offset, copy);
    }

    template <class Change>
    void change_beside_readers(uint64_t size, const Change& change);

    char path_[40] = "/tmp/penstock-shared-XXXXXX";
    int descriptor_ = -1;
    FileCache cache_;
    std::unique_ptr<Client> client_;
    uint64_t device_ = 0, inode_ = 0;
};

TEST_F(SharedTableTest, ShowsWhatIsCachedAndMayBeRead) {
    write_file(100'000, 1);
    const CachedFile file = open();
    std::vector<uint64_t> got(100'000 / 8);
    EXPECT_EQ(read(got.data(), 100'000, 0), 0u);
    EXPECT_EQ(file.fetch(0, 100'000).value(), 100'000u);
    EXPECT_EQ(read(got.data(), 100'000, 0), 0u) << "it is not allowed yet";
    ASSERT_TRUE(file.publish(CachedFile::Readable::kUnlessRecent));
    ASSERT_EQ(read(got.data(), 100'000, 0), 100'000u);
    for (uint64_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], word_of(i, 1));
    EXPECT_EQ(read(got.data(), 100, 99'996), 4u);
    EXPECT_EQ(read(got.data(), 100, 100'000), 0u);
    EXPECT_EQ(file.use().bytes, 100'004u);
    EXPECT_EQ(cache_.statistics().bytes_served, 100'004u);
    ASSERT_FALSE(file.publish(CachedFile::Readable::kNo));
    EXPECT_EQ(read(got.data(), 8, 0), 0u);
}

TEST_F(SharedTableTest, ShowsWritesAtOnceAndChangesBelowAfterTheNextOpen) {
    write_file(3 * kChunk, 1);
    const CachedFile file = open();
    ASSERT_TRUE(file.publish(CachedFile::Readable::kUnlessRecent));
    ASSERT_EQ(file.fetch(0, 3 * kChunk).value(), 3 * kChunk);
    uint64_t word = 42, got = 0;
    ASSERT_TRUE(file.write(&word, 8, kChunk).ok());
    ASSERT_EQ(read(&got, 8, kChunk), 8u);
    EXPECT_EQ(got, 42u);
    ASSERT_TRUE(file.sync().ok());
    ASSERT_TRUE(file.truncate(kChunk + 8).ok());
    EXPECT_EQ(read(&got, 8, kChunk + 8), 0u);
    write_file(2 * kChunk, 7);
    const CachedFile again = open();
    EXPECT_EQ(read(&got, 8, 0), 0u);
    ASSERT_EQ(again.fetch(0, 2 * kChunk).value(), 2 * kChunk);
    ASSERT_EQ(read(&got, 8, 0), 8u);
    EXPECT_EQ(got, word_of(0, 7));
}

// Chunks of many small files, and of few large ones: programs find nearly all of them.
TEST(SharedTable, HasRoomForChunksOfAnyFiles) {
    constexpr uint32_t kChunks = 4096;
    for (const uint32_t per_file : {1u, 16u, kChunks}) {
        auto made = SharedTable::create(kChunk, kChunks);
        ASSERT_TRUE(made.ok());
        SharedTable& table = *made.value();
        const size_t size = chunk_table::table_size(SharedTable::kFiles, kChunks * 4);
        void* mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, table.table_descriptor(), 0);
        ASSERT_NE(mapped, MAP_FAILED);
        const chunk_table::Table shown(mapped);
        uint32_t found = 0, slot = 0;
        for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
            const uint64_t number = chunk % per_file;
            if (number == 0) slot = table.add_file(1, 1000 + chunk);
            ASSERT_NE(slot, SharedTable::kNoSlot);
            table.publish(slot, number, chunk);
            found += shown.find(chunk_table::key_of(slot, number)) != nullptr ? 1 : 0;
        }
        munmap(mapped, size);
        EXPECT_GE(found, kChunks - 4) << per_file << " chunks a file";
    }
}

// Runs `change` beside readers by the table, who must see words of their place, of a version that
// was there. More threads than CPUs: some are stopped in a copy.
template <class Change>
void SharedTableTest::change_beside_readers(uint64_t size, const Change& change) {
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> served{0}, wrong{0};
    std::vector<std::thread> readers;
    for (uint64_t thread = 0; thread < 6; ++thread) {
        readers.emplace_back([&, thread] {
            base::Prng prng(thread);
            std::vector<uint64_t> got(1024);
            while (!stop) {
                const uint64_t first = prng.below(size / 8 - 1024);
                const size_t bytes = read(got.data(), 8192, first * 8) / 8;
                for (uint64_t i = 0; i < bytes; ++i) {
                    const uint64_t version = got[i] & 0xffff;
                    if (got[i] >> 16 != first + i || version == 0 || version > 2) ++wrong;
                }
                served += bytes;
            }
        });
    }
    change();
    stop = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(served, 0u);
}

TEST_F(SharedTableTest, ReadersNeverSeeBytesOfAnotherPlace) {
    constexpr uint64_t kSize = 3 * kCacheSize;
    write_file(kSize, 1);
    const CachedFile file = open();
    ASSERT_TRUE(file.publish(CachedFile::Readable::kUnlessRecent));
    change_beside_readers(kSize, [&] {
        base::Prng prng(99);
        for (int i = 0; i < static_cast<int>(testing::effort(20'000, 2'000, 1'000'000)); ++i) {
            const uint64_t number = prng.below(kSize / kChunk);
            if (i % 8 == 0) {
                std::vector<uint64_t> words(kChunk / 8);
                for (uint64_t k = 0; k < words.size(); ++k)
                    words[k] = word_of(number * words.size() + k, 2);
                ASSERT_TRUE(file.write(words.data(), kChunk, number * kChunk).ok());
            } else {
                ASSERT_TRUE(file.fetch(number * kChunk, kChunk).ok());
            }
        }
    });
    EXPECT_GT(cache_.statistics().evicted, 100u);
}

// Pages that were given back read as zeros, and zero is no word of any place.
TEST_F(SharedTableTest, ReadersNeverSeeMemoryThatWasGivenBack) {
    write_file(kCacheSize, 1);
    const CachedFile file = open();
    ASSERT_TRUE(file.publish(CachedFile::Readable::kUnlessRecent));
    change_beside_readers(kCacheSize, [&] {
        for (int i = 0; i < static_cast<int>(testing::effort(40, 10, 2'000)); ++i) {
            ASSERT_EQ(file.fetch(0, kCacheSize).value(), kCacheSize);
            ASSERT_EQ(cache_.give_back(kCacheSize).value(), kCacheSize);
            ASSERT_EQ(cache_.grow(kCacheSize).value(), kCacheSize);
        }
    });
}

}  // namespace
}  // namespace penstock::file
