// Requests about extended attributes: those of the object below, and one of the root that tells of
// the service.
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "mount.h"
#include "served.h"

namespace penstock::cache_service {
namespace {

constexpr size_t kValueSizeMax = 64 << 10;  // XATTR_SIZE_MAX and XATTR_LIST_MAX of Linux

// Linux has no call for the attributes of a link that is known by descriptor.
bool has_none(fuse_req_t request, const Node& node) {
    if (node.identity.type != S_IFLNK) return false;
    fuse_reply_err(request, EOPNOTSUPP);
    return true;
}

// Answers with `size` bytes, or with their number if the caller asked for that.
void reply_value(fuse_req_t request, const char* value, size_t size, size_t room) {
    if (room == 0) {
        fuse_reply_xattr(request, size);
    } else if (size > room) {
        fuse_reply_err(request, ERANGE);
    } else {
        fuse_reply_buf(request, value, size);
    }
}

void serve_getxattr(fuse_req_t request, fuse_ino_t number, const char* name, size_t room) {
    if (number == FUSE_ROOT_ID && std::strcmp(name, kReportAttribute) == 0) {
        const std::string& report = served(request).report;
        reply_value(request, report.data(), report.size(), room);
        return;
    }
    Node& node = node_of(request, number);
    if (has_none(request, node)) return;
    std::vector<char> value(std::min(room, kValueSizeMax));
    const Below below = open_node(request, node);
    const ssize_t size = below ? getxattr(below.path().c_str(), name, value.data(), value.size())
                               : -1;
    if (size < 0) {
        fuse_reply_err(request, errno);
    } else {
        reply_value(request, value.data(), static_cast<size_t>(size), room);
    }
}

void serve_listxattr(fuse_req_t request, fuse_ino_t number, size_t room) {
    Node& node = node_of(request, number);
    if (has_none(request, node)) return;
    std::vector<char> names(std::min(room, kValueSizeMax));
    const Below below = open_node(request, node);
    const ssize_t size = below ? listxattr(below.path().c_str(), names.data(), names.size()) : -1;
    if (size < 0) {
        fuse_reply_err(request, errno);
    } else {
        reply_value(request, names.data(), static_cast<size_t>(size), room);
    }
}

// Runs `change` of an attribute of an object, and answers.
template <class Change>
void change_attribute(fuse_req_t request, fuse_ino_t number, const char* name, Change change) {
    Node& node = node_of(request, number);
    if (has_none(request, node)) return;
    if (number == FUSE_ROOT_ID && std::strcmp(name, kReportAttribute) == 0) {
        fuse_reply_err(request, EPERM);
        return;
    }
    const Below below = open_node(request, node);
    if (!below) {
        fuse_reply_err(request, errno);
        return;
    }
    const std::string path = below.path();
    const Status status = served(request).cache.change(
        below.get(), false, [&] { return change(path.c_str()) == 0 ? 0 : errno; });
    fuse_reply_err(request, status.error_number());
}

void serve_setxattr(fuse_req_t request, fuse_ino_t number, const char* name, const char* value,
                    size_t size, int flags) {
    change_attribute(request, number, name,
                     [&](const char* path) { return setxattr(path, name, value, size, flags); });
}

void serve_removexattr(fuse_req_t request, fuse_ino_t number, const char* name) {
    change_attribute(request, number, name,
                     [&](const char* path) { return removexattr(path, name); });
}

}  // namespace

void add_extended_attribute_functions(fuse_lowlevel_ops* functions) {
    functions->getxattr = serve_getxattr;
    functions->listxattr = serve_listxattr;
    functions->setxattr = serve_setxattr;
    functions->removexattr = serve_removexattr;
}

}  // namespace penstock::cache_service
