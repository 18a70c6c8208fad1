// Requests about names that exist and what they name: look-up, attributes, links, free space.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "served.h"

namespace penstock::cache_service {

bool look_up(fuse_req_t request, fuse_ino_t folder, const char* name, fuse_entry_param* entry) {
    Served& all = served(request);
    *entry = {};
    Node* found = all.nodes.look_up(all.nodes.of(folder), name, &entry->attr);
    if (found == nullptr) return false;
    entry->ino = all.nodes.number_of(*found);
    entry->attr_timeout = entry->entry_timeout = kAttributesValid_s;
    return true;
}

void reply_attributes(fuse_req_t request, const Node& node) {
    struct stat attributes {};
    if (fstat(node.descriptor, &attributes) != 0) {
        fuse_reply_err(request, errno);
    } else {
        fuse_reply_attr(request, &attributes, kAttributesValid_s);
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
    served(request).nodes.forget(node_of(request, number), count);
    fuse_reply_none(request);
}

void serve_forget_many(fuse_req_t request, size_t count, fuse_forget_data* forgotten) {
    for (size_t i = 0; i < count; ++i)
        served(request).nodes.forget(node_of(request, forgotten[i].ino), forgotten[i].nlookup);
    fuse_reply_none(request);
}

void serve_getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info* /*file*/) {
    reply_attributes(request, node_of(request, number));
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
    functions->readlink = serve_readlink;
    functions->statfs = serve_statfs;
}

}  // namespace penstock::cache_service
