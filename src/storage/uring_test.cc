// Goal: where io_uring is refused, the reason is told and nothing else is taken in its place; who
// opens it is not disturbed afterwards.
#include "storage/uring.h"
#include "testing/effort.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace penstock::storage {
namespace {

// From now on `call` fails with `error` in this process, as under a container's seccomp profile.
bool deny(long call, int error) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<__u32>(call), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<__u32>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{4, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// What open_uring() says in a child where `call` is denied: its errno, or 0; 255 when nothing can
// be denied here.
int error_where_denied(long call, int error) {
    const pid_t child = fork();
    if (child == 0) {
        if (!deny(call, error)) _exit(255);
        const Result<std::shared_ptr<Storage>> storage = open_uring();
        _exit(storage.status().error_number());
    }
    int state = 0;
    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(Uring, SaysWhyItIsRefused) {
    if (testing::kThreadSanitizer)
        GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads";
    const Result<std::shared_ptr<Storage>> here = open_uring();
    if (!here.ok()) GTEST_SKIP() << here.status().message();
    const int refused = error_where_denied(SYS_io_uring_setup, EPERM);
    if (refused == 255) GTEST_SKIP() << "no seccomp filter can be set here";
    EXPECT_EQ(refused, EPERM);
    EXPECT_EQ(error_where_denied(SYS_io_uring_setup, ENOSYS), ENOSYS);
    EXPECT_EQ(error_where_denied(SYS_io_uring_enter, EPERM), EPERM);  // set up, but of no use
}

TEST(Uring, AWriteToAPipeAfterwardsIsNotCutShort) {
    const std::vector<char> bytes(1 << 20);
    for (int round = 0; round < 20; ++round) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        std::thread reader([from = ends[0]] {
            usleep(5000);  // until then the write waits for room
            std::vector<char> some(64 << 10);
            while (read(from, some.data(), some.size()) > 0) {
            }
        });
        const Result<std::shared_ptr<Storage>> storage = open_uring();
        const ssize_t written = write(ends[1], bytes.data(), bytes.size());
        close(ends[1]);
        reader.join();
        close(ends[0]);
        if (!storage.ok()) GTEST_SKIP() << storage.status().message();
        ASSERT_EQ(written, static_cast<ssize_t>(bytes.size())) << "round " << round;
    }
}

}  // namespace
}  // namespace penstock::storage
