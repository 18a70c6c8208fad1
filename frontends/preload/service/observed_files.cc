#include "observed_files.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace penstock::preload {
namespace {

constexpr off_t kSizeMin = 128 << 10;  // bytes; the kernel reads a smaller file ahead whole

}  // namespace

ObservedFiles::ObservedFiles(std::string_view signature) {
    if (signature.empty()) return;
    auto parsed = AccessPrograms::parse(signature);  // `penstock run` has looked at it
    if (!parsed.ok()) return;
    programs_ = std::move(parsed.value());
    has_programs_ = true;
}

std::optional<ReadAhead> ObservedFiles::begin(int fd) const {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < kSizeMin)
        return std::nullopt;
    auto ahead = ReadAhead::of(fd);
    if (!ahead.ok()) return std::nullopt;
    if (has_programs_) {
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        char name[PATH_MAX];
        const ssize_t size = readlink(link.c_str(), name, sizeof name);
        if (size > 0) (void)ahead.value().expect(programs_, {name, static_cast<size_t>(size)});
    }
    return std::move(ahead.value());
}

uint64_t ObservedFiles::observe(int fd, unsigned meaning, off_t offset, size_t size) {
    auto found = entries_.find(fd);
    if (found == entries_.end() || found->second.meaning != meaning) {
        if (found == entries_.end() && entries_.size() >= kFilesMax)
            entries_.erase(entries_.begin());
        found = entries_.insert_or_assign(fd, Entry{meaning, begin(fd)}).first;
    }
    std::optional<ReadAhead>& ahead = found->second.ahead;
    return ahead ? ahead->observe(static_cast<uint64_t>(offset), size) : UINT64_MAX;
}

}  // namespace penstock::preload
