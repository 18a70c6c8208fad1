// Goal: one kernel reads real files through the whole path, byte for byte, in every shape the path
// can take: page sizes, caches smaller than the file, blocks and warps, helping and workers, every
// storage kind.
#include "file/read_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "file/system.h"
#include "page_cache/invalidation.h"
#include "penstock/file_system.h"
#include "testing/bytes.h"

namespace penstock {
namespace {

// A file of random bytes that goes with the test.
class RandomFile {
public:
    RandomFile(size_t size, uint64_t seed) : bytes_(size) {
        testing::fill_randomly(bytes_.data(), bytes_.size(), seed);
        char name[] = "/tmp/penstock-read-XXXXXX";
        const int descriptor = mkstemp(name);
        path_ = name;
        EXPECT_EQ(write(descriptor, bytes_.data(), size), static_cast<ssize_t>(size));
        close(descriptor);
    }
    ~RandomFile() { unlink(path_.c_str()); }
    const std::string& path() const { return path_; }
    const std::vector<std::byte>& bytes() const { return bytes_; }

private:
    std::vector<std::byte> bytes_;
    std::string path_;
};

struct Shape {
    const char* name;
    const char* device;
    uint32_t page_size;
    size_t frames;
    bool helping;
    bool warps;
    StorageKind storage;
    unsigned threads;
    RequestMap map = RequestMap::kShared;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

class ReadTest : public ::testing::TestWithParam<Shape> {
protected:
    void SetUp() override {
        const Shape& shape = GetParam();
        DeviceOptions options;
        options.memory_size = 256 << 20;
        auto device = Device::open(shape.device, options);
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = device.value();
        FileSystemOptions wanted;
        wanted.page_size = shape.page_size;
        wanted.cache_size = shape.frames * shape.page_size;
        wanted.helping = shape.helping;
        wanted.storage = shape.storage;
        wanted.study.map = shape.map;
        auto fs = FileSystem::create(device_, wanted);
        if (!fs.ok() && shape.storage == StorageKind::kUring)
            GTEST_SKIP() << "io_uring is refused: " << fs.status().message();
        ASSERT_TRUE(fs.ok()) << fs.status().message();
        fs_ = std::move(fs.value());
        auto stream = Stream::create(device_);
        ASSERT_TRUE(stream.ok());
        stream_ = std::move(stream.value());
        result_ = static_cast<int64_t*>(device_.allocate(4096).value());
    }

    Device device_;
    FileSystem fs_;
    Stream stream_;
    int64_t* result_ = nullptr;
};

TEST_P(ReadTest, AWholeFileArrivesByteForByte) {
    const RandomFile file((5 << 20) + 12345, 7);
    auto opened = fs_.open(file.path());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    auto* out = static_cast<std::byte*>(device_.allocate(file.bytes().size()).value());
    for (const uint64_t piece :
         {uint64_t{65536}, uint64_t{4096}, uint64_t{100'003}, uint64_t{3} << 20}) {
        std::memset(out, 0, file.bytes().size());
        result_[0] = result_[1] = 0;
        const LaunchShape shape{{6}, {GetParam().threads}};
        const Status launched = GetParam().warps
                                    ? launch(stream_, shape, file_test::read_whole<device::Warps>,
                                             fs_.device_handle(), opened.value(), piece, out,
                                             result_)
                                    : launch(stream_, shape, file_test::read_whole<device::Block>,
                                             fs_.device_handle(), opened.value(), piece, out,
                                             result_);
        ASSERT_TRUE(launched.ok()) << launched.message();
        const Status done = stream_.synchronize(std::chrono::seconds(120));
        ASSERT_TRUE(done.ok()) << done.message() << device_.diagnosis();
        EXPECT_EQ(result_[1], 0) << "an errno from gread, pieces of " << piece;
        EXPECT_EQ(result_[0], static_cast<int64_t>(file.bytes().size())) << "pieces of " << piece;
        EXPECT_TRUE(testing::equal(out, file.bytes().data(), file.bytes().size()))
            << "pieces of " << piece;
        EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
    }
    EXPECT_TRUE(fs_.close(opened.value()).ok());
    EXPECT_EQ(fs_.close(opened.value()).error_number(), EBADF);
}

TEST_P(ReadTest, EveryCallAndItsErrors) {
    const RandomFile file(300'000, 11);
    auto* path = static_cast<char*>(device_.allocate(4096).value());
    std::strcpy(path, file.path().c_str());
    auto* out = static_cast<std::byte*>(device_.allocate(4096).value());
    const LaunchShape shape{{1}, {GetParam().threads}};
    const Status launched = GetParam().warps
                                ? launch(stream_, shape, file_test::every_call<device::Warps>,
                                         fs_.device_handle(), path, out, result_)
                                : launch(stream_, shape, file_test::every_call<device::Block>,
                                         fs_.device_handle(), path, out, result_);
    ASSERT_TRUE(launched.ok()) << launched.message();
    const Status done = stream_.synchronize(std::chrono::seconds(60));
    ASSERT_TRUE(done.ok()) << done.message() << device_.diagnosis();
    EXPECT_GE(result_[0], 0);
    const std::vector<int64_t> expected = {0, 300'000, 100,     0, -EINVAL, 0,      0,
                                           3, -EINVAL, -EFAULT, 0, 0,       -EBADF, -EBADF};
    for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(result_[i + 1], expected[i]) << "result " << i + 1;
    const unsigned mapped = std::min(100u, GetParam().threads);
    EXPECT_TRUE(testing::equal(out, file.bytes().data() + 10, mapped));
    EXPECT_TRUE(testing::equal(out + 200, file.bytes().data() + 300'000 - 3, 3));
    EXPECT_EQ(fs_.statistics().open_descriptors, 0u);
    EXPECT_EQ(fs_.statistics().views, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ReadTest,
    ::testing::Values(
        Shape{"large_pages", "cpu:2", 65536, 1024, true, false, StorageKind::kPosix, 32},
        Shape{"small_pages_in_a_small_cache", "cpu:2", 4096, 16, true, false, StorageKind::kPosix,
              32},
        Shape{"three_frames_two_permits", "cpu:2", 4096, 3, true, false, StorageKind::kPosix, 8},
        Shape{"one_permit", "cpu:1", 4096, 8, true, false, StorageKind::kPosix, 64},
        Shape{"workers", "cpu:4", 16384, 64, false, false, StorageKind::kPosix, 32},
        Shape{"static_map", "cpu:4", 16384, 64, false, false, StorageKind::kPosix, 32,
              RequestMap::kStatic},
        Shape{"uring", "cpu:2", 4096, 512, false, false, StorageKind::kUring, 32},
        Shape{"warps", "cpu:2", 4096, 128, true, true, StorageKind::kPosix, 96},
        Shape{"warps_in_a_small_cache", "cpu:2", 4096, 8, false, true, StorageKind::kPosix, 80}),
    [](const auto& shape) { return std::string(shape.param.name); });

}  // namespace
}  // namespace penstock
