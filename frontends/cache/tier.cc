#include "tier.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "penstock/file_cache.h"

namespace penstock::cache_service {
namespace {

constexpr uint64_t kChunksMin = 1024;

bool is_in(const std::string& path, const std::string& folder) {
    return path == folder || path.starts_with(folder == "/" ? folder : folder + "/");
}

// Returns why a tier has no room where so much is free.
std::string why_no_room(const Options& options, uint64_t free) {
    const std::string begin = options.tier + ": ";
    const uint64_t least = kChunksMin * options.chunk_size;
    const uint64_t wanted = options.tier_size != 0 ? options.tier_size : least;
    if (wanted < least)
        return begin + "--tier-size: " + size_text(wanted) +
               " are too few: a tier has at least 1024 chunks (" + size_text(least) + ")";
    if (wanted > free)
        return begin + size_text(free) + " are free there, and " +
               (options.tier_size != 0 ? "--tier-size asks for " : "a tier needs at least ") +
               size_text(wanted) + " (free " + size_text(wanted - free) +
               ", or name a folder of another disk)";
    if (options.tier_size == 0 && free / 2 < least)
        return begin + size_text(free) + " are free there, of which a tier takes half, and that" +
               " is less than 1024 chunks (try: --tier-size " + std::to_string(least >> 20) + "M)";
    return "";
}

}  // namespace

std::string real_path(const std::string& path) {
    char resolved[PATH_MAX];
    return realpath(path.c_str(), resolved) == nullptr ? path : resolved;
}

std::string why_no_tier(const Options& options) {
    if (options.tier.empty()) {
        if (options.tier_writes) return "--tier-writes: needs --tier FOLDER";
        return options.tier_size == 0 ? "" : "--tier-size: needs --tier FOLDER";
    }
    const std::string begin = options.tier + ": ";
    struct stat state {};
    struct statvfs space {};
    if (stat(options.tier.c_str(), &state) != 0 || statvfs(options.tier.c_str(), &space) != 0)
        return begin + std::strerror(errno);
    if (!S_ISDIR(state.st_mode)) return begin + "is not a folder";
    if (access(options.tier.c_str(), W_OK | X_OK) != 0) return begin + std::strerror(errno);
    // The log has its name by the folder, and its bytes belong into the files there. The kernel may
    // remember the attributes of a dead mount's root, but asks for these.
    struct statvfs below {};
    if (statvfs(options.path.c_str(), &below) != 0)
        return options.path + ": " + std::strerror(errno);
    const std::string tier = real_path(options.tier);
    for (const std::string& served : {options.path, options.mountpoint}) {
        if (served.empty()) continue;
        if (is_in(tier, real_path(served)))
            return begin + "the tier must not lie in the folder that is cached";
        if (is_in(real_path(served), tier))
            return begin + "the folder that is cached must not lie in the tier";
    }
    return why_no_room(options, uint64_t{space.f_bavail} * space.f_frsize);
}

std::string why_no_log(const Options& options, const Status& status) {
    const std::string begin = options.path + ": ";
    const auto log = FileCache::unfinished_log(real_path(options.path));
    if (!log.ok() || (status.error_number() != ESTALE && status.error_number() != EBUSY))
        return begin + status.message();
    const UnfinishedLog& found = log.value();
    if (status.error_number() == EBUSY)
        return begin + "its files have a log of writes already, in " + found.folder + " of " +
               found.host + " (if no process uses that, remove " + found.path +
               "/.penstock-log, which gives it up)";
    return begin + "what was synced last is in a log in " + found.folder +
           ", and not in the files yet (start with --tier " + found.folder +
           "; to give it up, remove " + found.path + "/.penstock-log)";
}

}  // namespace penstock::cache_service
