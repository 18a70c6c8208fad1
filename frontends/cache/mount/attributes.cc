// Requests about names that exist and what they name: look-up, attributes, links, free space.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "files.h"
#include "hidden.h"
#include "served.h"

namespace penstock::cache_service {

bool look_up(fuse_req_t request, fuse_ino_t folder, const char* name, fuse_entry_param* entry) {
    Served& all = served(request);
    *entry = {};
    if (is_hidden(folder, name)) {
        errno = ENOENT;
        return false;
    }
    Below below;
    Node* const found = with_descriptors(
        &all, [&] { return all.nodes.look_up(all.nodes.of(folder), name, &below, &entry->attr); });
    if (found == nullptr) return false;
    if (found->identity.type == S_IFREG) (void)all.cache.stat(below.get(), &entry->attr);
    set_shown_number(all, &entry->attr);
    found->has_set_id = (entry->attr.st_mode & (S_ISUID | S_ISGID)) != 0;
    entry->ino = all.nodes.number_of(*found);
    entry->attr_timeout = entry->entry_timeout = kAttributesValid_s;
    return true;
}

void reply_attributes(fuse_req_t request, Node* node, const Below& below) {
    struct stat attributes {};
    const Status status = served(request).cache.stat(below.get(), &attributes);
    if (status.ok()) {
        set_shown_number(served(request), &attributes);
        node->has_set_id = (attributes.st_mode & (S_ISUID | S_ISGID)) != 0;
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
    Node& node = node_of(request, number);
    if (const Below below = open_node(request, node); below) {
        reply_attributes(request, &node, below);
    } else {
        fuse_reply_err(request, errno);
    }
}

timespec time_to_set(const timespec& time, int asked, int given, int now) {
    if ((asked & now) != 0) return {0, UTIME_NOW};
    return (asked & given) != 0 ? time : timespec{0, UTIME_OMIT};
}

// Sets all but the size. Returns 0 or an errno.
int set_attributes(const Below& below, const struct stat& wanted, int asked) {
    if ((asked & FUSE_SET_ATTR_MODE) != 0 && chmod(below.path().c_str(), wanted.st_mode) != 0)
        return errno;
    if ((asked & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0) {
        const uid_t user = (asked & FUSE_SET_ATTR_UID) != 0 ? wanted.st_uid : ~uid_t{0};
        const gid_t group = (asked & FUSE_SET_ATTR_GID) != 0 ? wanted.st_gid : ~gid_t{0};
        if (fchownat(below.get(), "", user, group, AT_EMPTY_PATH) != 0) return errno;
    }
    const timespec times[] = {
        time_to_set(wanted.st_atim, asked, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW),
        time_to_set(wanted.st_mtim, asked, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW)};
    if (times[0].tv_nsec == UTIME_OMIT && times[1].tv_nsec == UTIME_OMIT) return 0;
    return utimensat(below.get(), "", times, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

// Returns 0 or an errno.
int set_size(fuse_req_t request, const Node& node, const Below& below, off_t size,
             const fuse_file_info* file) {
    OpenedFile opened;
    if (file == nullptr) {
        if (const int error = open_below(&served(request), node, below, true, &opened); error != 0)
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
    const Below below = open_node(request, node);
    int error = below ? 0 : errno;
    if (error == 0 && (asked & FUSE_SET_ATTR_SIZE) != 0)
        error = set_size(request, node, below, wanted->st_size, file);
    if (error == 0 && (asked & kOthers) != 0) {
        const bool mtime = (asked & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) != 0;
        const auto change = [&] { return set_attributes(below, *wanted, asked); };
        error = served(request).cache.change(below.get(), mtime, change).error_number();
    }
    if (error != 0) {
        fuse_reply_err(request, error);
    } else {
        reply_attributes(request, &node, below);
    }
}

void serve_readlink(fuse_req_t request, fuse_ino_t number) {
    char target[PATH_MAX + 1];
    const Below below = open_node(request, number);
    const ssize_t size = below ? readlinkat(below.get(), "", target, PATH_MAX) : -1;
    if (size < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    target[size] = '\0';
    fuse_reply_readlink(request, target);
}

void serve_statfs(fuse_req_t request, fuse_ino_t number) {
    struct statvfs state {};
    const Below below = open_node(request, number);
    if (!below || fstatvfs(below.get(), &state) != 0) {
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
