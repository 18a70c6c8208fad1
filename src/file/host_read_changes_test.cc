// Goal: host reads keep their promises when the world around an open file changes: it grows,
// another user owns it, descriptors run out, or a policy cannot be kept.
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "file/host_read_fixture.h"
#include "file/open_file.h"
#include "testing/bytes.h"
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
        EXPECT_TRUE(testing::equal(memory_, bytes_.data(), kMemory));
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
        EXPECT_TRUE(testing::equal(memory, bytes_.data(), kMemory)) << "round " << round;
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

// Its files take no calls that leave nothing in the OS page cache, as those of FUSE and of old
// kernels.
class KeepingStorage final : public storage::Storage {
public:
    [[nodiscard]] storage::Kind kind() const override { return under_->kind(); }
    [[nodiscard]] std::string description() const override { return under_->description(); }
    Result<std::shared_ptr<storage::File>> open(const std::string& path, int flags) override {
        auto file = under_->open(path, flags);
        if (file.ok()) file.value()->refuse_drop();
        return file;
    }
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        return under_->make_queue(depth);
    }

private:
    const std::shared_ptr<storage::Storage> under_ = storage::make_storage({}).value();
};

class LeftBehindTest : public HostReadTest {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        FileOptions options;
        options.open_flags = O_RDWR;
        options.threads = 2;
        file_ = file::OpenFile::open(path_, {}, options, std::make_shared<KeepingStorage>())
                    .value();
        drop_.cache = strict_.cache = CachePolicy::kDrop;
        strict_.strict = true;
        struct statfs place {};
        ASSERT_EQ(fstatfs(descriptor_, &place), 0);
        if (place.f_type == TMPFS_MAGIC) GTEST_SKIP() << "files live in memory here";
        make_cold();
    }
    void make_cold() {
        fsync(descriptor_);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
        cold_ = cached_pages() == 0;
    }
    uint64_t cached_pages() {
        void* view = mmap(nullptr, kFileSize, PROT_READ, MAP_SHARED, descriptor_, 0);
        std::vector<unsigned char> pages((kFileSize + 4095) / 4096);
        EXPECT_EQ(mincore(view, kFileSize, pages.data()), 0);
        munmap(view, kFileSize);
        return static_cast<uint64_t>(
            std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
    }
    // `size` bytes from `offset` on arrive; their report.
    Report read(uint64_t size, uint64_t offset, const ReadOptions& options) {
        std::memset(memory_, 0xee, size);
        Report report;
        const auto got = file_->read(memory_, size, offset, options, &report);
        EXPECT_TRUE(got.ok()) << got.status().message();
        const uint64_t there = std::min(size, kFileSize - offset);
        EXPECT_EQ(report.bytes, there);
        EXPECT_TRUE(testing::equal(memory_, bytes_.data() + offset, there));
        expect_sums(report);
        return report;
    }

    std::shared_ptr<file::OpenFile> file_;
    ReadOptions drop_, strict_;
    bool cold_ = false;  // else something holds pages here, and counts of them say nothing
};

TEST_F(LeftBehindTest, BytesThatStayAgainstTheCallersWishAreTold) {
    EXPECT_EQ(read(5000, 77, drop_).bytes_by(RouteReason::kNoDrop), 5000u);
    ReadOptions cached = drop_;
    cached.route = Route::kCached;
    for (const uint64_t size : {100'000, 8 << 20})
        EXPECT_EQ(read(size, 1 << 20, cached).bytes_by(RouteReason::kNoDrop), size);
    // Not what was there before, nor what went past the cache, nor for who did not wish it.
    if (cold_) {
        EXPECT_EQ(read(1 << 20, 1 << 20, drop_).bytes_by(RouteReason::kNoDrop), 0u);
    }
    make_cold();
    const Report direct = read(8 << 20, 77, drop_);
    if (cold_) {
        EXPECT_EQ(direct.bytes_by(RouteReason::kNoDrop), direct.bytes_by(Route::kCached));
    }
    EXPECT_EQ(read(5000, 77, {}).bytes_by(RouteReason::kNoDrop), 0u);
    for (const uint64_t size : {5000, 1 << 20}) {
        Report report;
        ASSERT_EQ(file_->write(bytes_.data(), size, 0, drop_, &report).value(), size);
        EXPECT_EQ(report.bytes_by(RouteReason::kNoDrop), size);
        expect_sums(report);
    }
}

TEST_F(LeftBehindTest, StrictReadsLeaveNothingOrFail) {
    ReadOptions cached = strict_;
    cached.route = Route::kCached;
    for (const uint64_t size : {5000, 100'000, 8 << 20}) {
        Report report;
        const auto got = file_->read(memory_, size, 77, cached, &report);
        EXPECT_EQ(got.status().error_number(), EOPNOTSUPP);
        EXPECT_EQ(report.error_number, EOPNOTSUPP);
        EXPECT_EQ(report.error_offset, 77u);
        EXPECT_EQ(report.bytes, 0u);
    }
    if (cold_) {
        EXPECT_EQ(cached_pages(), 0u);
    }
    for (const uint64_t size : {5000, 1 << 20}) {  // others than are there
        EXPECT_EQ(
            file_->write(bytes_.data() + 1, size, 0, strict_, nullptr).status().error_number(),
            EOPNOTSUPP);
    }
    if (read(8 << 20, 0, drop_).bytes_by(RouteReason::kNotOffered) > 0)
        GTEST_SKIP() << "no direct I/O here";
    // Past the cache whatever the size, up to the end of the file.
    for (const uint64_t size : {1, 5000, 40'000, 300'000, 8 << 20}) {
        for (const uint64_t offset : {uint64_t{0}, uint64_t{77}, kFileSize - 100}) {
            const Report report = read(size, offset, strict_);
            EXPECT_EQ(report.bytes_by(RouteReason::kNoDrop), 0u) << size << " at " << offset;
        }
    }
    if (cold_) {
        EXPECT_EQ(cached_pages(), 0u);
    }
    std::vector<ReadPiece> pieces;
    for (uint64_t i = 0; i < 300; ++i) pieces.push_back({memory_ + i * 5000, 5000, i * 9000});
    ASSERT_EQ(file_->readv(pieces, strict_, nullptr).value(), 300u * 5000);
    for (const ReadPiece& piece : pieces)
        ASSERT_TRUE(testing::equal(piece.to, bytes_.data() + piece.offset, 5000));
    // What is there already is copied.
    ReadOptions keep;
    keep.cache = CachePolicy::kKeep;
    read(1 << 20, 1 << 20, keep);
    const Report hot = read(1 << 20, 1 << 20, strict_);
    EXPECT_EQ(hot.bytes_by(Route::kDirect) + hot.bytes_by(RouteReason::kResident), 1u << 20);
}

// What lives in memory was there before, and no read leaves anything.
TEST_F(HostReadTest, OfAFileInMemoryNothingIsLeftBehind) {
    char name[] = "/dev/shm/penstock-host-read-XXXXXX";
    const int descriptor = mkstemp(name);
    if (descriptor < 0) GTEST_SKIP() << "no /dev/shm";
    ASSERT_EQ(write(descriptor, bytes_.data(), 2 << 20), 2 << 20);
    close(descriptor);
    const auto file = File::open(name);
    unlink(name);
    ASSERT_TRUE(file.ok());
    for (const bool strict : {false, true}) {
        for (const uint64_t size : {5000, 2 << 20}) {
            Report report;
            const ReadOptions options{.cache = CachePolicy::kDrop, .route = {}, .strict = strict};
            ASSERT_EQ(file.value().read(memory_, size, 0, options, &report).value(), size);
            EXPECT_EQ(report.bytes_by(RouteReason::kNoDrop), 0u);
        }
    }
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
    EXPECT_TRUE(testing::equal(memory_, bytes_.data(), 8 << 20));
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
    EXPECT_TRUE(testing::equal(memory_, bytes_.data(), 8 << 20));
    expect_sums(first);
    expect_sums(hot);
    if (first.bytes_by(Residency::kUnknown) == 0) GTEST_SKIP() << "the kernel tells all here";
    // Whether it was fast is the machine's affair; that it was tried is ours.
    EXPECT_GT(first.bytes_by(RouteReason::kTimed), 0u);
}

}  // namespace
}  // namespace penstock
