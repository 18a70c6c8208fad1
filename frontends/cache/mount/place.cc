// Looks at mounts through /proc/self/mountinfo: a look through the mount itself could wait for it.
#include "place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

namespace penstock::cache_service {
namespace {

// A line of mountinfo.
struct Mounted {
    std::string device;  // "0:52"
    std::string type;
};

// Replaces the \ooo by which the kernel writes blanks and backslashes of names.
std::string decoded(const std::string& text) {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            result += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
            i += 3;
        } else {
            result += text[i];
        }
    }
    return result;
}

// Returns the topmost mount at a path.
std::optional<Mounted> mounted_at(const std::string& mountpoint) {
    std::optional<Mounted> found;
    std::ifstream table("/proc/self/mountinfo");
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string word, device, at;
        words >> word >> word >> device >> word >> at;
        while (words >> word && word != "-") continue;
        words >> word;  // the type
        if (decoded(at) == mountpoint) found = Mounted{device, word};
    }
    return found;
}

}  // namespace

std::string path_behind(int descriptor) {
    char path[PATH_MAX];
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    const ssize_t size = readlink(link.c_str(), path, sizeof path);
    return size < 0 ? std::string() : std::string(path, static_cast<size_t>(size));
}

std::string absolute(const std::string& path) {
    std::string trimmed = path;
    while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
    char resolved[PATH_MAX];
    if (realpath(trimmed.c_str(), resolved) != nullptr) return resolved;
    const size_t slash = trimmed.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : trimmed.substr(0, slash + 1);
    if (realpath(folder.c_str(), resolved) == nullptr) return trimmed;
    const std::string name = slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
    return std::string(resolved) + (std::strlen(resolved) > 1 ? "/" : "") + name;
}

std::string device_mounted_at(const std::string& mountpoint) {
    const auto mounted = mounted_at(mountpoint);
    return mounted.has_value() ? mounted->device : "";
}

bool unmount_lazily(const std::string& mountpoint) {
    if (umount2(mountpoint.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return true;
    const pid_t child = fork();
    if (child == 0) {
        execlp("fusermount3", "fusermount3", "-u", "-z", "--", mountpoint.c_str(), nullptr);
        _exit(127);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

namespace {

// Removes mounts whose process is gone.
bool remove_stale(const std::string& mountpoint, std::string* error) {
    constexpr int kLayersMax = 16;
    for (int i = 0; i < kLayersMax; ++i) {
        // Unlike the attributes of its root, this is asked of the process each time.
        struct statfs state {};
        if (statfs(mountpoint.c_str(), &state) == 0 || errno != ENOTCONN) return true;
        if (!unmount_lazily(absolute(mountpoint))) break;
    }
    *error = mountpoint + ": a mount whose process is gone could not be removed (try: umount -l)";
    return false;
}

// Opens a folder by a path without links. Others may own a folder on the way, and put a link there
// at any time: root would mount where they like.
int open_folder(const std::string& path, std::string* error) {
    const int folder = open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        *error = path + ": " + std::strerror(errno);
        return -1;
    }
    if (const std::string found = path_behind(folder); found != path) {
        *error = path + ": leads to " + found + " by now, through a link";
        close(folder);
        return -1;
    }
    return folder;
}

bool is_ours(const std::string& mountpoint) {
    const auto mounted = mounted_at(mountpoint);
    return mounted.has_value() && mounted->type == "fuse.penstock";
}

}  // namespace

int open_shown_folder(const std::string& path, int* lock, std::string* error) {
    if (!remove_stale(path, error)) return -1;
    if (is_ours(absolute(path))) {
        *error = path + ": a file cache is mounted there already (try: penstock umount)";
        return -1;
    }
    const int folder = open_folder(path, error);
    if (folder < 0) return -1;
    *lock = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) != 0) {
        *error = path + ": " +
                 (*lock >= 0 && errno == EWOULDBLOCK ? "another file cache shows it already"
                                                     : std::strerror(errno));
        if (*lock >= 0) close(*lock);
        close(folder);
        return -1;
    }
    return folder;
}

int open_mountpoint(int root, const std::string& path, const std::string& mountpoint,
                    std::string* error) {
    if (mountpoint == path) return fcntl(root, F_DUPFD_CLOEXEC, 0);
    if (!remove_stale(mountpoint, error)) return -1;
    const int folder = open_folder(mountpoint, error);
    if (folder < 0) return -1;
    if (is_ours(mountpoint)) {
        *error = mountpoint + ": in use: another file cache is mounted there";
    } else if (mountpoint.starts_with(path + (path == "/" ? "" : "/"))) {
        *error = mountpoint + ": lies inside " + path + ", which it would show";
    } else {
        return folder;
    }
    close(folder);
    return -1;
}

void set_readahead(const std::string& mountpoint, unsigned size) {
    const auto mounted = mounted_at(absolute(mountpoint));
    if (!mounted.has_value()) return;
    std::ofstream setting("/sys/class/bdi/" + mounted->device + "/read_ahead_kb");
    setting << size / 1024;
}

}  // namespace penstock::cache_service
