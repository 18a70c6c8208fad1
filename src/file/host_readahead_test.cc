// Goal: small host reads in a pattern that the kernel does not follow are announced ahead, and few
// bytes besides; all other reads announce nothing.
#include "file/host_readahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>

#include "file/host_read_fixture.h"
#include "file/open_file.h"
#include "penstock/access.h"
#include "penstock/read_ahead.h"

namespace penstock {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kBeyondMax = 256;  // pages announced beyond the end of a pattern

// A file that notes the pages that are announced.
class NotingFile final : public storage::File {
public:
    explicit NotingFile(std::shared_ptr<storage::File> file)
        : File(file->identity(), file->direct_alignment(), file->descriptor(), file->rights()),
          file_(std::move(file)) {}
    int direct_descriptor() const override { return file_->direct_descriptor(); }
    void announce(uint64_t offset, uint64_t size) const override {
        EXPECT_LE(offset + size, identity().size);
        for (uint64_t page = offset / kPage; page * kPage < offset + size; ++page)
            pages.insert(page);
        file_->announce(offset, size);
    }
    void read_ahead(bool ahead) const override { file_->read_ahead(ahead); }
    Status stat(storage::Identity* out) const override { return file_->stat(out); }

    mutable std::set<uint64_t> pages;

private:
    const std::shared_ptr<storage::File> file_;
};

class NotingStorage final : public storage::Storage {
public:
    storage::Kind kind() const override { return posix_->kind(); }
    std::string description() const override { return posix_->description(); }
    Result<std::shared_ptr<storage::File>> open(const std::string& path, int flags) override {
        file = std::make_shared<NotingFile>(posix_->open(path, flags).value());
        return std::shared_ptr<storage::File>(file);
    }
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        return posix_->make_queue(depth);
    }

    std::shared_ptr<NotingFile> file;

private:
    const std::shared_ptr<storage::Storage>
        posix_ = storage::make_storage({.kind = storage::Kind::kPosix}).value();
};

class HostReadaheadTest : public HostReadTest {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        fsync(descriptor_);
        drop();
        if (residency(path_).value().resident_size != 0)
            GTEST_SKIP() << "the file system keeps its bytes in memory";
    }
    void drop() const { posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }

    // Reads pieces at these offsets and returns the announced pages that hold none of them.
    size_t read(const std::vector<uint64_t>& offsets, uint64_t size, FileOptions options = {}) {
        auto noting = std::make_shared<NotingStorage>();
        const auto file = file::OpenFile::open(path_, {}, options, noting).value();
        std::set<uint64_t> wanted;
        for (const uint64_t offset : offsets) {
            const auto got = file->read(memory_, size, offset, options.reading, nullptr);
            EXPECT_TRUE(got.ok() && got.value() == size);
            EXPECT_EQ(std::memcmp(memory_, bytes_.data() + offset, size), 0);
            for (uint64_t page = offset / kPage; page * kPage < offset + size; ++page)
                wanted.insert(page);
        }
        announced_ = noting->file->pages.size();
        wanted_ = wanted.size();
        size_t others = 0;
        for (const uint64_t page : noting->file->pages) others += wanted.contains(page) ? 0 : 1;
        return others;
    }
    static std::vector<uint64_t> row(uint64_t count, uint64_t distance, uint64_t first = 0) {
        std::vector<uint64_t> all;
        for (uint64_t i = 0; i < count; ++i) all.push_back(first + i * distance);
        return all;
    }

    size_t announced_ = 0, wanted_ = 0;  // pages
};

TEST_F(HostReadaheadTest, GapsBackwardAndNestedReadsAreAnnouncedAndLittleElse) {
    EXPECT_LE(read(row(310, 64 << 10), 4096), kBeyondMax);
    EXPECT_GT(announced_, wanted_ * 9 / 10);
    drop();
    EXPECT_LE(read(row(600, 32 << 10, 100), 512), kBeyondMax);
    EXPECT_GT(announced_, wanted_ * 9 / 10);
    drop();
    std::vector<uint64_t> backward = row(4000, 4096);
    std::reverse(backward.begin(), backward.end());
    EXPECT_EQ(read(backward, 4096), 0u);
    EXPECT_GT(announced_, wanted_ * 9 / 10);
    drop();
    std::vector<uint64_t> nested;
    for (uint64_t i = 0; i < 30; ++i)
        for (const uint64_t offset : row(16, 32 << 10, i * 600 * 1024)) nested.push_back(offset);
    EXPECT_LE(read(nested, 4096), kBeyondMax);
    EXPECT_GT(announced_, wanted_ / 2);
}

TEST_F(HostReadaheadTest, ReadsInOrderAtRandomOrOfCachedBytesAreNotAnnounced) {
    for (const uint64_t size : {512, 4096, 64 << 10}) {
        drop();
        read(row(200, size), size);
        EXPECT_EQ(announced_, 0u) << size;
    }
    drop();
    base::Prng prng(3);
    std::vector<uint64_t> random;
    for (int i = 0; i < 1000; ++i) random.push_back(prng.below(kFileSize - 4096));
    read(random, 4096);
    EXPECT_EQ(announced_, 0u);
    std::vector<std::byte> whole(kFileSize);
    ASSERT_EQ(pread(descriptor_, whole.data(), kFileSize, 0), static_cast<ssize_t>(kFileSize));
    read(row(310, 64 << 10), 4096);
    EXPECT_EQ(announced_, 0u);
}

TEST_F(HostReadaheadTest, OptionsThatForbidItAndLongReadsAnnounceNothing) {
    FileOptions off, direct, drops;
    off.read_ahead = false;
    direct.reading.route = Route::kDirect;
    drops.reading.cache = CachePolicy::kDrop;
    for (const FileOptions& options : {off, direct, drops}) {
        drop();
        read(row(100, 64 << 10), 4096, options);
        EXPECT_EQ(announced_, 0u);
    }
    drop();
    read(row(40, 512 << 10), 128 << 10);
    EXPECT_EQ(announced_, 0u);
}

TEST_F(HostReadaheadTest, RefusedReadsAnnounceNothing) {
    auto noting = std::make_shared<NotingStorage>();
    FileOptions writing;
    writing.open_flags = O_WRONLY;
    const auto file = file::OpenFile::open(path_, {}, writing, noting).value();
    for (const uint64_t offset : row(100, 64 << 10)) {
        const auto got = file->read(memory_, 4096, offset, writing.reading, nullptr);
        EXPECT_EQ(got.status().error_number(), EBADF);
    }
    EXPECT_TRUE(noting->file->pages.empty());
}

TEST_F(HostReadaheadTest, EachThreadHasItsOwnStreamAndAFileMayShrink) {
    const auto file = File::open(path_).value();
    const auto other = File::open(path_).value();
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            std::vector<std::byte> to(4096);
            for (uint64_t i = 0; i < 300; ++i) {
                const uint64_t offset = (i * 64 << 10) + t * 4096;
                for (const File* one : {&file, &other}) {
                    ASSERT_EQ(one->read(to.data(), 4096, offset).value(), 4096u);
                    ASSERT_EQ(std::memcmp(to.data(), bytes_.data() + offset, 4096), 0);
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    drop();
    for (uint64_t i = 0; i < 300; ++i) {
        if (i == 100) {
            ASSERT_EQ(ftruncate(descriptor_, 110 * (64 << 10)), 0);
        }
        const auto got = file.read(memory_, 4096, i * (64 << 10));
        ASSERT_TRUE(got.ok());
        EXPECT_EQ(got.value(), i < 110 ? 4096u : 0u);
    }
    EXPECT_TRUE(file.read(memory_, 4096, uint64_t{1} << 62).ok());
}

// A program's own descriptor.
class ReadAheadTest : public HostReadaheadTest {
protected:
    // Waits until the page at `offset` is cached.
    [[nodiscard]] bool arrives(uint64_t offset) const {
        for (int i = 0; i < 500; ++i) {
            std::byte byte;
            iovec piece{&byte, 1};
            if (preadv2(descriptor_, &piece, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1)
                return true;
            usleep(2'000);
        }
        return false;
    }
};

TEST_F(ReadAheadTest, ObservedReadsAreAnnouncedAndTheDescriptorStaysOpen) {
    {
        auto ahead = ReadAhead::of(descriptor_);
        ASSERT_TRUE(ahead.ok()) << ahead.status().message();
        for (uint64_t i = 0; i < 40; ++i) (void)ahead.value().observe(i * 65536, 4096);
        EXPECT_TRUE(arrives(uint64_t{44} * 65536));
    }
    EXPECT_GE(fcntl(descriptor_, F_GETFD), 0);
}

TEST_F(ReadAheadTest, AnAccessProgramIsAnnouncedBeforeTheFirstRead) {
    SignatureReader reader;
    std::string trace = "penstock-trace 1\n";
    for (int i = 0; i < 64; ++i)  // an order that no detector foresees
        trace += std::to_string(i + 1) + " 1 r data " + std::to_string(i * 37 % 64 * 65536) +
                 " 4096\n";
    ASSERT_TRUE(reader.read(trace).ok() && reader.finish().ok());
    while (reader.step()) {
    }
    for (const bool binary : {false, true}) {
        drop();
        const auto programs = AccessPrograms::parse(reader.programs(binary).value());
        ASSERT_TRUE(programs.ok()) << programs.status().message();
        EXPECT_TRUE(programs.value().reads("data"));
        auto ahead = ReadAhead::of(descriptor_);
        EXPECT_EQ(ahead.value().expect(programs.value(), "other").error_number(), ENOENT);
        ASSERT_TRUE(ahead.value().expect(programs.value(), "data").ok());
        EXPECT_TRUE(arrives(uint64_t{3} * 37 % 64 * 65536));
    }
    EXPECT_EQ(AccessPrograms::parse("{").status().error_number(), EINVAL);
    EXPECT_EQ(AccessPrograms::parse("").status().error_number(), EINVAL);
}

TEST_F(ReadAheadTest, DescriptorsWithoutTheCacheAreRefused) {
    const int direct = ::open(path_.c_str(), O_RDONLY | O_DIRECT);
    const int refusal = direct >= 0 ? EINVAL : EBADF;
    EXPECT_EQ(ReadAhead::of(direct).status().error_number(), refusal);
    const int folder = ::open("/", O_RDONLY);
    const int writing = ::open(path_.c_str(), O_WRONLY);
    EXPECT_EQ(ReadAhead::of(folder).status().error_number(), EISDIR);
    EXPECT_EQ(ReadAhead::of(writing).status().error_number(), EBADF);
    EXPECT_EQ(ReadAhead::of(-1).status().error_number(), EBADF);
    for (const int descriptor : {direct, folder, writing}) ::close(descriptor);
}

}  // namespace
}  // namespace penstock
