// Goal: host reads hold what they promise when the world changes around an open file: it grows, its
// owner is somebody else, descriptors run out, a policy cannot be kept.
#include <sys/resource.h>
#include <sys/stat.h>

#include "file/host_read_fixture.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

// Opened while it had one page.
class GrownFileTest : public HostReadTest {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        ASSERT_EQ(ftruncate(descriptor_, 4096), 0);
    }
    void grow() {
        ASSERT_EQ(pwrite(descriptor_, bytes_.data(), kFileSize, 0),
                  static_cast<ssize_t>(kFileSize));
        fsync(descriptor_);
    }
};

TEST_F(GrownFileTest, AllOfItArrivesByTheRoutesOfAnyOther) {
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    grow();
    ReadOptions direct;
    direct.cache = CachePolicy::kBypass;
    for (const ReadOptions& options : {ReadOptions{}, direct}) {
        std::memset(memory_, 0, kMemory);
        Report report;
        const auto got = file.value().read(memory_, kMemory, 0, options, &report);
        ASSERT_TRUE(got.ok()) << got.status().message();
        EXPECT_EQ(got.value(), kMemory);
        EXPECT_EQ(std::memcmp(memory_, bytes_.data(), kMemory), 0);
        EXPECT_EQ(report.bytes_by(RouteReason::kSmall), 0u);
        expect_sums(report);
    }
}

TEST_F(GrownFileTest, AllOfItReachesMemoryThatTheHostCannotAddress) {
    auto cpu = backend::open_cpu({.permits = 2, .memory_size = 96 << 20});
    ASSERT_TRUE(cpu.ok());
    const Device device(std::make_shared<testing::RemoteDevice>(cpu.value()));
    auto* memory = static_cast<std::byte*>(device.allocate(kMemory).value());
    FileOptions options;
    options.threads = 1;
    const auto file = File::open(path_, device, options);
    ASSERT_TRUE(file.ok());
    grow();
    for (int round = 0; round < 3; ++round) {
        std::memset(memory, 0, kMemory);
        const auto got = file.value().read(memory, kMemory, 0);
        ASSERT_TRUE(got.ok()) << got.status().message();
        EXPECT_EQ(got.value(), kMemory);
        EXPECT_EQ(std::memcmp(memory, bytes_.data(), kMemory), 0) << "round " << round;
    }
    device.free(memory);
}

TEST_F(HostReadTest, StrictHoldsForWhatThePolicyAsks) {
    // Where files live in memory nothing can go past the cache.
    char name[] = "/dev/shm/penstock-host-read-XXXXXX";
    const int descriptor = mkstemp(name);
    if (descriptor < 0) GTEST_SKIP() << "no /dev/shm";
    constexpr size_t kSize = 2 << 20;
    ASSERT_EQ(write(descriptor, bytes_.data(), kSize), static_cast<ssize_t>(kSize));
    const auto file = File::open(name);
    unlink(name);
    ASSERT_TRUE(file.ok());
    ReadOptions bypass;
    bypass.cache = CachePolicy::kBypass;
    for (const uint64_t size : {uint64_t{5000}, uint64_t{kSize}}) {
        bypass.strict = false;
        EXPECT_EQ(file.value().read(memory_, size, 0, bypass).value(), size);
        bypass.strict = true;
        EXPECT_EQ(file.value().read(memory_, size, 0, bypass).status().error_number(), EOPNOTSUPP);
    }
    close(descriptor);
}

// The descriptor of direct reads is opened by the first of them.
TEST_F(HostReadTest, WithoutADescriptorToSpareReadsGoThroughTheCacheAndLaterPastIt) {
    fsync(descriptor_);
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok());
    ReadOptions direct;
    direct.route = Route::kDirect;
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlimit none = limit;
    none.rlim_cur = 0;
    Report report;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto got = file.value().read(memory_, 8 << 20, 0, direct, &report);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(std::memcmp(memory_, bytes_.data(), 8 << 20), 0);
    if (report.bytes_by(RouteReason::kNotOffered) > 0) GTEST_SKIP() << "no direct I/O here";
    EXPECT_EQ(report.bytes_by(RouteReason::kRefused), 8u << 20);
    report = {};
    ASSERT_TRUE(file.value().read(memory_, 8 << 20, 0, direct, &report).ok());
    EXPECT_EQ(report.bytes_by(Route::kDirect), 8u << 20);
}

TEST_F(HostReadTest, AFileOfAnotherUserIsReadAsFastAsItComes) {
    if (geteuid() != 0) GTEST_SKIP() << "needs a second user";
    // The effective user decides what the kernel tells, and is every thread's.
    ASSERT_EQ(fchmod(descriptor_, 0644), 0);
    ASSERT_EQ(seteuid(65534), 0);
    const auto file = File::open(path_);
    Report first, hot;
    bool read = false;
    if (file.ok()) {
        read = file.value().read(memory_, 8 << 20, 0, {}, &first).ok();
        for (int i = 0; i < 3; ++i) (void)file.value().read(memory_, 8 << 20, 0);
        read = read && file.value().read(memory_, 8 << 20, 0, {}, &hot).ok();
    }
    ASSERT_EQ(seteuid(0), 0);
    if (!file.ok()) GTEST_SKIP() << "the folder is closed to others: " << file.status().message();
    ASSERT_TRUE(read);
    EXPECT_EQ(std::memcmp(memory_, bytes_.data(), 8 << 20), 0);
    expect_sums(first);
    expect_sums(hot);
    if (first.bytes_by(Residency::kUnknown) == 0) GTEST_SKIP() << "the kernel tells all here";
    // Whether it was fast is the machine's affair; that it was tried is ours.
    EXPECT_GT(first.bytes_by(RouteReason::kTimed), 0u);
}

}  // namespace
}  // namespace penstock
