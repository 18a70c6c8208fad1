// Requests about names that exist and what they name: look-up, attributes, links, free space.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "files.h"
#include "served.h"

namespace penstock::cache_service {

bool look_up(fuse_req_t request, fuse_ino_t folder, const char* name, fuse_entry_param* entry) {
    Served& all = served(request);
    *entry = {};
    Node* found = all.nodes.look_up(all.nodes.of(folder), name, &entry->attr);
    if (found == nullptr && errno == EMFILE) {
        all.kept.drop_all();
        found = all.nodes.look_up(all.nodes.of(folder), name, &entry->attr);
    }
    if (found == nullptr) return false;
    if (found->type == S_IFREG) (void)all.cache.stat(found->descriptor, &entry->attr);
    found->has_set_id = (entry->attr.st_mode & (S_ISUID | S_ISGID)) != 0;
    entry->ino = all.nodes.number_of(*found);
    entry->attr_timeout = entry->entry_timeout = kAttributesValid_s;
    return true;
}

void reply_attributes(fuse_req_t request, Node& node) {
    struct stat attributes {};
    const Status status = served(request).cache.stat(node.descriptor, &attributes);
    if (status.ok()) {
        node.has_set_id = (attributes.st_mode & (S_ISUID | S_ISGID)) != 0;
        fuse_reply_attr(request, &attributes, kAttributesValid_s);
    } else {
        fuse_reply_err(request, status.error_number());
    }
}

namespace {

void serve_lookup(fuse_req_t request, fuse_ino_t folder, const char* name) {
    fuse_entry_param entry;
    if (look_up(request, folder, name, &entry)) {
        fuse_reply_entry(request, &entry);
    } else {
        fuse_reply_err(request, errno);
    }
}

void serve_forget(fuse_req_t request, fuse_ino_t number, uint64_t count) {
    forget(request, number, count);
    fuse_reply_none(request);
}

void serve_forget_many(fuse_req_t request, size_t count, fuse_forget_data* forgotten) {
    for (size_t i = 0; i < count; ++i) forget(request, forgotten[i].ino, forgotten[i].nlookup);
    fuse_reply_none(request);
}

void serve_getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info* /*file*/) {
    reply_attributes(request, node_of(request, number));
}

timespec time_to_set(const timespec& time, int asked, int given, int now) {
    if ((asked & now) != 0) return {0, UTIME_NOW};
    return (asked & given) != 0 ? time : timespec{0, UTIME_OMIT};
}

// Sets all but the size. Returns 0 or an errno.
int set_attributes(const Node& node, const struct stat& wanted, int asked) {
    if ((asked & FUSE_SET_ATTR_MODE) != 0 && chmod(node.path().c_str(), wanted.st_mode) != 0)
        return errno;
    if ((asked & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0) {
        const uid_t user = (asked & FUSE_SET_ATTR_UID) != 0 ? wanted.st_uid : ~uid_t{0};
        const gid_t group = (asked & FUSE_SET_ATTR_GID) != 0 ? wanted.st_gid : ~gid_t{0};
        if (fchownat(node.descriptor, "", user, group, AT_EMPTY_PATH) != 0) return errno;
    }
    const timespec times[] = {
        time_to_set(wanted.st_atim, asked, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW),
        time_to_set(wanted.st_mtim, asked, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW)};
    if (times[0].tv_nsec == UTIME_OMIT && times[1].tv_nsec == UTIME_OMIT) return 0;
    return utimensat(node.descriptor, "", times, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

// Returns 0 or an errno.
int set_size(fuse_req_t request, const Node& node, off_t size, const fuse_file_info* file) {
    OpenedFile opened;
    if (file == nullptr) {
        if (const int error = open_below(&served(request), node, true, &opened); error != 0)
            return error;
    }
    const CachedFile& cached = file != nullptr ? file_of(file).file : opened.file;
    return cached.truncate(static_cast<uint64_t>(size)).error_number();
}

void serve_setattr(fuse_req_t request, fuse_ino_t number, struct stat* wanted, int asked,
                   fuse_file_info* file) {
    constexpr int kTimes = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
                           FUSE_SET_ATTR_MTIME_NOW;
    constexpr int kOthers = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | kTimes;
    Node& node = node_of(request, number);
    int error = 0;
    if ((asked & FUSE_SET_ATTR_SIZE) != 0) error = set_size(request, node, wanted->st_size, file);
    if (error == 0 && (asked & kOthers) != 0) {
        const bool mtime = (asked & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) != 0;
        const auto change = [&] { return set_attributes(node, *wanted, asked); };
        error = served(request).cache.change(node.descriptor, mtime, change).error_number();
    }
    if (error != 0) {
        fuse_reply_err(request, error);
    } else {
        reply_attributes(request, node);
    }
}

void serve_readlink(fuse_req_t request, fuse_ino_t number) {
    char target[PATH_MAX + 1];
    const ssize_t size = readlinkat(node_of(request, number).descriptor, "", target, PATH_MAX);
    if (size < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    target[size] = '\0';
    fuse_reply_readlink(request, target);
}

void serve_statfs(fuse_req_t request, fuse_ino_t number) {
    struct statvfs state {};
    if (fstatvfs(node_of(request, number).descriptor, &state) != 0) {
        fuse_reply_err(request, errno);
    } else {
        fuse_reply_statfs(request, &state);
    }
}

}  // namespace

void add_attribute_functions(fuse_lowlevel_ops* functions) {
    functions->lookup = serve_lookup;
    functions->forget = serve_forget;
    functions->forget_multi = serve_forget_many;
    functions->getattr = serve_getattr;
    functions->setattr = serve_setattr;
    functions->readlink = serve_readlink;
    functions->statfs = serve_statfs;
}

}  // namespace penstock::cache_service
