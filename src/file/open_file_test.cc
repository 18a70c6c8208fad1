// Goal: any thread may close and drop a file at any moment, even if no more threads can be started.
// Reads in progress get their bytes; later ones get EBADF.
#include "file/open_file.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <thread>

#include "file/host_read_fixture.h"
#include "testing/bytes.h"
#include "testing/effort.h"
#include "testing/fault_storage.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

using OpenFileTest = HostReadTest;

// How many descriptors this process has of a file. Not of all: the rings of an engine come when its
// threads get to it.
size_t count_descriptors(const std::filesystem::path& path) {
    const std::filesystem::path real = std::filesystem::canonical(path);
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;  // the listing's own descriptor
        count += std::filesystem::read_symlink(entry, gone) == real;
    }
    return count;
}

size_t count_threads() {
    using Entries = std::filesystem::directory_iterator;
    return static_cast<size_t>(std::distance(Entries("/proc/self/task"), Entries()));
}

// From now on this process gets no thread; false: it gets one all the same.
bool forbid_threads() {
    constexpr uid_t kNobody = 65534;  // limits do not bind root
    if (geteuid() == 0 &&
        (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0))
        return false;
    prctl(PR_SET_DUMPABLE, 1);  // for /proc/self
    const rlimit one{1, 1};
    if (setrlimit(RLIMIT_NPROC, &one) != 0) return false;
    try {
        std::thread([] {}).join();
    } catch (const std::system_error&) {
        return true;
    }
    return false;
}

constexpr int kRight = 0, kWrong = 1, kAllowed = 2;

// In a process of its own: `start` opens the file `path`, starts a read of its first bytes, which
// waits, and forgets the file; `release` lets the read go on.
template <class Start, class Release>
int forget_without_threads(const std::filesystem::path& path, const Start& start,
                           const Release& release) {
    const pid_t child = fork();
    if (child == 0) {
        const size_t before = count_descriptors(path);
        const auto done = start();
        const size_t open = count_descriptors(path);
        if (!forbid_threads()) _exit(kAllowed);
        release();
        bool right = open > before && done();
        for (int i = 0; right && count_descriptors(path) > before; ++i) {
            usleep(10'000);
            right = i < 2000;
        }
        _exit(right ? kRight : kWrong);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : kWrong;
}

TEST_F(OpenFileTest, AFileThatIsForgottenWhileItsReadRunsNeedsNoNewThread) {
    if (testing::kThreadSanitizer)
        GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads";
    Future future;
    const auto done = [&] {
        const bool ok = future.result().ok();
        future = {};  // which keeps the descriptor open
        return ok && memory_[0] == bytes_[0];
    };
    const int shared = forget_without_threads(
        path_,
        [&] {
            FileOptions options;
            options.study.throttle_latency_us = 300'000;
            const auto file = File::open(path_, {}, options);
            future = file.value().pread(memory_, 4096, 0).value();
            return done;
        },
        [] {});
    // RLIMIT_NPROC does not hold for some users and sandboxes; without it there is nothing to see.
    if (shared == kAllowed) GTEST_SKIP() << "threads are to be had whatever the limit";
    EXPECT_EQ(shared, kRight);

    std::shared_ptr<testing::FaultStorage> faulty;
    std::shared_ptr<transfer::Job> job;
    const auto job_done = [&] {
        const bool ok = job->wait(std::chrono::seconds(20)) && memory_[0] == bytes_[0];
        job = nullptr;  // which keeps the file
        // This one and the process's deferred deleter stay.
        for (int i = 0; i < 2000 && count_threads() > 2; ++i) usleep(10'000);
        return ok && count_threads() <= 2;
    };
    const int own = forget_without_threads(
        path_,
        [&] {
            faulty = std::make_shared<testing::FaultStorage>(storage::make_storage({}).value());
            faulty->plan().inject({.action = testing::Action::kBlock});
            FileOptions options;
            options.threads = 4;
            const auto file = file::OpenFile::open(path_, {}, options, faulty).value();
            const ReadPiece piece{memory_, 4096, 0};
            if (count_threads() <= 4) _exit(kWrong);
            job = file->start({&piece, 1}, {}).value();
            return job_done;
        },
        [&] { faulty->plan().release(); });
    EXPECT_EQ(own, kRight) << "its engine goes with it";
}

TEST_F(OpenFileTest, AnyThreadMayCloseAFileThatOthersRead) {
    auto cpu = backend::open_cpu({.permits = 2, .memory_size = 32 << 20});
    ASSERT_TRUE(cpu.ok());
    for (int round = 0; round < 60; ++round) {
        // The engine goes with the last file of this device.
        const Device device(std::make_shared<testing::RemoteDevice>(cpu.value()));
        FileOptions options;
        options.threads = 1;
        auto opened = File::open(path_, device, options);
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        File& file = opened.value();
        std::atomic<int> reading{0}, wrong{0};
        std::vector<std::thread> threads;
        for (size_t t = 0; t < 3; ++t) {
            threads.emplace_back([&, t] {
                std::vector<std::byte> to(t == 2 ? 600'000 : 512);
                for (uint64_t at = 0;; at = (at + 4096) % (kFileSize - to.size())) {
                    const auto got = t == 1
                                         ? file.readv(
                                               std::vector<ReadPiece>{{to.data(), to.size(), at}},
                                               {})
                                         : file.read(to.data(), to.size(), at);
                    if (!got.ok()) {
                        wrong += got.status().error_number() != EBADF || !file.closed();
                        return;
                    }
                    wrong += got.value() != to.size() ||
                             !testing::equal(to.data(), bytes_.data() + at, to.size());
                    ++reading;
                }
            });
        }
        while (reading < 20) std::this_thread::yield();
        const File copy = file;
        file.close();
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(wrong, 0);
        EXPECT_TRUE(file.path().empty());
        EXPECT_EQ(file.size().status().error_number(), EBADF);
        if (round % 2 == 0) {
            EXPECT_EQ(copy.path(), path_);
            EXPECT_EQ(copy.read(memory_, 512, 0).value(), 512u);
        }
    }
}

TEST_F(OpenFileTest, ACallbackMayDropTheLastHandleOfADevice) {
    // Behind whatever else holds one.
    struct Last {
        explicit Last(Device mine) : device(std::move(mine)) {}
        ~Last() {
            for (int i = 0; i < 20'000 && device.port().use_count() > 1; ++i) usleep(1000);
        }
        Last(const Last&) = delete;
        Last& operator=(const Last&) = delete;
        Device device;
    };
    const size_t before = count_threads();
    auto device = Device::open("cpu:2", {.memory_size = 32 << 20});
    ASSERT_TRUE(device.ok());
    const std::weak_ptr<backend::Device> port = device.value().port();
    auto last = std::make_shared<Last>(std::move(device.value()));
    FileOptions options;
    options.study.throttle_latency_us = 100'000;
    {
        const File file = File::open(path_, last->device, options).value();
        const Future future = file.pread(memory_, 4096, 0).value();
        future.on_done([last = std::move(last)] {});
    }
    for (int i = 0; i < 20'000 && !port.expired(); ++i) usleep(1000);
    EXPECT_TRUE(port.expired());
    for (int i = 0; i < 2000 && count_threads() > before + 1; ++i) usleep(10'000);
    EXPECT_LE(count_threads(), before + 1) << "but for the process's deferred deleter";
}

TEST_F(OpenFileTest, CopiesAndMovedFilesAreFilesOfTheirOwn) {
    auto opened = File::open(path_);
    ASSERT_TRUE(opened.ok());
    File first = std::move(opened.value());
    File second = first;
    first.close();
    first.close();
    EXPECT_TRUE(first.closed());
    EXPECT_EQ(second.size().value(), kFileSize);
    first = std::move(second);
    EXPECT_TRUE(second.closed());  // NOLINT(bugprone-use-after-move): it is a closed file
    EXPECT_EQ(first.size().value(), kFileSize);
    second = File(first);
    first = File();
    EXPECT_TRUE(first.closed());
    EXPECT_EQ(second.path(), path_);
}

}  // namespace
}  // namespace penstock
