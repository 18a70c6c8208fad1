// Goal: at the end of a file a read fills the bytes that it counts, and leaves all other memory
// unchanged. This holds for each route, alignment and size, also if the file was cut since it was
// opened.
#include "file/host_read_fixture.h"

namespace penstock {
namespace {

constexpr uint64_t kPage = 4096, kSizeMax = 1 << 20;
constexpr std::byte kPattern{0xee};

class EndOfFileTest : public HostReadTest {
protected:
    // Leaves `size` bytes of the file, none of them in the OS page cache.
    void cut(uint64_t size) {
        ASSERT_EQ(ftruncate(descriptor_, static_cast<off_t>(size)), 0);
        fsync(descriptor_);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
    }
    void grow(uint64_t size) {
        ASSERT_EQ(pwrite(descriptor_, bytes_.data(), size, 0), static_cast<ssize_t>(size));
    }
    // `file_size` is what the file has now.
    void check(const File& file, uint64_t file_size, uint64_t offset, uint64_t size, uint64_t ahead,
               const ReadOptions& options) {
        std::byte* const to = memory_ + kPage + ahead;
        std::byte* const all_end = to + size + kPage;
        std::fill(memory_, all_end, kPattern);
        const auto got = file.read(to, size, offset, options, nullptr);
        const uint64_t there = offset < file_size ? std::min(size, file_size - offset) : 0;
        const auto what = [&] {
            return ::testing::Message()
                   << size << " from " << offset << " of " << file_size << " to a page and "
                   << ahead << ", policy " << static_cast<int>(options.cache);
        };
        ASSERT_TRUE(got.ok()) << what() << ": " << got.status().message();
        ASSERT_EQ(got.value(), there) << what();
        if (there > 0) {
            ASSERT_TRUE(testing::equal(to, bytes_.data() + offset, there)) << what();
        }
        const auto is_touched = [](std::byte byte) { return byte != kPattern; };
        ASSERT_EQ(std::count_if(memory_, to, is_touched), 0) << what();
        ASSERT_EQ(std::count_if(to + there, all_end, is_touched), 0) << what();
    }
    void check_all(const File& file, uint64_t file_size) {
        for (const CachePolicy policy :
             {CachePolicy::kBypass, CachePolicy::kDrop, CachePolicy::kAuto, CachePolicy::kKeep}) {
            ReadOptions options;
            options.cache = policy;
            for (const uint64_t size : {uint64_t{512}, kPage, uint64_t{64 << 10}, kSizeMax}) {
                for (const uint64_t ahead : {0, 5, 512, 1000}) {
                    const uint64_t before = file_size < size ? 0 : file_size - size / 2;
                    for (const uint64_t alignment : {kPage, uint64_t{512}, uint64_t{1}})
                        check(file, file_size, before - before % alignment, size, ahead, options);
                }
            }
        }
    }
};

TEST_F(EndOfFileTest, BytesBehindTheCountStay) {
    for (const uint64_t size : {0, 1, 511, 512, 513, 4095, 4097, 300'077, 3'000'013}) {
        grow(kFileSize);
        cut(size);
        const auto file = File::open(path_);
        ASSERT_TRUE(file.ok());
        check_all(file.value(), size);
    }
}

TEST_F(EndOfFileTest, BytesBehindTheCountStayWhereTheFileWasCutSinceItWasOpened) {
    for (const uint64_t size : {1, 4097, 300'077}) {
        // Each size and place anew, since the first short read tells that the file was cut.
        for (const uint64_t read_size : {uint64_t{512}, kPage, uint64_t{64 << 10}, kSizeMax}) {
            for (const uint64_t ahead : {0, 5, 512}) {
                for (const CachePolicy policy :
                     {CachePolicy::kBypass, CachePolicy::kDrop, CachePolicy::kAuto}) {
                    grow(2 << 20);
                    const auto file = File::open(path_);
                    ASSERT_TRUE(file.ok());
                    cut(size);
                    ReadOptions options;
                    options.cache = policy;
                    const uint64_t offset = size < read_size ? 0 : (size - 400) & ~(kPage - 1);
                    check(file.value(), size, offset, read_size, ahead, options);
                }
            }
        }
    }
}

}  // namespace
}  // namespace penstock
