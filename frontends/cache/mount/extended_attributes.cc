// Requests about extended attributes: those of the object below, and one of the root that tells of
// the service.
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "caller.h"
#include "mount.h"
#include "served.h"

namespace penstock::cache_service {
namespace {

constexpr char kAccessList[] = "system.posix_acl_access";
constexpr size_t kValueSizeMax = 64 << 10;  // XATTR_SIZE_MAX and XATTR_LIST_MAX of Linux

// An object whose attributes a request is about.
struct Object {
    Below below;
    Below folder;  // of a link: the path leads through it
    std::string path;
    bool is_link = false;  // then the calls are those that follow no link
};

// Opens it. Linux has no call for the attributes of a link that is known by descriptor, so a link
// is found by its name, unless another object has that now. Returns false with errno set.
bool open_object(fuse_req_t request, Node& node, Object* object) {
    object->is_link = node.identity.type == S_IFLNK;
    if (!object->is_link) {
        object->below = open_node(request, node);
        object->path = object->below.path();
        return static_cast<bool>(object->below);
    }
    Served& all = served(request);
    std::string name;
    const Below folder = with_descriptors(&all,
                                          [&] { return all.nodes.open_folder_of(node, &name); });
    if (!folder) return false;
    struct stat attributes {};
    Identity identity;
    object->below = Below::open(folder, name.c_str());
    if (!object->below || !describe(object->below, &attributes, &identity)) return false;
    errno = ESTALE;
    object->folder = folder;
    object->path = folder.path() + "/" + name;
    return node.identity.is(identity);
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
    std::vector<char> value(std::min(room, kValueSizeMax));
    Object object;
    ssize_t size = -1;
    if (open_object(request, node_of(request, number), &object)) {
        const auto get = object.is_link ? lgetxattr : getxattr;
        size = get(object.path.c_str(), name, value.data(), value.size());
    }
    if (size < 0) {
        fuse_reply_err(request, errno);
    } else {
        reply_value(request, value.data(), static_cast<size_t>(size), room);
    }
}

void serve_listxattr(fuse_req_t request, fuse_ino_t number, size_t room) {
    std::vector<char> names(std::min(room, kValueSizeMax));
    Object object;
    ssize_t size = -1;
    if (open_object(request, node_of(request, number), &object)) {
        const auto list = object.is_link ? llistxattr : listxattr;
        size = list(object.path.c_str(), names.data(), names.size());
    }
    if (size < 0) {
        fuse_reply_err(request, errno);
    } else {
        reply_value(request, names.data(), static_cast<size_t>(size), room);
    }
}

// Runs `change` of an attribute of an object, and answers.
template <class Change>
void change_attribute(fuse_req_t request, fuse_ino_t number, const char* name, Change change) {
    if (number == FUSE_ROOT_ID && std::strcmp(name, kReportAttribute) == 0) {
        fuse_reply_err(request, EPERM);
        return;
    }
    Object object;
    if (!open_object(request, node_of(request, number), &object)) {
        fuse_reply_err(request, errno);
        return;
    }
    const Status status = served(request).cache.change(
        object.below.get(), false, [&] { return change(object) == 0 ? 0 : errno; });
    fuse_reply_err(request, status.error_number());
}

void serve_setxattr(fuse_req_t request, fuse_ino_t number, const char* name, const char* value,
                    size_t size, int flags) {
    change_attribute(request, number, name, [&](const Object& object) {
        const auto set = object.is_link ? lsetxattr : setxattr;
        if (std::strcmp(name, kAccessList) == 0) {
            // By this the kernel below takes away the set-group-ID bit of a file whose group the
            // caller is not in. A caller without the right has it by a capability.
            const AsCaller caller(request);
            if (set(object.path.c_str(), name, value, size, flags) == 0) return 0;
            if (errno != EPERM) return -1;
        }
        return set(object.path.c_str(), name, value, size, flags);
    });
}

void serve_removexattr(fuse_req_t request, fuse_ino_t number, const char* name) {
    change_attribute(request, number, name, [&](const Object& object) {
        return (object.is_link ? lremovexattr : removexattr)(object.path.c_str(), name);
    });
}

}  // namespace

void add_extended_attribute_functions(fuse_lowlevel_ops* functions) {
    functions->getxattr = serve_getxattr;
    functions->listxattr = serve_listxattr;
    functions->setxattr = serve_setxattr;
    functions->removexattr = serve_removexattr;
}

}  // namespace penstock::cache_service
