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
        pending_.push_back({std::move(*path), true, DT_UNKNOWN});
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
    unsigned char kind = pending.kind;
    if (kind == DT_UNKNOWN) {
        struct stat status {};
        const int failed = pending.named ? stat(pending.path.c_str(), &status)
                                         : lstat(pending.path.c_str(), &status);
        if (failed != 0) {
            entry->status = Status(errno, "stat", "");
            return true;
        }
        kind = IFTODT(status.st_mode);
    }
    if (kind == DT_REG) return true;
    if (kind != DT_DIR) {
        if (!pending.named) return false;
        entry->status = Status(EINVAL, "scan", "not a regular file");
        return true;
    }
    entry->status = list(pending.path);
    return !entry->status.ok();
}

Status TreeWalk::list(const std::string& folder) {
    const std::unique_ptr<DIR, CloseFolder> open(opendir(folder.c_str()));
    if (open == nullptr) return Status(errno, "opendir", "");
    struct Name {
        std::string text;
        unsigned char kind;
    };
    std::vector<Name> names;
    errno = 0;
    while (const dirent* found = readdir(open.get()))
        if (!is_dots(found->d_name)) names.push_back({found->d_name, found->d_type});
    const int error = errno;
    std::sort(names.begin(), names.end(),
              [](const Name& a, const Name& b) { return a.text > b.text; });
    const std::string prefix = folder.ends_with('/') ? folder : folder + '/';
    for (const Name& name : names) pending_.push_back({prefix + name.text, false, name.kind});
    return error == 0 ? Status() : Status(error, "readdir", "");
}

}  // namespace penstock::scan
