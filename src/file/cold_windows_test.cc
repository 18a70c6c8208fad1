// Goal: windows of a file that the OS has nothing of are left to storage while blocks go on, bring
// the right bytes, and none stays under way for ever when its kernel has ended.
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "file/advice_test.h"
#include "file/host_read_fixture.h"
#include "file/read_test.h"
#include "penstock/file_system.h"

namespace penstock {
namespace {

constexpr uint64_t kPage = 4096;

// The parameter: blocks help.
class ColdWindowsTest : public HostReadTest, public ::testing::WithParamInterface<bool> {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        DeviceOptions options;
        options.memory_size = 128 << 20;
        device_ = Device::open("cpu:2", options).value();
        out_ = static_cast<std::byte*>(device_.allocate(kFileSize).value());
        result_ = static_cast<int64_t*>(device_.allocate(16).value());
        FileSystemOptions wanted;
        wanted.page_size = kPage;
        wanted.cache_size = 8 << 20;
        wanted.helping = GetParam();
        fs_ = std::move(FileSystem::create(device_, wanted).value());
        fsync(descriptor_);
        file_ = fs_.open(path_).value();
    }
    // Out of the OS page cache, and out of the GPU's by a cache that is smaller than the file.
    void drop_all() const { posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }
    // Blocks in turns of `piece` bytes; the bytes that they got.
    int64_t read_whole(unsigned blocks, uint64_t piece) {
        Stream stream = std::move(Stream::create(device_).value());
        result_[0] = result_[1] = 0;
        finish(stream, launch(stream, {{blocks}, {32}}, file_test::read_whole<device::Block>,
                              fs_.device_handle(), file_, piece, out_, result_));
        EXPECT_EQ(result_[1], 0);
        return result_[0];
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
    for (const unsigned blocks : {1u, 2u}) {
        drop_all();
        std::memset(out_, 0, kFileSize);
        ASSERT_EQ(read_whole(blocks, 16 << 10), static_cast<int64_t>(kFileSize));
        EXPECT_EQ(std::memcmp(out_, bytes_.data(), kFileSize), 0) << blocks;
    }
    EXPECT_GT(fs_.statistics().pages.prefetched, 0u);
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
