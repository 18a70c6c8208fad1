// Goal: windows of a file that is not in the OS page cache are left to storage while blocks go on.
// They bring the right bytes, and none stays in flight after its kernel has ended.
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "file/advice_test.h"
#include "file/host_read_fixture.h"
#include "file/read_test.h"
#include "file/system.h"
#include "penstock/file_system.h"
#include "penstock/residency.h"
#include "storage/storage.h"
#include "testing/bytes.h"
#include "testing/effort.h"
#include "testing/fault_storage.h"

namespace penstock {
namespace {

constexpr uint64_t kPage = 4096;

// The parameter says whether blocks help.
class ColdWindowsTest : public HostReadTest, public ::testing::WithParamInterface<bool> {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        DeviceOptions options;
        options.memory_size = 128 << 20;
        device_ = Device::open("cpu:2", options).value();
        out_ = static_cast<std::byte*>(device_.allocate(kFileSize).value());
        result_ = static_cast<int64_t*>(device_.allocate(16).value());
        fsync(descriptor_);
        create(8 << 20);
    }
    // Windows may hold a quarter of the cache.
    void create(uint64_t cache_size) {
        FileSystemOptions wanted;
        wanted.page_size = kPage;
        wanted.cache_size = cache_size;
        wanted.helping = GetParam();
        fs_ = {};
        fs_ = std::move(FileSystem::create(device_, wanted).value());
        file_ = fs_.open(path_).value();
    }
    // Drops the file from the OS page cache. The GPU's cache is smaller than the file.
    void drop_all() const { posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }
    // Not on a file system that keeps its bytes in memory.
    [[nodiscard]] bool is_cold() const {
        const auto seen = residency(path_);
        EXPECT_TRUE(seen.ok()) << seen.status().message();
        return seen.value().resident_size == 0;
    }
    // Blocks in turns of `piece` bytes; the bytes that they got.
    int64_t read_whole(unsigned blocks, uint64_t piece) {
        Stream stream = std::move(Stream::create(device_).value());
        result_[0] = result_[1] = 0;
        finish(stream, launch(stream, {{blocks}, {32}}, file_test::read_whole<device::Block>,
                              fs_.device_handle(), file_, piece, out_, result_));
        EXPECT_EQ(result_[1], 0);
        return result_[0];
    }
    // A file system whose storage fails when told to, with the file open.
    std::shared_ptr<testing::FaultStorage> create_faulty(uint64_t cache_size) {
        auto made = storage::make_storage({.kind = storage::Kind::kUring});
        if (!made.ok()) made = storage::make_storage({.kind = storage::Kind::kPosix});
        auto faults = std::make_shared<testing::FaultStorage>(made.value());
        FileSystemOptions options;
        options.page_size = kPage;
        options.cache_size = cache_size;
        options.helping = GetParam();
        fs_ = {};
        fs_ = std::move(file::System::create(device_, faults, options).value());
        file_ = fs_.open(path_).value();
        return faults;
    }
    // So many reads of 16 KiB in a row by one block: it stops in the middle of its windows.
    void read_some(uint64_t reads) {
        constexpr uint64_t kSize = 16 << 10;
        Stream stream = std::move(Stream::create(device_).value());
        const file_test::AdviceJob job{fs_.device_handle(), file_, 0, kSize, out_, result_};
        finish(stream,
               launch(stream, {{1}, {32}}, file_test::read_steps, job, int64_t{kSize}, reads));
    }
    static void finish(Stream& stream, const Status& launched) {
        EXPECT_TRUE(launched.ok()) << launched.message();
        const Status done = stream.synchronize(std::chrono::seconds(60));
        EXPECT_TRUE(done.ok()) << done.message();
    }
    // Descriptors of this process for the file, but for the test's own.
    [[nodiscard]] size_t descriptors() const {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            count += std::filesystem::read_symlink(entry.path(), gone) == path_;
        }
        return count - 1;
    }

    Device device_;
    FileSystem fs_;
    std::byte* out_ = nullptr;
    int64_t* result_ = nullptr;
    Descriptor file_ = -1;
};

// One block reads in a row, two at equal distances.
TEST_P(ColdWindowsTest, BringTheRightBytes) {
    for (const uint64_t cache_size : {8 << 20, 19 << 20, 24 << 20}) {
        for (const unsigned blocks : {1u, 2u}) {
            create(cache_size);
            drop_all();
            std::memset(out_, 0, kFileSize);
            ASSERT_EQ(read_whole(blocks, 16 << 10), static_cast<int64_t>(kFileSize));
            EXPECT_TRUE(testing::equal(out_, bytes_.data(), kFileSize)) << blocks;
            EXPECT_GT(fs_.statistics().pages.prefetched, 0u);
        }
    }
}

// Windows side by side are one request of 1 MiB; 80 of 256 KiB otherwise. The first read is large
// enough to go past the OS page cache, for which the kernel would read ahead.
TEST_P(ColdWindowsTest, AreReadByTheMebibyte) {
    create(24 << 20);
    drop_all();
    if (!is_cold()) GTEST_SKIP() << "the file system keeps it in memory";
    ASSERT_EQ(read_whole(1, 256 << 10), static_cast<int64_t>(kFileSize));
    EXPECT_TRUE(testing::equal(out_, bytes_.data(), kFileSize));
    EXPECT_LE(fs_.statistics().reads, 45u);
}

// Windows that became one read: an error in one reaches only who reads the page that it struck,
// also where several fail while pages of the first are read again.
TEST_P(ColdWindowsTest, ABadPageIsThatOfWhoReadsIt) {
    base::Prng prng(5);
    for (int round = 0; round < 8; ++round) {
        const auto faults = create_faulty(24 << 20);
        std::memset(out_, 0, kFileSize);
        const uint64_t first = prng.below(kFileSize / kPage - 1000);
        const uint64_t pages[] = {first, first + 1 + prng.below(300), first + 400, first + 900};
        for (const uint64_t page : pages) {
            faults->plan().inject({.call = testing::Call::kRead,
                                   .action = testing::Action::kBad,
                                   .count = UINT64_MAX,
                                   .error = EIO,
                                   .offset = page * kPage});
            std::memcpy(out_ + page * kPage, bytes_.data() + page * kPage, kPage);
        }
        drop_all();
        Stream stream = std::move(Stream::create(device_).value());
        result_[0] = result_[1] = 0;
        finish(stream, launch(stream, {{1}, {32}}, file_test::read_whole<device::Block>,
                              fs_.device_handle(), file_, kPage, out_, result_));
        EXPECT_EQ(result_[1], EIO);
        EXPECT_EQ(result_[0], static_cast<int64_t>(kFileSize - std::size(pages) * kPage)) << first;
        EXPECT_TRUE(testing::equal(out_, bytes_.data(), kFileSize)) << first;
        ASSERT_TRUE(fs_.close(file_).ok());
    }
}

// The file is cut while some windows are with storage and another is about to be: what lies below
// the new end is right, and once all is over nothing beyond it can be had.
TEST_P(ColdWindowsTest, OfAFileThatIsCut) {
    constexpr uint64_t kBeyond[] = {0, 5'000, 300'000, 4'000'000};
    for (const uint64_t n : {2, 7, 12, 20}) {
        if (testing::kThreadSanitizer && n != 7) continue;  // half a minute
        for (const uint64_t beyond : kBeyond) {
            ASSERT_EQ(pwrite(descriptor_, bytes_.data(), kFileSize, 0),
                      static_cast<ssize_t>(kFileSize));
            fsync(descriptor_);
            const auto faults = create_faulty(8 << 20);
            drop_all();
            faults->plan().inject(
                {.call = testing::Call::kRead, .action = testing::Action::kBlock, .first = n});
            constexpr std::byte kUntouched{0xee};
            std::memset(out_, static_cast<int>(kUntouched), kFileSize);
            Stream stream = std::move(Stream::create(device_).value());
            result_[0] = result_[1] = 0;
            const Status launched = launch(
                stream, {{1}, {32}}, file_test::read_whole<device::Block>, fs_.device_handle(),
                file_, uint64_t{16 << 10}, out_, result_);
            ASSERT_TRUE(faults->plan().wait_blocked(1, 10'000'000'000));
            const uint64_t cut = std::min(fs_.statistics().bytes_read + beyond, kFileSize - 1);
            ASSERT_EQ(ftruncate(descriptor_, static_cast<off_t>(cut)), 0);
            faults->plan().release();
            finish(stream, launched);
            SCOPED_TRACE("operation " + std::to_string(n) + ", cut to " + std::to_string(cut));
            EXPECT_GT(fs_.statistics().pages.prefetched, 0u);
            EXPECT_EQ(result_[1], 0);
            EXPECT_GE(result_[0], static_cast<int64_t>(cut));
            EXPECT_TRUE(testing::equal(out_, bytes_.data(), cut));
            // A read that was under way may have brought what was there, or zeros.
            for (uint64_t i = cut; i < kFileSize; ++i) {
                const bool good = out_[i] == bytes_[i] || out_[i] == kUntouched ||
                                  out_[i] == std::byte{0};
                ASSERT_TRUE(good) << i;
            }
            EXPECT_EQ(fs_.size(file_).value(), cut);
            std::memset(out_, 0, kFileSize);
            EXPECT_EQ(read_whole(1, 16 << 10), static_cast<int64_t>(cut));
            EXPECT_TRUE(testing::equal(out_, bytes_.data(), cut));
            ASSERT_TRUE(fs_.close(file_).ok());
        }
    }
}

TEST_P(ColdWindowsTest, GoWithTheirFile) {
    for (uint64_t reads = 40; reads < 140; reads += 5) {
        drop_all();
        read_some(reads);
        ASSERT_TRUE(fs_.close(file_).ok());
        // Workers see to it by themselves.
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!GetParam() && descriptors() > 0 && std::chrono::steady_clock::now() < limit)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ASSERT_EQ(descriptors(), 0u) << reads << ": a window keeps it open";
        file_ = fs_.open(path_).value();
    }
    EXPECT_GT(fs_.statistics().pages.prefetched, 0u);
}

INSTANTIATE_TEST_SUITE_P(Serving, ColdWindowsTest, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Helping" : "Workers"; });

}  // namespace
}  // namespace penstock
