// Goal: files reach kernels byte for byte on a device whose memory the host cannot address, as a
// GPU's: through staging, stream copies and stream-ordered stores, none of which may announce a
// page before its bytes are there, nor after a copy that failed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "file/read_test.h"
#include "penstock/abi/limits.h"
#include "penstock/file_system.h"
#include "testing/bytes.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

constexpr size_t kFileSize = (2 << 20) + 4321;

class RemoteTest : public ::testing::TestWithParam<uint32_t> {
protected:
    void SetUp() override {
        auto cpu = backend::open_cpu({.permits = 3, .memory_size = 64 << 20});
        ASSERT_TRUE(cpu.ok()) << cpu.status().message();
        port_ = std::make_shared<testing::RemoteDevice>(cpu.value());
        device_ = Device(port_);
        testing::fill_randomly(bytes_.data(), bytes_.size(), 5);
        char name[] = "/tmp/penstock-remote-XXXXXX";
        const int descriptor = mkstemp(name);
        path_ = name;
        ASSERT_EQ(write(descriptor, bytes_.data(), kFileSize), static_cast<ssize_t>(kFileSize));
        ::close(descriptor);
        auto stream = Stream::create(device_);
        ASSERT_TRUE(stream.ok());
        stream_ = std::move(stream.value());
        result_ = static_cast<int64_t*>(device_.allocate(4096).value());
        out_ = static_cast<std::byte*>(device_.allocate(kFileSize).value());
    }
    void TearDown() override { unlink(path_.c_str()); }

    void create(size_t frames, Readahead readahead = Readahead::kAuto) {
        FileSystemOptions options;
        options.readahead = readahead;
        options.page_size = GetParam();
        options.cache_size = frames * options.page_size;
        options.workers = 2;
        auto fs = FileSystem::create(device_, options);
        ASSERT_TRUE(fs.ok()) << fs.status().message();
        fs_ = std::move(fs.value());
    }

    // Reads the whole file in pieces; result_[0] bytes arrived, result_[1] is an errno.
    void read(Descriptor file, uint64_t piece) {
        std::memset(out_, 0, kFileSize);
        std::memset(result_, 0, 4096);
        ASSERT_TRUE(launch(stream_, {{5}, {64}, 0}, file_test::read_whole<device::Block>,
                           fs_.device_handle(), file, piece, out_, result_)
                        .ok());
        const Status done = stream_.synchronize(std::chrono::seconds(120));
        ASSERT_TRUE(done.ok()) << done.message() << device_.diagnosis();
    }

    std::shared_ptr<testing::RemoteDevice> port_;
    Device device_;
    FileSystem fs_;
    Stream stream_;
    std::vector<std::byte> bytes_ = std::vector<std::byte>(kFileSize);
    std::string path_;
    int64_t* result_ = nullptr;
    std::byte* out_ = nullptr;
};

TEST_P(RemoteTest, AWholeFileArrivesByStaging) {
    for (const size_t frames : {size_t{4}, size_t{100}}) {
        create(frames);
        auto file = fs_.open(path_);
        ASSERT_TRUE(file.ok()) << file.status().message();
        for (const uint64_t piece : {uint64_t{65536}, uint64_t{100'003}}) {
            read(file.value(), piece);
            EXPECT_EQ(result_[1], 0) << frames << " frames, pieces of " << piece;
            EXPECT_EQ(result_[0], static_cast<int64_t>(kFileSize));
            EXPECT_TRUE(testing::equal(out_, bytes_.data(), kFileSize));
        }
        EXPECT_GT(port_->write_count(), 0u) << "pages are announced in stream order";
        EXPECT_GT(port_->poll_count(), 0u) << "somebody keeps the driver making progress";
        EXPECT_TRUE(fs_.close(file.value()).ok());
    }
}

TEST_P(RemoteTest, EveryCallWorks) {
    create(32);
    auto* path = static_cast<char*>(device_.allocate(4096).value());
    std::strcpy(path, path_.c_str());
    ASSERT_TRUE(launch(stream_, {{1}, {128}, 0}, file_test::every_call<device::Block>,
                       fs_.device_handle(), static_cast<const char*>(path), out_, result_)
                    .ok());
    const Status done = stream_.synchronize(std::chrono::seconds(60));
    ASSERT_TRUE(done.ok()) << done.message() << device_.diagnosis();
    const std::vector<int64_t> expected = {0, kFileSize, 100,     0, -EINVAL, 0,      0,
                                           3, -EINVAL,   -EFAULT, 0, 0,       -EBADF, -EBADF};
    EXPECT_GE(result_[0], 0);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(result_[i + 1], expected[i]) << i + 1;
    EXPECT_EQ(fs_.statistics().open_descriptors, 0u);
}

TEST_P(RemoteTest, ACopyThatFailsIsAnErrorNotBytes) {
    if (GetParam() <= 65536) GTEST_SKIP() << "readers copy such pages themselves";
    for (int64_t n = 1; n <= 12; ++n) {
        // What cannot be copied ahead of a reader is asked for again.
        create(100, Readahead::kOff);
        auto file = fs_.open(path_);
        ASSERT_TRUE(file.ok()) << file.status().message();
        port_->fail_copy(n);
        read(file.value(), GetParam());  // each page by one block, or another could ask for it anew
        // How many copies there are depends on what is ready at once.
        const bool failed = port_->copy_failed();
        port_->fail_copy(0);
        EXPECT_TRUE(failed || n > 1);
        EXPECT_EQ(result_[1], failed ? EIO : 0) << "copy " << n;
        read(file.value(), 65536);  // asks again for what failed
        EXPECT_EQ(result_[1], 0) << "copy " << n;
        EXPECT_TRUE(testing::equal(out_, bytes_.data(), kFileSize)) << "copy " << n;
        EXPECT_TRUE(fs_.close(file.value()).ok());
    }
}

// The host must not read into memory that a team still copies from, nor wait for a team that waits
// for it: more pages than a worker has room for, asked for by every team at once.
TEST_P(RemoteTest, PagesThatReadersCopyAreWholeWhileTheHostUsesItsMemoryAgain) {
    create(2 * kFileSize / GetParam() + 4, Readahead::kOff);
    auto file = fs_.open(path_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    read(file.value(), 100'003);
    EXPECT_EQ(result_[1], 0);
    EXPECT_TRUE(testing::equal(out_, bytes_.data(), kFileSize));
    const uint64_t copied = port_->copy_count();
    read(file.value(), 100'003);  // all there: nobody holds a page back
    EXPECT_EQ(port_->copy_count(), copied);
    EXPECT_TRUE(testing::equal(out_, bytes_.data(), kFileSize));
    ASSERT_TRUE(fs_.close(file.value()).ok());
}

// Symptom: ENFILE after as many different files as there are slots, since the host could not drop
// the pages of closed files.
TEST_P(RemoteTest, MoreFilesThanThereAreSlots) {
    create(16);
    char folder[] = "/tmp/penstock-remote-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string path = std::string(folder) + "/file";
    for (uint32_t i = 0; i < limits::kFilesMax + 40; ++i) {
        const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
        ASSERT_EQ(write(file, &i, sizeof i), static_cast<ssize_t>(sizeof i));
        ::close(file);
        auto opened = fs_.open(path);
        ASSERT_TRUE(opened.ok()) << i << ": " << opened.status().message();
        if (i % 512 == 0) {
            std::memset(result_, 0, 16);
            ASSERT_TRUE(launch(stream_, {{1}, {32}, 0}, file_test::read_whole<device::Block>,
                               fs_.device_handle(), opened.value(), uint64_t{4096}, out_, result_)
                            .ok());
            ASSERT_TRUE(stream_.synchronize(std::chrono::seconds(60)).ok());
            uint32_t read = 0;
            std::memcpy(&read, out_, sizeof read);
            EXPECT_EQ(read, i);
        }
        ASSERT_TRUE(fs_.close(opened.value()).ok());
        ASSERT_EQ(unlink(path.c_str()), 0);
    }
    rmdir(folder);
}

INSTANTIATE_TEST_SUITE_P(PageSizes, RemoteTest, ::testing::Values(4096u, 65536u, 131072u));

}  // namespace
}  // namespace penstock
