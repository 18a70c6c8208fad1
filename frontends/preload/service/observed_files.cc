#include "observed_files.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

namespace penstock::preload {
namespace {

constexpr off_t kSizeMin = 128 << 10;  // bytes; the kernel reads a smaller file ahead whole

}  // namespace

ObservedFiles::ObservedFiles() {
    const char* path = std::getenv("PENSTOCK_SIGNATURE");
    if (path == nullptr || *path == '\0') return;
    std::ifstream in(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    auto parsed = AccessPrograms::parse(text);  // `penstock run` has looked at it
    if (!parsed.ok()) return;
    programs_ = std::move(parsed.value());
    has_programs_ = true;
}

std::optional<File> ObservedFiles::open(int fd) {
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    char name[PATH_MAX];
    struct stat status;
    // Files of /proc and /sys have size 0, and to open one may have an effect.
    if (stat(link.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < kSizeMin)
        return std::nullopt;
    const ssize_t size = readlink(link.c_str(), name, sizeof name);
    FileOptions options;
    options.storage = StorageKind::kPosix;
    options.threads = 1;  // it transfers nothing
    auto file = File::open(link, {}, options);
    if (!file.ok()) return std::nullopt;
    if (has_programs_ && size > 0)
        (void)file.value().expect(programs_, {name, static_cast<size_t>(size)});
    return std::move(file.value());
}

uint64_t ObservedFiles::observe(int fd, unsigned meaning, off_t offset, size_t size) {
    auto found = entries_.find(fd);
    if (found == entries_.end() || found->second.meaning != meaning) {
        if (found == entries_.end() && entries_.size() >= kFilesMax)
            entries_.erase(entries_.begin());
        found = entries_.insert_or_assign(fd, Entry{meaning, open(fd)}).first;
    }
    const std::optional<File>& file = found->second.file;
    return file ? file->observe(size, static_cast<uint64_t>(offset)) : UINT64_MAX;
}

}  // namespace penstock::preload
