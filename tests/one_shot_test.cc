// Goal: a file that is read once leaves the OS page cache as it was. At most 2 MiB of it are there
// that were not, whatever of it was there before, by plain reads in large calls, by kDrop and by
// kBypass in any; and what other files had is still there. Reads by kKeep show that the test would
// see it otherwise. Prints the figures.
//
// 256 MiB in one call. PENSTOCK_NIGHTLY=1: 4 GiB in a memory cgroup of 1 GiB, where each page that
// a read leaves pushes out another one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory_limit.h"
#include "penstock/file.h"
#include "testing/effort.h"

namespace penstock {
namespace {

constexpr uint64_t kPage = 4096, kMiB = 1 << 20;
constexpr uint64_t kLeftMax = 2 * kMiB;

double in_mib(uint64_t pages) { return static_cast<double>(pages * kPage) / kMiB; }

// A file of `size` bytes on storage, whose pages tell their places. It has a name as long as it
// lives.
class CachedFile {
public:
    explicit CachedFile(uint64_t size) : size_(size) {
        path_ = ::testing::TempDir() + "/penstock-one-shot-XXXXXX";
        descriptor_ = mkostemp(path_.data(), O_CLOEXEC);
    }
    ~CachedFile() {
        close(descriptor_);
        unlink(path_.c_str());
    }
    CachedFile(const CachedFile&) = delete;
    CachedFile& operator=(const CachedFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] uint64_t size() const { return size_; }
    [[nodiscard]] uint64_t pages() const { return (size_ + kPage - 1) / kPage; }

    static uint64_t stamp(uint64_t page) { return (page + 1) * 0x9e3779b97f4a7c15; }

    [[nodiscard]] bool write() const {
        std::vector<uint64_t> words(4 * kMiB / sizeof(uint64_t));
        for (uint64_t at = 0; at < size_;) {
            for (uint64_t i = 0; i < words.size(); ++i) {
                const uint64_t page = (at + i * sizeof(uint64_t)) / kPage;
                words[i] = stamp(page) ^ (i % (kPage / sizeof(uint64_t)));
            }
            const uint64_t wanted = std::min<uint64_t>(size_ - at, 4 * kMiB);
            const ssize_t got = pwrite(descriptor_, words.data(), wanted, static_cast<off_t>(at));
            if (got != static_cast<ssize_t>(wanted)) return false;
            at += wanted;
        }
        return fsync(descriptor_) == 0;
    }

    // Which pages are in the OS page cache.
    [[nodiscard]] std::vector<unsigned char> cached() const {
        std::vector<unsigned char> map(pages());
        void* mapping = mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
        if (mapping == MAP_FAILED) return map;
        EXPECT_EQ(mincore(mapping, size_, map.data()), 0);
        munmap(mapping, size_);
        for (unsigned char& page : map) page &= 1;
        return map;
    }

    // Pages that were in the cache `before`, and are not; and the other way round.
    struct Change {
        uint64_t lost = 0, added = 0;
    };
    [[nodiscard]] Change since(const std::vector<unsigned char>& before) const {
        const std::vector<unsigned char> now = cached();
        Change change;
        for (size_t i = 0; i < now.size(); ++i) {
            change.lost += before[i] != 0 && now[i] == 0;
            change.added += before[i] == 0 && now[i] != 0;
        }
        return change;
    }

    void make_cold() const {
        for (int i = 0; i < 50; ++i) {
            posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
            const std::vector<unsigned char> map = cached();
            if (std::count(map.begin(), map.end(), 1) == 0) return;
            usleep(20'000);
        }
    }
    // Brings in the first `size` bytes of each `period` up to `end`, and nothing else.
    void warm(uint64_t size, uint64_t period, uint64_t end = UINT64_MAX) const {
        std::vector<char> to(size);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
        for (uint64_t at = 0; at < std::min(size_, end); at += period) {
            EXPECT_GT(pread(descriptor_, to.data(), size, static_cast<off_t>(at)), 0);
        }
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_NORMAL);
    }
    void make_hot() const { warm(kMiB, kMiB); }

private:
    std::string path_;
    int descriptor_ = -1;
    const uint64_t size_;
};

// What of the file is in the cache before it is read.
enum class Before : uint8_t {
    kNothing,
    kRuns,   // 4 MiB of 64
    kPages,  // one in 23
    kHoles,  // all but one in 23 of the first 256 MiB
};

struct Case {
    const char* name;
    ReadOptions options;
    Before before = Before::kNothing;
    uint64_t call_size = 0;  // of one read; 0: all of it
    uint64_t offset = 0;     // of the first
    double mbs_max = 0;      // of storage; 0: as fast as it is
};

// What a read did to the cache, in pages.
struct Figures {
    uint64_t added = 0;         // of the file
    double others_lost = 0;     // share of other files in the cgroup that went
    double elsewhere_lost = 0;  // of a file that no read could have pushed out
};

class OneShotTest : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        const uint64_t size = testing::nightly() ? 4096 * kMiB : 256 * kMiB;
        struct statvfs told {};
        if (statvfs(::testing::TempDir().c_str(), &told) != 0 ||
            told.f_bavail * told.f_frsize < size + 2048 * kMiB) {
            why_skipped = "too little room for the file in the temporary folder";
            return;
        }
        if (testing::nightly() && MemoryLimit::available() < size + 3072 * kMiB) {
            why_skipped = "too little memory to read the file into";
            return;
        }
        big_file = std::make_unique<CachedFile>(size + 1234);
        other_file = std::make_unique<CachedFile>(testing::nightly() ? 512 * kMiB : 64 * kMiB);
        elsewhere_file = std::make_unique<CachedFile>(testing::nightly() ? 256 * kMiB : 64 * kMiB);
        const int direct = open(big_file->path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (direct < 0) {
            why_skipped = "the temporary folder's file system has no direct I/O";
            return;
        }
        close(direct);
        if (!big_file->write() || !other_file->write() || !elsewhere_file->write()) {
            why_skipped = "the files cannot be written";
            return;
        }
        // Taken before any cgroup is entered, so that it counts elsewhere.
        void* taken = mmap(nullptr, big_file->size(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (taken == MAP_FAILED) {
            why_skipped = "no memory to read the file into";
            return;
        }
        memory = static_cast<std::byte*>(taken);
    }
    static void TearDownTestSuite() {
        if (memory != nullptr) munmap(memory, big_file->size());
        memory = nullptr;
        big_file.reset();
        other_file.reset();
        elsewhere_file.reset();
    }
    void SetUp() override {
        if (!why_skipped.empty()) GTEST_SKIP() << why_skipped;
    }

    static void read_all(const Case& how, Report* report) {
        FileOptions options;
        options.study.throttle_bandwidth_mbs = how.mbs_max;
        const auto file = File::open(big_file->path(), {}, options);
        ASSERT_TRUE(file.ok()) << file.status().message();
        const uint64_t call_size = how.call_size == 0 ? big_file->size() : how.call_size;
        for (uint64_t at = how.offset; at < big_file->size(); at += call_size) {
            const uint64_t wanted = std::min(call_size, big_file->size() - at);
            Report part;
            const auto got = file.value().read(memory + at, wanted, at, how.options, &part);
            ASSERT_TRUE(got.ok()) << got.status().message();
            ASSERT_EQ(got.value(), wanted);
            for (size_t i = 0; i < part.route_bytes.size(); ++i)
                report->route_bytes[i] += part.route_bytes[i];
        }
    }

    // The first word of every page that was read whole.
    static void check_bytes(uint64_t offset) {
        for (uint64_t page = (offset + kPage - 1) / kPage; page < big_file->pages(); ++page) {
            uint64_t word = 0;
            std::memcpy(&word, memory + page * kPage, sizeof word);
            ASSERT_EQ(word, CachedFile::stamp(page)) << "page " << page;
        }
    }

    static void perform(const Case& how, Figures* figures) {
        for (const auto& file : {big_file.get(), other_file.get()}) file->make_cold();
        elsewhere_file->make_hot();
        std::optional<MemoryLimit> limit;
        if (testing::nightly()) {
            limit.emplace(1024 * kMiB);
            if (!limit->skips().empty()) GTEST_SKIP() << limit->skips();
        }
        if (how.before == Before::kRuns) big_file->warm(4 * kMiB, 64 * kMiB);
        if (how.before == Before::kPages) big_file->warm(kPage, 23 * kPage);
        if (how.before == Before::kHoles) big_file->warm(22 * kPage, 23 * kPage, 256 * kMiB);
        other_file->make_hot();
        const auto before = big_file->cached(), others = other_file->cached(),
                   elsewhere = elsewhere_file->cached();
        const auto share = [](uint64_t lost, const std::vector<unsigned char>& map) {
            const auto had = std::count(map.begin(), map.end(), 1);
            return static_cast<double>(lost) / static_cast<double>(std::max<ptrdiff_t>(had, 1));
        };
        ASSERT_GT(std::count(others.begin(), others.end(), 1) * 100, 90 * other_file->pages());
        for (uint64_t page = 0; page < big_file->pages(); ++page) memory[page * kPage] = {};
        Report report;
        const auto started = std::chrono::steady_clock::now();
        read_all(how, &report);
        if (HasFatalFailure()) return;
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
        figures->added = big_file->since(before).added;
        figures->others_lost = share(other_file->since(others).lost, others);
        figures->elsewhere_lost = share(elsewhere_file->since(elsewhere).lost, elsewhere);
        std::printf(
            "%-28s had %6.1f MiB, read %.0f MiB in %.2f s (%.1f direct); leaves %.2f MiB; "
            "other files lose %.2f %%, elsewhere %.2f %%\n",
            how.name, in_mib(std::count(before.begin(), before.end(), 1)),
            in_mib(big_file->pages()), took.count(),
            static_cast<double>(report.bytes_by(Route::kDirect)) / kMiB, in_mib(figures->added),
            100 * figures->others_lost, 100 * figures->elsewhere_lost);
        check_bytes(how.offset);
    }

    // A kernel that reclaims what is idle takes from all files alike, now from one, then from
    // another; a read that pushes pages out does so each time.
    static void expect_left_alone(const Case& how) {
        for (int attempt = 1; attempt <= 3; ++attempt) {
            Figures figures;
            perform(how, &figures);
            if (HasFatalFailure() || IsSkipped()) return;
            EXPECT_LE(figures.added * kPage, kLeftMax) << how.name;
            if (figures.others_lost <= figures.elsewhere_lost + 0.02) return;
        }
        FAIL() << "other files lose their pages to " << how.name;
    }

    static inline std::string why_skipped;
    static inline std::unique_ptr<CachedFile> big_file, other_file, elsewhere_file;
    static inline std::byte* memory = nullptr;
};

ReadOptions by(CachePolicy policy) {
    ReadOptions options;
    options.cache = policy;
    return options;
}

TEST_F(OneShotTest, APlainReadLeavesTheCacheAsItWas) {
    expect_left_alone({"auto, cold", {}});
    expect_left_alone({"auto, cold, 1 MiB + 13", {}, Before::kNothing, kMiB, 13});
    expect_left_alone({"auto, cached in runs", {}, Before::kRuns});
}

TEST_F(OneShotTest, ADroppingReadLeavesTheCacheAsItWas) {
    const ReadOptions drop = by(CachePolicy::kDrop);
    expect_left_alone({"drop, cold", drop});
    expect_left_alone({"drop, cold, 128 KiB + 13", drop, Before::kNothing, 128 << 10, 13});
    expect_left_alone({"drop, cached in runs", drop, Before::kRuns});
    expect_left_alone({"drop, cached in pages", drop, Before::kPages});
}

// Where storage is slow, copying what is there and waiting for single pages is the quicker way.
TEST_F(OneShotTest, ADroppingReadOfSlowStorageDoesNotFillHoles) {
    expect_left_alone(
        {"drop, holes, slow", by(CachePolicy::kDrop), Before::kHoles, 8 * kMiB, 0, 400});
}

TEST_F(OneShotTest, ABypassingReadLeavesTheCacheAsItWas) {
    const ReadOptions bypass = by(CachePolicy::kBypass);
    expect_left_alone({"bypass, cold", bypass});
    expect_left_alone({"bypass, cold, 128 KiB + 13", bypass, Before::kNothing, 128 << 10, 13});
    expect_left_alone({"bypass, cached in runs", bypass, Before::kRuns});
}

TEST_F(OneShotTest, AKeepingReadDoesNot) {
    Figures figures;
    perform({"keep, cold", by(CachePolicy::kKeep)}, &figures);
    if (HasFatalFailure() || IsSkipped()) return;
    EXPECT_GT(figures.added * kPage, 64 * kMiB);
    if (testing::nightly()) {
        EXPECT_GT(figures.others_lost, figures.elsewhere_lost + 0.02);
    }
}

}  // namespace
}  // namespace penstock
