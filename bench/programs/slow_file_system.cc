// A file system that shows a folder, read-only, as slow storage does: each request takes a latency,
// and all requests share a bandwidth. It runs until it gets SIGTERM, or its parent ends.
//
//   penstock-program-slow_file_system FOLDER MOUNT LATENCY_US MEGABYTES_PER_S [LOG]
//
// LOG gets a line for each request that takes time: what it asks for, and the path. Attributes are
// also asked for by a look-up of a name.
// Files stay in the OS page cache when they are opened again, as on a network file system: a
// benchmark evicts them itself.
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kRequestsMax = 64;  // that the kernel may send before the first is answered

struct Storage {
    std::string folder;
    Clock::duration latency{};
    double bytes_per_s = 0;
    FILE* log = nullptr;
    std::mutex mutex;
    Clock::time_point free;  // when the bytes of earlier requests have passed; under `mutex`
};

Storage& storage() {
    static Storage one;
    return one;
}

// Waits as long as the storage takes for a request of `size` bytes.
void take_time(const char* request, const char* path, size_t size) {
    Storage& slow = storage();
    if (slow.log != nullptr) std::fprintf(slow.log, "%s %s\n", request, path);
    const auto now = Clock::now();
    auto end = now + slow.latency;
    {
        const std::lock_guard lock(slow.mutex);
        const std::chrono::duration<double> transfer(static_cast<double>(size) / slow.bytes_per_s);
        slow.free = std::max(slow.free, now) +
                    std::chrono::duration_cast<Clock::duration>(transfer);
        end = std::max(end, slow.free);
    }
    std::this_thread::sleep_until(end);
}

std::string below(const char* path) { return storage().folder + path; }

int get_attributes(const char* path, struct stat* status, fuse_file_info* /*file*/) {
    take_time("attributes", path, 0);
    return lstat(below(path).c_str(), status) == 0 ? 0 : -errno;
}

int open_file(const char* path, fuse_file_info* file) {
    take_time("open", path, 0);
    const int fd = open(below(path).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    file->fh = static_cast<uint64_t>(fd);
    file->keep_cache = 1;
    return 0;
}

// Tells libfuse where the bytes are. It splices them to the kernel without a copy, so that the
// server leaves the processors to what is measured.
int read_file(const char* path, fuse_bufvec** to, size_t size, off_t offset, fuse_file_info* file) {
    take_time("read", path, size);
    auto* where = static_cast<fuse_bufvec*>(std::malloc(sizeof(fuse_bufvec)));
    if (where == nullptr) return -ENOMEM;
    *where = FUSE_BUFVEC_INIT(size);
    where->buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    where->buf[0].fd = static_cast<int>(file->fh);
    where->buf[0].pos = offset;
    *to = where;  // libfuse frees it
    return 0;
}

void* begin(fuse_conn_info* connection, fuse_config* /*settings*/) {
    connection->want |= connection->capable & FUSE_CAP_SPLICE_WRITE;
    connection->max_background = kRequestsMax;
    connection->congestion_threshold = kRequestsMax;
    return nullptr;
}

int release_file(const char* /*path*/, fuse_file_info* file) {
    close(static_cast<int>(file->fh));
    return 0;
}

int read_folder(const char* path, void* to, fuse_fill_dir_t fill, off_t /*offset*/,
                fuse_file_info* /*file*/, fuse_readdir_flags /*flags*/) {
    take_time("folder", path, 0);
    DIR* folder = opendir(below(path).c_str());
    if (folder == nullptr) return -errno;
    while (const dirent* entry = readdir(folder)) {
        fill(to, entry->d_name, nullptr, 0, static_cast<fuse_fill_dir_flags>(0));
    }
    closedir(folder);
    return 0;
}

int serve(fuse* mounted) {
    fuse_session* session = fuse_get_session(mounted);
    if (fuse_set_signal_handlers(session) != 0) return 1;
    fuse_loop_config* loop = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(loop, kRequestsMax);
    fuse_loop_cfg_set_idle_threads(loop, kRequestsMax);
    const int result = fuse_loop_mt(mounted, loop);
    fuse_loop_cfg_destroy(loop);
    fuse_remove_signal_handlers(session);
    return result < 0 ? 1 : 0;
}

}  // namespace

int main(int count, char** words) {
    if (count != 5 && count != 6) {
        std::fprintf(stderr, "usage: %s FOLDER MOUNT LATENCY_US MEGABYTES_PER_S [LOG]\n", words[0]);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    storage().folder = words[1];
    storage().latency = std::chrono::microseconds(std::atol(words[3]));
    storage().bytes_per_s = std::atof(words[4]) * 1e6;
    if (count == 6 && (storage().log = std::fopen(words[5], "w")) == nullptr) return 1;
    if (count == 6) std::setvbuf(storage().log, nullptr, _IOLBF, BUFSIZ);
    fuse_operations operations{};
    operations.getattr = get_attributes;
    operations.open = open_file;
    operations.read_buf = read_file;
    operations.init = begin;
    operations.release = release_file;
    operations.readdir = read_folder;
    fuse_args arguments = FUSE_ARGS_INIT(1, words);
    fuse* mounted = fuse_new(&arguments, &operations, sizeof operations, nullptr);
    if (mounted == nullptr || fuse_mount(mounted, words[2]) != 0) return 1;
    const int result = serve(mounted);
    fuse_unmount(mounted);
    fuse_destroy(mounted);
    return result;
}
