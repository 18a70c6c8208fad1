// Goal: what the kernel may do to a read but seldom does (interrupt it, cut it short, fail it
// half-way, refuse a flag) never costs a byte. This file replaces the reads of system_calls.h by
// its own, which do it on demand; the default is to pass.
#include "storage/posix.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "storage/storage_fixture.h"
#include "storage/system_calls.h"

namespace {

// One script for the whole program: the tests that use it are single-threaded.
struct Script {
    bool on = false;
    uint64_t seed = 0;
    int calls = 0;
    uint64_t fail_after = UINT64_MAX;  // bytes; from there on EIO
    int flagged_calls = 0;             // with flags, which are refused
};
Script script;

// 0: pass, up to *size bytes; else the errno.
int consult_script(uint64_t offset, size_t* size) {
    if (!script.on) return 0;
    penstock::base::Prng prng(script.seed + static_cast<uint64_t>(++script.calls));
    if (prng.below(3) == 0) return EINTR;
    if (offset >= script.fail_after) return EIO;
    *size = std::min<size_t>(1 + prng.below(*size), script.fail_after - offset);
    return 0;
}

}  // namespace

namespace penstock::storage::system {

ssize_t pread(int descriptor, void* to, size_t size, off_t offset) {
    const int error = consult_script(static_cast<uint64_t>(offset), &size);
    if (error == 0) return syscall(SYS_pread64, descriptor, to, size, offset);
    errno = error;
    return -1;
}

ssize_t preadv2(int descriptor, const iovec* pieces, int count, off_t offset, int flags) {
    if (!script.on) return syscall(SYS_preadv2, descriptor, pieces, count, offset, 0, flags);
    if (flags == 0)  // shorter than asked
        return pread(descriptor, pieces->iov_base, pieces->iov_len, offset);
    ++script.flagged_calls;
    errno = EOPNOTSUPP;
    return -1;
}

}  // namespace penstock::storage::system

namespace penstock::storage {
namespace {

class PosixTest : public ::testing::Test {
protected:
    void SetUp() override {
        folder_.write("f", 0, bytes_);
        storage_ = open_posix();
        file_ = storage_->open(folder_.path("f"), O_RDONLY).value();
        queue_ = std::move(storage_->make_queue(4).value());
    }
    void TearDown() override { script = {}; }

    Completion read_scattered(Bytes* got) {
        std::vector<iovec> pieces;
        for (size_t at = 0; at < got->size(); at += 1000) {
            pieces.push_back({got->data() + at, std::min<size_t>(1000, got->size() - at)});
        }
        return read_pieces(queue_.get(), file_.get(), 0, pieces);
    }

    const Bytes bytes_ = random_bytes(1, 30'000);
    ScratchFolder folder_;
    std::shared_ptr<Storage> storage_;
    std::shared_ptr<File> file_;
    std::unique_ptr<Queue> queue_;
};

TEST_F(PosixTest, InterruptedAndShortCallsAreContinued) {
    for (uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        script = {.on = true, .seed = seed * 1'000'000};
        Bytes got(bytes_.size() + 10);
        const Completion completion = read_scattered(&got);
        ASSERT_EQ(completion.error, 0);
        ASSERT_EQ(completion.bytes, bytes_.size());
        ASSERT_TRUE(std::equal(bytes_.begin(), bytes_.end(), got.begin()));
        ASSERT_GT(script.calls, 1);
    }
}

TEST_F(PosixTest, AnErrorHalfWayTellsTheGoodBytesBeforeIt) {
    for (uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const uint64_t good = base::Prng(seed).below(bytes_.size());
        script = {.on = true, .seed = seed * 1'000'000, .fail_after = good};
        Bytes got(bytes_.size());
        const Completion completion = read_scattered(&got);
        ASSERT_EQ(completion.error, EIO);
        ASSERT_EQ(completion.bytes, good);
        ASSERT_TRUE(
            std::equal(got.begin(), got.begin() + static_cast<ptrdiff_t>(good), bytes_.begin()));
    }
}

std::atomic<int> signal_count{0};

TEST_F(PosixTest, AStormOfSignalsCostsNothing) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) { signal_count.fetch_add(1, std::memory_order_relaxed); };
    ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);  // no SA_RESTART
    const itimerval storm{{0, 200}, {0, 200}};
    ASSERT_EQ(setitimer(ITIMER_REAL, &storm, nullptr), 0);
    Bytes got(bytes_.size());
    while (signal_count.load(std::memory_order_relaxed) < 200) {
        std::fill(got.begin(), got.end(), std::byte{0});
        const Completion completion = read_scattered(&got);
        ASSERT_EQ(completion.error, 0);
        ASSERT_EQ(got, bytes_);
        ASSERT_TRUE(storage_->open(folder_.path("f"), O_RDONLY).ok());
    }
    const itimerval calm{};
    setitimer(ITIMER_REAL, &calm, nullptr);
    sigaction(SIGALRM, &before, nullptr);
}

TEST_F(PosixTest, WhereDroppingIsRefusedTheFileRemembersAndTheBytesCome) {
    script = {.on = true, .seed = 5};
    for (int turn = 0; turn < 2; ++turn) {
        Bytes got(bytes_.size(), std::byte{0xee});
        const iovec piece{got.data(), got.size()};
        Operation operation{.file = file_.get(), .pieces = {&piece, 1}};
        operation.drop = true;
        ASSERT_EQ(queue_->submit({&operation, 1}), 1u);
        Completion completion;
        ASSERT_EQ(queue_->reap({&completion, 1}, true), 1u);
        EXPECT_EQ(completion.error, 0);
        EXPECT_EQ(completion.bytes, bytes_.size());
        EXPECT_EQ(got, bytes_);
        EXPECT_EQ(script.flagged_calls, 1);
    }
}

}  // namespace
}  // namespace penstock::storage
