// Goal: the reasons in a report are true of each byte: cached bytes between missing ones are not
// called missing, and nothing is said of what nobody may look at.
#include <sys/stat.h>

#include "file/host_read_fixture.h"

namespace penstock {
namespace {

constexpr uint64_t kPage = 4096, kRead = 16 << 20;

class ReasonsTest : public HostReadTest {
protected:
    // Brings each second page into the OS page cache, alone; returns which pages are there then.
    std::vector<bool> cache_each_second_page() {
        fsync(descriptor_);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
        char byte = 0;
        for (uint64_t at = 0; at < kRead; at += 2 * kPage)
            EXPECT_EQ(pread(descriptor_, &byte, 1, static_cast<off_t>(at)), 1);
        return cached_pages();
    }
    [[nodiscard]] std::vector<bool> cached_pages() const {
        void* const map = mmap(nullptr, kRead, PROT_READ, MAP_SHARED, descriptor_, 0);
        std::vector<unsigned char> pages(kRead / kPage);
        EXPECT_EQ(mincore(map, kRead, pages.data()), 0);
        munmap(map, kRead);
        std::vector<bool> are_there;
        for (const unsigned char page : pages) are_there.push_back((page & 1) != 0);
        return are_there;
    }
    // Reads a file of which each second page is cached; a report of nothing where the OS page cache
    // cannot be brought to that. Sets `cached_`, the bytes that were in it, and what the read lost
    // and gained. A kernel that is short of memory may take some away meanwhile, so it tries
    // again; a read of ours that took them away would do so each time.
    Report read_half_cached(uint64_t piece_size, const ReadOptions& options) {
        Report report;
        for (int attempt = 0; attempt < 10; ++attempt) {
            const std::vector<bool> before = cache_each_second_page();
            cached_ = kPage * static_cast<uint64_t>(std::count(before.begin(), before.end(), true));
            if (cached_ == 0 || cached_ == kRead) continue;
            report = read(piece_size, options);
            const std::vector<bool> after = cached_pages();
            lost_ = gained_ = 0;
            for (size_t i = 0; i < after.size(); ++i) {
                if (before[i] && !after[i]) lost_ += kPage;
                if (!before[i] && after[i]) gained_ += kPage;
            }
            if (lost_ == 0) break;
        }
        return report;
    }
    Report read(uint64_t piece_size, const ReadOptions& options) {
        Report all;
        const auto file = File::open(path_);
        EXPECT_TRUE(file.ok());
        for (uint64_t at = 0; at < kRead; at += piece_size) {
            Report report;
            EXPECT_EQ(file.value().read(memory_ + at, piece_size, at, options, &report).value(),
                      piece_size);
            expect_sums(report);
            for (size_t i = 0; i < kRouteReasonCount; ++i)
                all.reason_bytes[i] += report.reason_bytes[i];
            all.bytes += report.bytes;
            all.residency_bytes[static_cast<size_t>(Residency::kUnknown)] += report.bytes_by(
                Residency::kUnknown);
        }
        EXPECT_TRUE(testing::equal(memory_, bytes_.data(), kRead));
        return all;
    }

    uint64_t cached_ = 0, lost_ = 0, gained_ = 0;
};

TEST_F(ReasonsTest, CachedPagesBetweenMissingOnesAreNotCalledMissing) {
    ReadOptions drop;  // leaves the page cache as it is
    drop.cache = CachePolicy::kDrop;
    for (const uint64_t size : {kRead, uint64_t{64 << 10}}) {
        const Report report = read_half_cached(size, drop);
        if (report.bytes == 0) GTEST_SKIP() << "pages are not cached one by one here";
        if (report.bytes_by(RouteReason::kNotOffered) > 0) GTEST_SKIP() << "no direct I/O here";
        if (report.bytes_by(Residency::kUnknown) > 0) GTEST_SKIP() << "the kernel does not tell";
        EXPECT_EQ(lost_ + gained_, 0u) << size;
        EXPECT_EQ(report.bytes_by(RouteReason::kMissing), kRead - cached_) << size;
        EXPECT_EQ(
            report.bytes_by(RouteReason::kSwallowed) + report.bytes_by(RouteReason::kResident),
            cached_)
            << size;
    }
    // What is brought in meanwhile may be seen too.
    const Report report = read_half_cached(kRead, {});
    EXPECT_EQ(lost_, 0u);
    EXPECT_LE(
        report.bytes_by(RouteReason::kMissing) + report.bytes_by(RouteReason::kCheaperBuffered),
        kRead - cached_);
}

TEST_F(ReasonsTest, NothingIsSaidOfFilesThatNobodyMayAskAbout) {
    if (geteuid() != 0) GTEST_SKIP() << "needs a second user";
    fsync(descriptor_);
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
    ASSERT_EQ(fchmod(descriptor_, 0644), 0);
    ReadOptions drop;
    drop.cache = CachePolicy::kDrop;
    ASSERT_EQ(seteuid(65534), 0);
    const bool opens = access(path_.c_str(), R_OK) == 0 && File::open(path_).ok();
    Report large, small, unasked;
    if (opens) {
        large = read(kRead, drop);
        small = read(64 << 10, drop);
        unasked = read(kRead, {});
    }
    ASSERT_EQ(seteuid(0), 0);
    if (!opens) GTEST_SKIP() << "the folder is closed to others";
    if (large.bytes_by(RouteReason::kNotOffered) > 0) GTEST_SKIP() << "no direct I/O here";
    if (large.bytes_by(Residency::kUnknown) == 0) GTEST_SKIP() << "the kernel tells all here";
    EXPECT_EQ(large.bytes_by(RouteReason::kUnknown), kRead);
    EXPECT_EQ(small.bytes_by(RouteReason::kUnknown), kRead);
    EXPECT_EQ(unasked.bytes_by(RouteReason::kUnknown) + unasked.bytes_by(RouteReason::kTimed),
              kRead);
}

}  // namespace
}  // namespace penstock
