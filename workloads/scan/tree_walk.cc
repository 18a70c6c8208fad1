// Depth first, one directory listed at a time; see tree_walk.h.
#include "scan/tree_walk.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace penstock::scan {
namespace {

struct CloseFolder {
    void operator()(DIR* folder) const { closedir(folder); }
};

bool is_dots(const std::string& name) { return name == "." || name == ".."; }

}  // namespace

TreeWalk::TreeWalk(std::vector<std::string> paths) {
    for (auto path = paths.rbegin(); path != paths.rend(); ++path)
        pending_.push_back({std::move(*path), true});
}

bool TreeWalk::next(Entry* entry) {
    while (!pending_.empty()) {
        const Pending pending = std::move(pending_.back());
        pending_.pop_back();
        if (visit(pending, entry)) return true;
    }
    return false;
}

// Whether `entry` is to be handed out.
bool TreeWalk::visit(const Pending& pending, Entry* entry) {
    *entry = {pending.path, {}};
    if (pending.named && pending.path == "-") return true;
    struct stat status {};
    const int failed =
        pending.named ? stat(pending.path.c_str(), &status) : lstat(pending.path.c_str(), &status);
    if (failed != 0) {
        entry->status = Status(errno, "stat", "");
        return true;
    }
    if (S_ISREG(status.st_mode)) return true;
    if (!S_ISDIR(status.st_mode)) {
        if (!pending.named) return false;
        entry->status = Status(EINVAL, "scan",
                               "neither a regular file nor a directory; '-' reads standard input");
        return true;
    }
    entry->status = list(pending.path);
    return !entry->status.ok();
}

Status TreeWalk::list(const std::string& folder) {
    const std::unique_ptr<DIR, CloseFolder> open(opendir(folder.c_str()));
    if (open == nullptr) return Status(errno, "opendir", "");
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* found = readdir(open.get()))
        if (!is_dots(found->d_name)) names.emplace_back(found->d_name);
    const int error = errno;
    std::sort(names.begin(), names.end(), std::greater<>());
    const std::string prefix = folder.ends_with('/') ? folder : folder + '/';
    for (const std::string& name : names) pending_.push_back({prefix + name, false});
    return error == 0 ? Status() : Status(error, "readdir", "");
}

}  // namespace penstock::scan
