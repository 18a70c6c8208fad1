// A file system that shows the files of a folder as libfuse's example passthrough_hp does: reads
// are answered from the file below, whose pages libfuse splices to the kernel. It runs until it
// gets SIGTERM, or its parent ends.
//
//   penstock-program-pass_through FOLDER MOUNT
//
// It is read-only, and shows no folders. Requests have up to 1 MiB, and as many threads
// serve them as serve Penstock's mount.
#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

namespace {

constexpr unsigned kRequestSize = 1 << 20;
constexpr unsigned kThreads = 16;
constexpr unsigned kBackgroundMax = 64;
constexpr double kValidSeconds = 1.0;

// Files are looked up in one folder, and stay known: there are few of them.
struct Files {
    int folder = -1;
    std::mutex mutex;
    std::map<fuse_ino_t, std::string> names;  // under `mutex`
};
Files& files() {
    static Files one;
    return one;
}

std::string name_of(fuse_ino_t number) {
    const std::lock_guard lock(files().mutex);
    return number == FUSE_ROOT_ID ? "." : files().names[number];
}

void begin(void* /*all*/, fuse_conn_info* connection) {
    connection->max_read = connection->max_readahead = kRequestSize;
    connection->max_background = connection->congestion_threshold = kBackgroundMax;
    connection->want |= connection->capable & (FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

void look_up(fuse_req_t request, fuse_ino_t /*folder*/, const char* name) {
    fuse_entry_param entry{};
    if (fstatat(files().folder, name, &entry.attr, AT_SYMLINK_NOFOLLOW) != 0) {
        fuse_reply_err(request, errno);
        return;
    }
    entry.ino = entry.attr.st_ino;
    entry.attr_timeout = entry.entry_timeout = kValidSeconds;
    {
        const std::lock_guard lock(files().mutex);
        files().names[entry.ino] = name;
    }
    fuse_reply_entry(request, &entry);
}

void tell_attributes(fuse_req_t request, fuse_ino_t number, fuse_file_info* /*file*/) {
    struct stat status {};
    if (fstatat(files().folder, name_of(number).c_str(), &status, 0) != 0) {
        fuse_reply_err(request, errno);
    } else {
        fuse_reply_attr(request, &status, kValidSeconds);
    }
}

void open_file(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    const int fd = openat(files().folder, name_of(number).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    file->fh = static_cast<uint64_t>(fd);
    fuse_reply_open(request, file);
}

void read_file(fuse_req_t request, fuse_ino_t /*number*/, size_t size, off_t offset,
               fuse_file_info* file) {
    fuse_bufvec where = FUSE_BUFVEC_INIT(size);
    where.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    where.buf[0].fd = static_cast<int>(file->fh);
    where.buf[0].pos = offset;
    fuse_reply_data(request, &where, FUSE_BUF_SPLICE_MOVE);
}

void release_file(fuse_req_t request, fuse_ino_t /*number*/, fuse_file_info* file) {
    close(static_cast<int>(file->fh));
    fuse_reply_err(request, 0);
}

int serve(fuse_session* session) {
    if (fuse_set_signal_handlers(session) != 0) return 1;
    fuse_loop_config* loop = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(loop, 1);
    fuse_loop_cfg_set_max_threads(loop, kThreads);
    fuse_loop_cfg_set_idle_threads(loop, kThreads);
    const int result = fuse_session_loop_mt(session, loop);
    fuse_loop_cfg_destroy(loop);
    fuse_remove_signal_handlers(session);
    return result < 0 ? 1 : 0;
}

}  // namespace

int main(int count, char** words) {
    if (count != 3) {
        std::fprintf(stderr, "usage: %s FOLDER MOUNT\n", words[0]);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    files().folder = open(words[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (files().folder < 0) return 1;
    fuse_lowlevel_ops operations{};
    operations.init = begin;
    operations.lookup = look_up;
    operations.getattr = tell_attributes;
    operations.open = open_file;
    operations.read = read_file;
    operations.release = release_file;
    const std::string limit = "max_read=" + std::to_string(kRequestSize);
    const char* settings[] = {words[0], "-o", limit.c_str()};
    fuse_args arguments = FUSE_ARGS_INIT(3, const_cast<char**>(settings));
    fuse_session* session = fuse_session_new(&arguments, &operations, sizeof operations, nullptr);
    fuse_opt_free_args(&arguments);
    if (session == nullptr || fuse_session_mount(session, words[2]) != 0) return 1;
    const int result = serve(session);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return result;
}
