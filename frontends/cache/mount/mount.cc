// The session with the kernel: its options, its threads and its end.
#include "mount.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "nameless_files.h"
#include "place.h"
#include "served.h"

namespace penstock::cache_service {
namespace {

constexpr unsigned kBackgroundMax = 64;  // requests of readahead that the kernel sends at once
constexpr size_t kKeptFilesMax = 1 << 16;
constexpr int kWakeSignal = SIGUSR1;  // ends the sleep of the session's first thread

// What libfuse said last, which is why a mount failed.
struct Complaint {
    std::mutex mutex;
    std::string text;
};
Complaint& complaint() {
    static Complaint one;
    return one;
}

void keep_complaint(fuse_log_level /*level*/, const char* format, va_list values) {
    char text[512];
    std::vsnprintf(text, sizeof text, format, values);
    const std::lock_guard lock(complaint().mutex);
    complaint().text = text;
    while (!complaint().text.empty() && complaint().text.back() == '\n')
        complaint().text.pop_back();
}

void want(fuse_conn_info* connection, unsigned capability, bool wanted) {
    if (wanted) {
        connection->want |= connection->capable & capability;
    } else {
        connection->want &= ~capability;
    }
}

// Since Linux 6.18 a write without the kernel's pages drops those that readers have, before and
// after it.
bool drops_pages_at_direct_writes() {
    utsname system{};
    int major = 0, minor = 0;
    return uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
           std::pair(major, minor) >= std::pair(6, 18);
}

void begin_session(void* all, fuse_conn_info* connection) {
    static_cast<Served*>(all)->writes_direct = drops_pages_at_direct_writes();
    connection->max_read = connection->max_write = kRequestSizeMax;
    connection->max_readahead = kRequestSizeMax;
    connection->max_background = connection->congestion_threshold = kBackgroundMax;
    // The kernel clears set-user-ID bits itself.
    want(connection, FUSE_CAP_HANDLE_KILLPRIV, false);
    // Lists of access are honoured, and masks of new files are applied where these are known.
    want(connection, FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK, true);
    // The open of a file decides whether the kernel's pages of it are still right.
    want(connection, FUSE_CAP_AUTO_INVAL_DATA, false);
    // The kernel drops the pages that readers take during a direct write when its call returns. An
    // asynchronous one has then only begun, and such pages would stay with older bytes.
    want(connection, FUSE_CAP_ASYNC_DIO, false);
}

template <class... Arguments>
void refuse(fuse_req_t request, Arguments... /*arguments*/) {
    fuse_reply_err(request, EROFS);
}

// Has all changes but those by an open file refused. The kernel sends none, unless root mounts the
// file system again with other options.
void refuse_changes(fuse_lowlevel_ops* functions) {
    functions->setattr = refuse;
    functions->setxattr = refuse;
    functions->removexattr = refuse;
    functions->create = refuse;
    functions->mknod = refuse;
    functions->mkdir = refuse;
    functions->symlink = refuse;
    functions->link = refuse;
    functions->unlink = refuse;
    functions->rmdir = refuse;
    functions->rename = refuse;
}

fuse_lowlevel_ops functions_of_mount(bool read_only) {
    fuse_lowlevel_ops functions{};
    functions.init = begin_session;
    add_attribute_functions(&functions);
    add_extended_attribute_functions(&functions);
    add_file_functions(&functions);
    add_folder_functions(&functions);
    add_name_functions(&functions);
    if (read_only) refuse_changes(&functions);
    return functions;
}

// Files that programs have open take a descriptor each. Root may have as many as a process can.
void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    rlim_t most = 0;
    if (std::ifstream("/proc/sys/fs/nr_open") >> most && most > limit.rlim_max) {
        const rlimit raised{most, most};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

// Returns how many descriptors the process may have. Programs' handles, nodes, files that are kept
// and those of preloaded programs share them. All but handles are closed where they are short.
size_t descriptors_max() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

// Commas and backslashes have a meaning in options.
std::string escaped(const std::string& text) {
    std::string result;
    for (const char one : text) {
        if (one == ',' || one == '\\') result += '\\';
        result += one;
    }
    return result;
}

// Returns what a mount is made with. A user other than root gets neither set-ID bits nor devices.
std::string options_for_kernel(const std::string& path, const MountOptions& options, bool by_root) {
    std::string text = "fsname=" + escaped(path) + ",subtype=penstock,default_permissions";
    text += ",max_read=" + std::to_string(kRequestSizeMax);
    if (by_root) text += ",allow_other";
    if (options.read_only) text += ",ro";
    if (options.suid) text += ",suid";
    if (options.dev) text += ",dev";
    return text;
}

dev_t device_of(int folder) {
    struct stat state {};
    (void)fstat(folder, &state);
    return state.st_dev;
}

class FuseMount : public Mount {
public:
    FuseMount(const FileCache& cache, int root, int lock, const MountOptions& options)
        : lock_(lock),
          served_{.cache = cache,
                  .handles = HandleLimit(descriptors_max(), geteuid() == 0),
                  .nodes = Nodes(root, descriptors_max() / 4),
                  .report = options.report,
                  .as_callers = geteuid() == 0,
                  .kept = KeptFiles(std::min(descriptors_max() / 4, kKeptFilesMax)),
                  .others = options.others,
                  .read_only = options.read_only,
                  .device = device_of(root)} {}
    FuseMount(const FuseMount&) = delete;
    FuseMount& operator=(const FuseMount&) = delete;
    ~FuseMount() override {
        stop();
        if (session_ != nullptr) fuse_session_destroy(session_);
        if (ended_ >= 0) close(ended_);
        close(lock_);
    }

    // Mounts on the folder `place`, which is `mountpoint`.
    bool start(const std::string& path, const std::string& mountpoint, int place,
               const MountOptions& options, std::string* error);
    [[nodiscard]] int ended() const override { return ended_; }
    [[nodiscard]] std::string failure() const override { return over_ ? failure_ : ""; }
    void stop() override;

private:
    void serve(unsigned threads_max);
    void end_by_itself(int result);

    const int lock_;  // of the folder, until nothing is dirty
    Served served_;
    fuse_session* session_ = nullptr;
    std::string mountpoint_;
    std::thread thread_;
    std::string device_;   // of the mount
    std::string failure_;  // written before over_
    std::atomic<bool> stopping_{false}, over_{false};
    int ended_ = -1;
};

// Mounts a session on a folder. Root mounts on the one that is open, whatever its path leads to by
// now. The helper that mounts for other users (fusermount3) looks with their rights.
bool mount_on(fuse_session* session, int place, const std::string& mountpoint, bool by_root) {
    if (!by_root) return fuse_session_mount(session, mountpoint.c_str()) == 0;
    (void)fcntl(place, F_SETFD, 0);  // the helper may be asked for root too
    const bool done = fuse_session_mount(session,
                                         ("/proc/self/fd/" + std::to_string(place)).c_str()) == 0;
    (void)fcntl(place, F_SETFD, FD_CLOEXEC);
    return done;
}

bool FuseMount::start(const std::string& path, const std::string& mountpoint, int place,
                      const MountOptions& options, std::string* error) {
    const fuse_lowlevel_ops functions = functions_of_mount(served_.read_only);
    const std::string told = options_for_kernel(path, options, served_.as_callers);
    const char* words[] = {"penstock-cache", "-o", told.c_str()};
    fuse_args arguments = FUSE_ARGS_INIT(3, const_cast<char**>(words));
    fuse_set_log_func(keep_complaint);
    session_ = fuse_session_new(&arguments, &functions, sizeof functions, &served_);
    fuse_opt_free_args(&arguments);
    ended_ = eventfd(0, EFD_CLOEXEC);
    mountpoint_ = path_behind(place);
    if (session_ == nullptr || ended_ < 0 ||
        !mount_on(session_, place, mountpoint, served_.as_callers)) {
        const std::lock_guard lock(complaint().mutex);
        *error = mountpoint + ": " +
                 (complaint().text.empty() ? "FUSE cannot mount there" : complaint().text);
        return false;
    }
    device_ = device_mounted_at(mountpoint_);
    take_nameless_requests(session_);
    thread_ = std::thread([this, count = options.threads_max] { serve(count); });
    set_readahead(mountpoint, kRequestSizeMax);
    return true;
}

void FuseMount::serve(unsigned threads_max) {
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, kWakeSignal);
    pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
    fuse_loop_config* loop = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(loop, 1);
    fuse_loop_cfg_set_max_threads(loop, threads_max);
    fuse_loop_cfg_set_idle_threads(loop, threads_max);
    const int result = fuse_session_loop_mt(session_, loop);
    fuse_loop_cfg_destroy(loop);
    if (!stopping_) end_by_itself(result);
    over_ = true;
    (void)eventfd_write(ended_, 1);
}

// The loop ends when the mount is gone. Else requests cannot be served any more: without a mount
// programs find the folder below, and no errors.
void FuseMount::end_by_itself(int result) {
    const bool is_there = !device_.empty() && device_mounted_at(mountpoint_) == device_;
    if (result == 0 && !is_there) return;
    failure_ = result != 0 ? std::strerror(result < 0 ? -result : EIO)
                           : "its connection to the kernel was aborted";
    if (is_there) (void)unmount_lazily(mountpoint_);
}

void FuseMount::stop() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    // libfuse's own call would close the device at once. A thread may be about to read a request
    // from it: it would read from the file that has got the number, and write its answer there.
    if (!over_) (void)unmount_lazily(mountpoint_);
    fuse_session_exit(session_);
    // The loop notices when its sleep ends; the signal may come just before that begins.
    while (!over_) {
        pthread_kill(thread_.native_handle(), kWakeSignal);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    thread_.join();
    // No thread uses the device any more. Programs that have files of the mount open get errors
    // from now on, and do not wait.
    const int none = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (none >= 0) {
        dup3(none, fuse_session_fd(session_), O_CLOEXEC);
        close(none);
    }
}

}  // namespace

bool Mount::take(const std::string& path, ShownFolder* folder, std::string* error) {
    folder->root = open_shown_folder(path, &folder->lock, error);
    return folder->root >= 0;
}

std::unique_ptr<Mount> Mount::start(const FileCache& cache, const std::string& path,
                                    const ShownFolder& folder, const std::string& mountpoint,
                                    const MountOptions& options, std::string* error) {
    if (access("/dev/fuse", R_OK | W_OK) != 0) {
        *error = std::string("/dev/fuse: ") + std::strerror(errno) + ": mounts need it";
        return nullptr;
    }
    raise_descriptor_limit();
    umask(0);  // programs' own masks count
    struct sigaction wake {};
    wake.sa_handler = [](int) {};
    sigaction(kWakeSignal, &wake, nullptr);
    auto mount = std::make_unique<FuseMount>(cache, folder.root, folder.lock, options);
    const int place = open_mountpoint(folder.root, path, mountpoint, error);
    const bool started = place >= 0 && mount->start(path, mountpoint, place, options, error);
    if (place >= 0) close(place);
    return started ? std::move(mount) : nullptr;
}

}  // namespace penstock::cache_service
