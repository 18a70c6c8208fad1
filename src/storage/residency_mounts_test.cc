// Goal: on real file systems the runs of a probe are what mincore tells the owner page by page;
// dirty pages are told where the kernel counts them; who may not know is told nothing; and asking
// brings nothing into the cache. What cannot be mounted here is skipped with the reason.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <vector>

#include "base/prng.h"
#include "storage/mounts_fixture.h"
#include "storage/posix.h"
#include "storage/residency_fixture.h"
#include "storage/storage_fixture.h"

namespace penstock::storage {
namespace {

constexpr uint64_t kPages = 2048;
constexpr uint64_t kSize = kPages * kPage - 100;  // the last page is not full
constexpr uid_t kNobody = 65534;

std::vector<PageState> look_at_pages(int descriptor) {
    std::vector<unsigned char> map(kPages);
    const int error = kernel_residency_calls().mincore(descriptor, 0, map);
    EXPECT_TRUE(error == 0 || error == ENODEV) << std::strerror(error);  // FUSE with direct_io
    std::vector<PageState> pages(kPages);
    for (size_t i = 0; i < kPages; ++i) pages[i].cached = (map[i] & 1) != 0;
    return pages;
}

size_t resident_pages(int descriptor) {
    size_t count = 0;
    for (const PageState& page : look_at_pages(descriptor)) count += page.cached;
    return count;
}

Told ask_to(ResidencyProbe& probe, const Extent& range, uint64_t grain,
            uint32_t probes_max = UINT32_MAX) {
    return ask(probe, {.range = range, .grain = grain, .probes_max = probes_max}, kPages + 2);
}

// A file of kSize bytes in `folder`, on storage and not cached, as far as the file system lets go.
class ColdFile {
public:
    explicit ColdFile(std::string path) : path_(std::move(path)) {
        descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        EXPECT_GE(descriptor_, 0);
        const Bytes bytes = random_bytes(7, kSize);
        EXPECT_EQ(pwrite(descriptor_, bytes.data(), kSize, 0), static_cast<ssize_t>(kSize));
        drop();
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);  // no readahead
    }
    ~ColdFile() { close(descriptor_); }
    ColdFile(const ColdFile&) = delete;
    ColdFile& operator=(const ColdFile&) = delete;

    void drop() const {
        for (int i = 0; i < 5 && resident_pages(descriptor_) > 0; ++i) {
            fsync(descriptor_);
            posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
        }
    }
    void warm(uint64_t page, uint64_t pages) const {
        Bytes bytes(pages * kPage);
        EXPECT_GT(pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(page * kPage)),
                  0);
    }
    void soil(uint64_t page, uint64_t pages) const {
        const Bytes bytes = random_bytes(page, pages * kPage);
        EXPECT_EQ(pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(page * kPage)),
                  static_cast<ssize_t>(bytes.size()));
    }
    [[nodiscard]] int descriptor() const { return descriptor_; }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::shared_ptr<File> open() const {
        return open_posix()->open(path_, O_RDONLY).value();
    }

private:
    std::string path_;
    int descriptor_;
};

// Runs `body` in a child as `user`; its result is how the child ends.
int in_child(uid_t user, const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) {
        if (user != 0 && (setgid(user) != 0 || setuid(user) != 0)) _exit(99);
        _exit(body());
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

class ResidencyMounts : public ::testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (!mount_.skips().empty()) GTEST_SKIP() << mount_.skips();
    }
    [[nodiscard]] static bool is(const char* kind) { return std::string(GetParam()) == kind; }
    [[nodiscard]] static bool evicts() { return !is("tmpfs"); }
    [[nodiscard]] static bool maps() { return !is("fuse direct"); }

    Mount& mount_ = mounted(GetParam());

private:
    // Made when it is needed first, unmounted at the end of the program.
    static Mount& mounted(const std::string& kind) {
        static std::map<std::string, Mount> mounts;
        return mounts.try_emplace(kind, kind).first->second;
    }
};

TEST_P(ResidencyMounts, RunsAreWhatMincoreTellsTheOwner) {
    if (!maps()) GTEST_SKIP() << "mincore cannot be asked here";
    base::Prng prng(11);
    ColdFile cold(mount_.path("file"));
    const auto file = cold.open();
    for (int round = 0; round < 12; ++round) {
        SCOPED_TRACE(round);
        cold.drop();
        const uint64_t run_max = uint64_t{1} << round % 8;
        for (uint64_t i = prng.next() % 32; i < kPages; i += prng.next() % (4 * run_max) + 1) {
            const uint64_t pages = std::min(1 + prng.next() % run_max, kPages - i);
            cold.warm(i, pages);
            i += pages;
        }
        ResidencyProbe probe(*file);
        for (const uint64_t grain : {kPage, 16 * kPage, 256 * kPage}) {
            for (const Extent& range : {Extent{0, kSize}, Extent{5 * kPage + 13, 700 * kPage}}) {
                for (const uint32_t probes_max : {UINT32_MAX, 8u}) {
                    const auto pages = look_at_pages(cold.descriptor());
                    const Told told = ask_to(probe, range, grain, probes_max);
                    EXPECT_EQ(told.runs, reference(pages, range, grain, Dirtiness::kNotTold))
                        << grain;
                    EXPECT_NE(told.answer.method, ResidencyMethod::kNone) << told.answer.reason;
                    if (is("overlay")) {
                        EXPECT_EQ(told.answer.method, ResidencyMethod::kMincore);
                    }
                }
            }
        }
    }
}

TEST_P(ResidencyMounts, AskingBringsNothingIn) {
    if (!evicts()) GTEST_SKIP() << "all of its bytes are cached, always";
    ColdFile cold(mount_.path("file"));
    const auto file = cold.open();
    ResidencyProbe probe(*file);
    for (int i = 0; i < 3; ++i) {
        const Told told = ask_to(probe, {0, kSize}, kPage);
        EXPECT_EQ(told.runs, (std::vector<ResidencyRun>{{{0, kSize}, Residency::kMissing, 0}}))
            << name(told.answer.method) << ", " << told.answer.reason;
    }
    EXPECT_EQ(resident_pages(cold.descriptor()), 0u);
}

TEST_P(ResidencyMounts, DirtyPagesAreToldWhereTheKernelCountsThem) {
    ColdFile cold(mount_.path("file"));
    const auto file = cold.open();
    ResidencyProbe probe(*file);
    cold.warm(100, 300);
    cold.soil(200, 50);
    cold.soil(1000, 1);
    const Told told = ask_to(probe, {0, kSize}, kPage);
    uint64_t dirty = 0;
    for (const ResidencyRun& run : told.runs) {
        if (run.state != Residency::kDirty) continue;
        dirty += run.range.size;
        EXPECT_TRUE(run.range == (Extent{200 * kPage, 50 * kPage}) ||
                    run.range == (Extent{1000 * kPage, kPage}))
            << run.range.offset << " " << run.range.size;
    }
    // FUSE writes through, and tmpfs has nowhere to write to.
    const bool counts = is("ext4") || is("xfs") || is("btrfs");
    EXPECT_EQ(dirty, counts ? 51 * kPage : 0);
    fsync(cold.descriptor());
    for (const ResidencyRun& run : ask_to(probe, {0, kSize}, kPage).runs) {
        EXPECT_NE(run.state, Residency::kDirty);
    }
}

// The file is opened before what is asked of it is cached: FUSE drops what it has at an open.

// 0: every byte is unknown, with a reason.
int expect_unknown(const File& file) {
    ResidencyProbe probe(file);
    for (int i = 0; i < 2; ++i) {
        const Told told = ask_to(probe, {0, kSize}, kPage);
        if (told.runs != std::vector<ResidencyRun>{{{0, kSize}, Residency::kUnknown, 0}}) return 2;
        if (told.answer.method != ResidencyMethod::kNone || *told.answer.reason == '\0') return 3;
    }
    return 0;
}

// 0: pages 100 to 149 are cached, no others.
int expect_fifty_pages(const File& file) {
    ResidencyProbe probe(file);
    const Told told = ask_to(probe, {0, kSize}, kPage);
    const std::vector<ResidencyRun> right = {
        {{0, 100 * kPage}, Residency::kMissing, 0},
        {{100 * kPage, 50 * kPage}, Residency::kCached, 50 * kPage},
        {{150 * kPage, kSize - 150 * kPage}, Residency::kMissing, 0},
    };
    return told.runs == right ? 0 : 2;
}

TEST_P(ResidencyMounts, OthersFilesAreUnknownAndOnesOwnAreNot) {
    ColdFile cold(mount_.path("file"));
    const auto file = cold.open();
    cold.warm(100, 50);
    const auto theirs = [&] { return expect_unknown(*file); };
    const auto ours = [&] { return expect_fifty_pages(*file); };
    EXPECT_EQ(in_child(kNobody, theirs), 0);
    if (!evicts() || !maps()) return;  // what is known then is another matter
    EXPECT_EQ(in_child(0, ours), 0);
    ASSERT_EQ(chmod(cold.path().c_str(), 0666), 0);  // who may write it may know
    EXPECT_EQ(in_child(kNobody, ours), 0);
    ASSERT_EQ(chmod(cold.path().c_str(), 0444), 0);
    ASSERT_EQ(chown(cold.path().c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(in_child(kNobody, ours), 0);
}

// As images of containers have it: nothing was written yet, so the overlay hands reads on.
TEST(ResidencyOverlay, AFileOfTheLowerFolderIsTold) {
    Mount mount("overlay");
    if (!mount.skips().empty()) GTEST_SKIP() << mount.skips();
    ColdFile cold(mount.under("file"));
    const auto file = open_posix()->open(mount.path("file"), O_RDONLY).value();
    posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_RANDOM);
    Bytes bytes(50 * kPage);
    ASSERT_EQ(pread(file->descriptor(), bytes.data(), bytes.size(), 100 * kPage),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(in_child(0, [&] { return expect_fifty_pages(*file); }), 0);
    EXPECT_EQ(in_child(kNobody, [&] { return expect_unknown(*file); }), 0);
}

// From now on the calls named fail with `error` in this process. False: no filters here.
bool refuse(std::initializer_list<long> calls, int error) {
    std::vector<sock_filter> program = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const long call : calls) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
        program.push_back(
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_P(ResidencyMounts, SandboxesThatRefuseCallsAreSeen) {
    if (!evicts() || !maps()) GTEST_SKIP() << "nothing of it can be dropped, or mapped";
    ColdFile cold(mount_.path("file"));
    const auto file = cold.open();
    cold.warm(100, 50);
    for (const int error : {EPERM, ENOSYS}) {
        EXPECT_EQ(
            in_child(0, [&] { return refuse({451}, error) ? expect_fifty_pages(*file) : 50; }), 0);
        EXPECT_EQ(
            in_child(0,
                     [&] {
                         return refuse({451, SYS_mincore}, error) ? expect_unknown(*file) : 50;
                     }),
            0);
    }
}

std::string word_of(const ::testing::TestParamInfo<const char*>& kind) {
    std::string name = kind.param;
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(All, ResidencyMounts,
                         ::testing::Values("ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuse",
                                           "fuse direct"),
                         word_of);

}  // namespace
}  // namespace penstock::storage
