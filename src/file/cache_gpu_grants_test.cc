// Goal: what programs write into copies of chunks, which a GPU's cache has granted them, is in the
// files in the end, also if other calls write the chunks.
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>

#include "base/prng.h"
#include "file/cache_gpus_fixture.h"
#include "penstock/abi/chunk_table.h"
#include "testing/effort.h"

namespace penstock {
namespace {

// Writes by grants, as another process would.
class Writer {
public:
    explicit Writer(const SharedFileCache& shared) {
        reader_.table = chunk_table::Table(map(shared.table));
        reader_.marks = chunk_table::Marks(map(shared.marks), reader_.table.shape.file_count,
                                           reader_.table.shape.chunk_count);
        arena_ = static_cast<std::byte*>(map(shared.arena));
    }
    // Writes within one chunk. Returns whether it was granted.
    bool write(uint32_t slot, const std::byte* from, uint64_t size, uint64_t offset) {
        namespace grant = chunk_table::grant;
        const auto* entry = reader_.table.find(chunk_table::key_of(slot, offset / kChunk));
        const uint64_t place = entry == nullptr ? 0 : entry->place.load();
        if (place == 0) return false;
        const uint32_t chunk = static_cast<uint32_t>(place) - 1;
        std::atomic<uint64_t>& word = reader_.marks.grants[chunk];
        uint64_t seen = word.load();
        do {
            if ((seen & grant::kGranted) == 0) return false;
        } while (!word.compare_exchange_weak(seen, grant::with_writer(seen, 1)));
        const bool ours = entry->place.load() == place;
        const uint64_t within = offset % kChunk;
        if (ours) std::memcpy(arena_ + uint64_t{chunk} * kChunk + within, from, size);
        std::atomic<uint64_t>& end = reader_.marks.files[slot].end;
        uint64_t before = end.load();
        while (ours && before < offset + size && !end.compare_exchange_weak(before, offset + size))
            continue;
        seen = word.load();
        for (;;) {
            const uint64_t free = grant::with_writer(seen, 0);
            const bool counts = ours && (seen & grant::kGranted) != 0;
            const uint64_t next = counts ? grant::with_range(free, within, within + size) : free;
            if (word.compare_exchange_weak(seen, next)) return counts;
        }
    }

private:
    static void* map(int descriptor) {
        struct stat status {};
        EXPECT_EQ(fstat(descriptor, &status), 0);
        void* mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE,
                            MAP_SHARED, descriptor, 0);
        EXPECT_NE(mapped, MAP_FAILED);
        return mapped;
    }
    chunk_table::Reader reader_;
    std::byte* arena_ = nullptr;
};

using CacheGpuGrantsTest = CacheGpusTest;

// The files are larger than what may be granted at once, and the cache than what may be dirty.
TEST_F(CacheGpuGrantsTest, WritesByGrantsAreInTheFilesInTheEnd) {
    in_process(2, [&] {
        make_on_gpus(2, {.shared = true});
        constexpr uint64_t kSize = 3000 * kChunk + 77;
        const std::string path = write_file("a", kSize);
        auto expected = bytes_of(path);
        const CachedFile file = open(path);
        ASSERT_TRUE(file.publish(CachedFile::Readable::kUnchanged));
        std::atomic<bool> done{false};
        // Each use of the bytes of a chunk must bring it up to date first.
        std::thread others([&, random = base::Prng(7)]() mutable {
            std::vector<std::byte> bytes(40 * kChunk);
            while (!done.load()) {
                const uint64_t at = random.below(kSize);
                switch (random.below(5)) {
                    case 0:
                        EXPECT_TRUE(file.sync().ok());
                        break;
                    case 1:
                        file.end_grants();
                        break;
                    case 2:
                        EXPECT_TRUE(file.fetch(at, bytes.size()).ok());
                        break;
                    case 3:
                        EXPECT_TRUE(
                            cache_.give_back(kCacheSize, std::chrono::milliseconds(20'000)).ok());
                        EXPECT_TRUE(cache_.grow(kCacheSize).ok());
                        break;
                    default:
                        EXPECT_TRUE(file.read(bytes.data(), bytes.size(), at).ok());
                }
            }
        });
        Writer writer(cache_.shared());
        base::Prng random(11);
        const uint32_t slot = file.use().slot;
        for (int i = 0; i < static_cast<int>(testing::effort(4000, 1000, 100'000)); ++i) {
            const uint64_t at = random.below(kSize);
            const uint64_t size = std::min(1 + random.below(kChunk), kChunk - at % kChunk);
            const auto bytes = random_bytes(size, static_cast<uint64_t>(i));
            while (!writer.write(slot, bytes.data(), size, at))
                ASSERT_TRUE(file.grant(at, size + random.below(200) * kChunk).ok());
            if (expected.size() < at + size) expected.resize(at + size);
            std::ranges::copy(bytes, expected.begin() + static_cast<ptrdiff_t>(at));
            if (random.below(16) == 0) {
                EXPECT_TRUE(read(file, size, at) == bytes) << i;
            }
        }
        done.store(true);
        others.join();
        file.end_grants();
        ASSERT_TRUE(file.sync().ok());
        EXPECT_TRUE(bytes_of(path) == expected);
        EXPECT_TRUE(read(file, expected.size(), 0) == expected);
    });
}

// A mount writes a chunk that is still shown as it was: no program may write that copy meanwhile.
TEST_F(CacheGpuGrantsTest, AChunkIsNotGrantedWhileItIsWritten) {
    in_process(1, [&] {
        make_on_gpus(1, {.dirty_age = std::chrono::hours(1), .shared = true});
        const std::string path = write_file("a", kChunk);
        auto expected = bytes_of(path);
        const CachedFile file = open(path);
        ASSERT_TRUE(file.publish(CachedFile::Readable::kUnchanged));
        ASSERT_TRUE(file.fetch(0, kChunk).ok());
        const auto bytes = random_bytes(kChunk, 1);
        std::ranges::copy(bytes, expected.begin());
        const int64_t before = fake_->call_count.load();
        fake_->hold.store(true);
        std::thread mount(
            [&] { EXPECT_EQ(file.write(&bytes[8], kChunk - 16, 8).value(), kChunk - 16); });
        while (fake_->call_count.load() == before) std::this_thread::yield();
        std::atomic<bool> done{false};
        std::thread program([&] {
            Writer writer(cache_.shared());
            for (const uint64_t at : {uint64_t{0}, kChunk - 8})
                while (!writer.write(file.use().slot, &bytes[at], 8, at))
                    ASSERT_TRUE(file.grant(at, 8).ok());
            done.store(true);
        });
        for (int i = 0; i < 100 && !done.load(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        fake_->hold.store(false);
        mount.join();
        program.join();
        ASSERT_TRUE(file.sync().ok());
        EXPECT_TRUE(bytes_of(path) == expected);
    });
}

// A mount writes chunks that a program has granted: what the program wrote before is older.
TEST_F(CacheGpuGrantsTest, AWriteBetweenWritesByGrantsIsKept) {
    in_process(1, [&] {
        make_on_gpus(1, {.dirty_age = std::chrono::hours(1), .shared = true});
        const std::string path = write_file("a", 3 * kChunk);
        auto expected = bytes_of(path);
        const CachedFile file = open(path);
        ASSERT_TRUE(file.publish(CachedFile::Readable::kUnchanged));
        Writer writer(cache_.shared());
        for (const uint64_t size : {uint64_t{9}, kChunk}) {
            const auto bytes = random_bytes(4 * kChunk, size);
            uint64_t from = 0;
            const auto write = [&](uint64_t at, uint64_t count, bool by_grant) {
                const std::byte* const own = &bytes[from++];
                std::copy_n(own, count, expected.begin() + static_cast<ptrdiff_t>(at));
                if (by_grant) {
                    while (!writer.write(file.use().slot, own, count, at))
                        ASSERT_TRUE(file.grant(at, count).ok());
                } else {
                    ASSERT_EQ(file.write(own, count, at).value(), count);
                }
            };
            write(kChunk, 9, true);
            write(2 * kChunk - 9, 9, true);  // one range has both
            write(kChunk, size, false);
            write(kChunk + 5, 9, true);
            EXPECT_TRUE(read(file, expected.size(), 0) == expected) << size;
        }
        ASSERT_TRUE(file.sync().ok());
        EXPECT_TRUE(bytes_of(path) == expected);
    });
}

}  // namespace
}  // namespace penstock
