// Goal: a kernel that writes what it may not, or a file that others cut, unlink or reach by another
// mount, gets an errno or the right bytes; no signal, no hang, and nothing else is touched.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "system/machine.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kPage = 4096;

Shape small(bool remote) {
    Shape shape;
    shape.frames = 16;
    shape.remote = remote;
    shape.helping = !remote;
    return shape;
}

class BadWrites : public ::testing::TestWithParam<bool> {
protected:
    void SetUp() override {
        if (on_gpu() && GetParam()) GTEST_SKIP() << "a GPU always is";
    }
};

// Runs one block; its results.
std::vector<int64_t> run(Machine& machine, const std::vector<Step>& steps) {
    return results_of(machine.run_block(steps, std::chrono::seconds(30)));
}

TEST_P(BadWrites, AFileThatIsOpenForReading) {
    Machine machine(small(GetParam()));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    const std::string path = machine.files().path("f");
    const Bytes before = bytes_of_file(path);
    std::byte* from = machine.put(storage::random_bytes(2, 100));
    const auto got = run(
        machine, {open_step(0, machine.scratch().text(path)), write_step(0, 0, 100, from),
                  write_step(0, 0, 0, from), begin_write_step(0, 0, 0, 100, from), cut_step(0, 10),
                  sync_step(0), close_step(0)});
    const int64_t wanted[] = {0, -EBADF, -EBADF, -EBADF, -EBADF, 0, 0};
    for (size_t i = 1; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]) << i;
    EXPECT_TRUE(bytes_of_file(path) == before);
}

TEST_P(BadWrites, RangesAndBuffers) {
    Machine machine(small(GetParam()));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    const std::string path = machine.files().path("f");
    const Bytes before = bytes_of_file(path);
    std::byte* from = machine.put(storage::random_bytes(2, 100));
    const auto got = run(
        machine, {open_step(0, machine.scratch().text(path), kOpenReadWrite),
                  write_step(0, -1, 10, from), write_step(0, INT64_MIN, 10, from),
                  write_step(0, 0, 10, nullptr), write_step(0, INT64_MAX, 10, from),
                  write_step(0, 0, UINT64_MAX, from), write_step(0, INT64_MAX, UINT64_MAX, from),
                  cut_step(0, UINT64_MAX), write_step(0, 5, 0, from), close_step(0)});
    const int64_t wanted[] = {0, -EINVAL, -EINVAL, -EFAULT, -EFBIG, -EFBIG, -EFBIG, -EFBIG, 0, 0};
    for (size_t i = 1; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]) << i;
    EXPECT_TRUE(bytes_of_file(path) == before);
}

// Another process cuts the file while a kernel has it open and has written to it: what was written
// here comes to lie where it was written, and all else is as the other left it.
TEST_P(BadWrites, AFileThatAnotherProcessCuts) {
    Machine machine(small(GetParam()));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 9 * kPage, 1);
    const std::string path = machine.files().path("f");
    const Bytes bytes = storage::random_bytes(2, 64);
    std::byte* from = machine.put(bytes);
    const Descriptor file = machine.fs().open(path, kOpenReadWrite).value();
    EXPECT_EQ(run(machine, {set_step(0, file), write_step(0, 2 * kPage, 64, from)})[1], 64);
    Bytes wanted = bytes_of_file(path);
    ASSERT_EQ(::truncate(path.c_str(), 100), 0);
    EXPECT_EQ(run(machine, {set_step(0, file), write_step(0, 6 * kPage, 64, from)})[1], 64);
    ASSERT_TRUE(machine.fs().close(file).ok());
    std::fill(wanted.begin() + 100, wanted.end(), std::byte{0});
    wanted.resize(6 * kPage + 64);
    std::copy(bytes.begin(), bytes.end(), wanted.begin() + 2 * kPage);
    std::copy(bytes.begin(), bytes.end(), wanted.begin() + 6 * kPage);
    const Bytes found = bytes_of_file(path);
    ASSERT_EQ(found.size(), wanted.size());
    // Of the page at 6 * kPage the cache had all, and 64 bytes of it were written.
    EXPECT_TRUE(found == wanted);
}

TEST_P(BadWrites, AFileThatIsUnlinked) {
    Machine machine(small(GetParam()));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    const std::string path = machine.files().path("f");
    const Bytes bytes = storage::random_bytes(2, 30 * kPage);
    std::byte* from = machine.put(bytes);
    auto* back = machine.scratch().array<std::byte>(bytes.size());
    const char* text = machine.scratch().text(path);
    const auto size = static_cast<int64_t>(bytes.size());
    const auto got = run(machine,
                         {open_step(0, text, kOpenReadWrite), unlink_step(text),
                          write_step(0, 0, bytes.size(), from), sync_step(0),
                          read_step(0, 0, bytes.size(), back), close_step(0), open_step(0, text)});
    const int64_t wanted[] = {0, 0, size, 0, size, 0, -ENOENT};
    for (size_t i = 1; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]) << i;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), back));
}

INSTANTIATE_TEST_SUITE_P(Devices, BadWrites, ::testing::Bool(),
                         [](const auto& made) { return made.param ? "remote" : "addressable"; });

// In a process of its own, which a signal would end, and whose limits and mounts are its own. It
// ends with 0 if nothing failed there.
class BadWritesDeathTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (on_gpu()) GTEST_SKIP() << "as the other processes of this machine";
        GTEST_FLAG_SET(death_test_style, "threadsafe");
    }
    [[noreturn]] static void end() { _exit(HasFailure() ? 1 : 0); }
    // Mounts of this process are seen by no other, from here on.
    static bool mount_alone() {
        return unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    }
    // Whether a process may make such mounts here; containers often may not.
    static bool may_mount() {
        const pid_t child = fork();
        if (child == 0) _exit(mount_alone() ? 0 : 1);
        int status = 1;
        return child > 0 && waitpid(child, &status, 0) == child && status == 0;
    }
};

[[noreturn]] void write_beyond_limit() {
    constexpr rlim_t kLimit = 10 * kPage + 100;
    Machine machine(small(false));
    machine.create_file("f", 3 * kPage, 1);
    const std::string path = machine.files().path("f");
    const Bytes bytes = storage::random_bytes(2, 20 * kPage);
    std::byte* from = machine.put(bytes);
    const rlimit limit{kLimit, kLimit};
    std::signal(SIGXFSZ, SIG_DFL);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const auto got = run(machine, {open_step(0, machine.scratch().text(path), kOpenReadWrite),
                                   write_step(0, 0, 10 * kPage, from), sync_step(0),
                                   write_step(0, 11 * kPage, kPage, from), sync_step(0),
                                   cut_step(0, 10 * kPage), sync_step(0), close_step(0)});
    const int64_t wanted[] = {0, 10 * kPage, 0, kPage, -EFBIG, 0, 0, 0};
    for (size_t i = 1; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]) << i;
    const Bytes found = bytes_of_file(path);
    EXPECT_EQ(found.size(), 10 * kPage);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), bytes.begin()));
    _exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(BadWritesDeathTest, BeyondTheFileSizeLimitIsAnErrorAndNoSignal) {
    EXPECT_EXIT(write_beyond_limit(), ::testing::ExitedWithCode(0), "");
}

TEST_F(BadWritesDeathTest, AReadOnlyFileSystem) {
    if (!may_mount()) GTEST_SKIP() << "this process may not mount";
    const auto body = [] {
        EXPECT_TRUE(mount_alone());
        Machine machine(small(false));
        machine.create_file("f", 3 * kPage, 1);
        const std::string path = machine.files().path("f");
        const std::string folder = path.substr(0, path.rfind('/'));
        if (mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
            mount(nullptr, folder.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
            _exit(2);
        const char* text = machine.scratch().text(path);
        const char* other = machine.scratch().text(folder + "/new");
        auto* back = machine.scratch().array<std::byte>(100);
        const auto got = run(
            machine, {open_step(0, text, kOpenReadWrite), open_step(0, text, kOpenWriteOnly),
                      open_step(0, other, kOpenReadWrite | kOpenCreate), unlink_step(text),
                      open_step(0, text), read_step(0, 0, 100, back), close_step(0)});
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[i], -EROFS) << i;
        EXPECT_EQ(got[5], 100);
        umount2(folder.c_str(), MNT_DETACH);
        end();
    };
    EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

// One file, by two names: one slot, one set of pages.
TEST_F(BadWritesDeathTest, TwoMountsOfOneFile) {
    if (!may_mount()) GTEST_SKIP() << "this process may not mount";
    const auto body = [] {
        EXPECT_TRUE(mount_alone());
        Machine machine(small(false));
        machine.create_file("f", 9 * kPage, 1);
        const std::string path = machine.files().path("f");
        const std::string folder = path.substr(0, path.rfind('/'));
        const std::string second = machine.scratch_path("second");
        if (mkdir(second.c_str(), 0700) != 0 ||
            mount(folder.c_str(), second.c_str(), nullptr, MS_BIND, nullptr) != 0)
            _exit(2);
        const Bytes bytes = storage::random_bytes(2, 5 * kPage);
        std::byte* from = machine.put(bytes);
        auto* back = machine.scratch().array<std::byte>(bytes.size());
        const auto size = static_cast<int64_t>(bytes.size());
        const auto got = run(
            machine, {open_step(0, machine.scratch().text(path), kOpenReadWrite),
                      open_step(1, machine.scratch().text(second + path.substr(path.rfind('/'))),
                                kOpenReadWrite),
                      write_step(0, 100, bytes.size(), from), read_step(1, 100, bytes.size(), back),
                      write_step(1, 100, 7, from + 50), close_step(0), close_step(1)});
        EXPECT_EQ(got[2], size);
        EXPECT_EQ(got[3], size);
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), back));
        const Bytes found = bytes_of_file(path);
        EXPECT_TRUE(std::equal(found.begin() + 100, found.begin() + 107, bytes.begin() + 50));
        EXPECT_TRUE(std::equal(found.begin() + 107, found.begin() + 100 + size, bytes.begin() + 7));
        umount2(second.c_str(), MNT_DETACH);
        end();
    };
    EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace penstock::system_test
