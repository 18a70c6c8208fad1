// A file system that shows a folder as a disk with a volatile cache: what was not synced is lost
// with the power, all but what happened to reach the disk (forgetful_file_system/disk.h).
//
//   penstock-test-forgetful_file_system FOLDER MOUNT SEED [--ignore-fsync]
//
// A line on standard input says what the disk is from then on: well, read-only, full or broken. The
// line "durable" makes all durable. Each is answered by the same line.
// SIGUSR1 loses power: FOLDER then has what survived, the mount shows it, and files that were open
// fail with ESTALE. A line on standard output tells how much was lost. SIGTERM, and the end of the
// parent, unmount and make everything durable. With --ignore-fsync a sync succeeds and does
// nothing, as on a disk that lies; tests show with it that they would find an error.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "forgetful_file_system/calls.h"

namespace {

using penstock::forgetful::Disk;
using penstock::forgetful::Loss;
using penstock::forgetful::Mounted;

// Files below stay open, each with a descriptor.
void raise_descriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

// Returns a descriptor that is readable when one of the signals has come.
int open_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int one : {SIGUSR1, SIGTERM, SIGINT}) sigaddset(&signals, one);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

void lose_power(Mounted& mounted) {
    const Loss loss = mounted.disk.lose();
    mounted.forget_all();
    std::printf("lost %lu of %lu pages, %lu of %lu names\n", loss.pages_lost, loss.pages,
                loss.names_lost, loss.names);
    std::fflush(stdout);
}

// Reads a command from standard input. Returns false at its end.
bool take_command(Mounted& mounted) {
    using penstock::forgetful::Mode;
    char line[64];
    const ssize_t size = read(STDIN_FILENO, line, sizeof line - 1);
    if (size <= 0) return false;
    line[size] = '\0';
    const struct {
        const char* word;
        Mode mode;
    } modes[] = {{"well\n", Mode::kWell},
                 {"read-only\n", Mode::kReadOnly},
                 {"full\n", Mode::kFull},
                 {"broken\n", Mode::kBroken}};
    for (const auto& [word, mode] : modes)
        if (std::strcmp(line, word) == 0) mounted.disk.be(mode);
    if (std::strcmp(line, "durable\n") == 0) mounted.disk.sync_all();
    std::fputs(line, stdout);
    std::fflush(stdout);
    return true;
}

// Serves until a signal ends it, or the mount is gone.
int serve(fuse_session* session, Mounted& mounted, int signals) {
    fuse_buf buffer{};
    pollfd waits[] = {
        {fuse_session_fd(session), POLLIN, 0}, {signals, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    int result = 0;
    while (fuse_session_exited(session) == 0) {
        if (poll(waits, std::size(waits), -1) < 0 && errno != EINTR) break;
        if (waits[2].revents != 0 && !take_command(mounted)) waits[2].fd = -1;
        if ((waits[1].revents & POLLIN) != 0) {
            signalfd_siginfo got{};
            if (read(signals, &got, sizeof got) != sizeof got) break;
            if (got.ssi_signo != SIGUSR1) break;
            lose_power(mounted);
            continue;
        }
        if (waits[0].revents == 0) continue;
        result = fuse_session_receive_buf(session, &buffer);
        if (result == -EINTR || result == -EAGAIN) continue;
        if (result <= 0) break;
        fuse_session_process_buf(session, &buffer);
    }
    std::free(buffer.mem);
    return result < 0 ? 1 : 0;
}

int mount_and_serve(Mounted& mounted, const char* program, const char* place, int signals) {
    char* words[] = {const_cast<char*>(program), const_cast<char*>("-o"),
                     const_cast<char*>("default_permissions,fsname=forgetful")};
    fuse_args arguments = FUSE_ARGS_INIT(3, words);
    const fuse_lowlevel_ops calls = penstock::forgetful::calls();
    fuse_session* session = fuse_session_new(&arguments, &calls, sizeof calls, &mounted);
    if (session == nullptr) return 1;
    int result = 1;
    if (fuse_session_mount(session, place) == 0) {
        // The kernel takes a request back whose caller is killed after poll() has told of it.
        fcntl(fuse_session_fd(session), F_SETFL, O_NONBLOCK);
        result = serve(session, mounted, signals);
        fuse_session_unmount(session);
    }
    fuse_session_destroy(session);
    fuse_opt_free_args(&arguments);
    return result;
}

}  // namespace

int main(int count, char** words) {
    const bool honest = count != 5 || std::strcmp(words[4], "--ignore-fsync") != 0;
    if (count < 4 || count > 5 || (count == 5 && honest)) {
        std::fprintf(stderr, "usage: %s FOLDER MOUNT SEED [--ignore-fsync]\n", words[0]);
        return 2;
    }
    const int signals = open_signals();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    raise_descriptors();
    umask(0);
    const int folder = open(words[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || signals < 0) {
        std::fprintf(stderr, "forgetful: %s: %s\n", words[1], std::strerror(errno));
        return 1;
    }
    Disk disk(folder, std::strtoull(words[3], nullptr, 10), honest);
    Mounted mounted(disk);
    const int result = mount_and_serve(mounted, words[0], words[2], signals);
    disk.sync_all();
    return result;
}
