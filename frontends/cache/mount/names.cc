// Requests that make, remove and move names.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "caller.h"
#include "hidden.h"
#include "served.h"

namespace penstock::cache_service {
namespace {

// What a name stands for, if there is such a thing, while a request changes the name.
class Named {
public:
    Named(fuse_req_t request, const Below& folder, const char* name)
        : nodes_(served(request).nodes) {
        (void)with_descriptors(&served(request), [&] {
            object_ = nodes_.begin_change(folder, name);
            errno = object_.error;
            return object_.error == 0;
        });
    }
    Named(const Named&) = delete;
    Named& operator=(const Named&) = delete;
    ~Named() { nodes_.end_change(object_); }
    [[nodiscard]] const NamedObject& object() const { return object_; }
    [[nodiscard]] int descriptor() const { return object_.below.get(); }
    // Returns the errno because of which the name must not be changed: what it stands for would be
    // lost for programs that use it. 0: there is none.
    [[nodiscard]] int error() const {
        return object_.error == EMFILE || object_.error == ENFILE ? object_.error : 0;
    }

private:
    Nodes& nodes_;
    NamedObject object_;
};

// Closes a file whose name goes: some file systems below keep the bytes of open files under another
// name, which is in the way when the folder is removed.
void drop_kept(fuse_req_t request, const Named& named) {
    const Identity& identity = named.object().identity;
    if (named.descriptor() < 0) return;
    served(request).kept.drop({identity.device, identity.number});
    served(request).others.close(identity.device, identity.number);
}

int error_of(int result) { return result == 0 ? 0 : errno; }

void reply_entry(fuse_req_t request, fuse_ino_t folder, const char* name, int error) {
    fuse_entry_param entry;
    if (error == 0 && !look_up(request, folder, name, &entry)) error = errno;
    if (error == 0) {
        fuse_reply_entry(request, &entry);
    } else {
        fuse_reply_err(request, error);
    }
}

// Runs `make`, which makes a name in a folder, as the caller. Returns 0 or an errno.
template <class Make>
int make_name(fuse_req_t request, fuse_ino_t folder, const char* name, const Make& make) {
    if (is_hidden(folder, name)) return EPERM;
    const Below below = open_node(request, folder);
    if (!below) return errno;
    const AsCaller caller(request);
    return error_of(make(below.get(), caller));
}

void serve_mknod(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode,
                 dev_t device) {
    const int error = make_name(request, folder, name, [&](int below, const AsCaller& caller) {
        return mknodat(below, name, caller.mode(mode), device);
    });
    reply_entry(request, folder, name, error);
}

void serve_mkdir(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode) {
    const int error = make_name(request, folder, name, [&](int below, const AsCaller& caller) {
        return mkdirat(below, name, caller.mode(mode));
    });
    reply_entry(request, folder, name, error);
}

void serve_symlink(fuse_req_t request, const char* target, fuse_ino_t folder, const char* name) {
    const int error = make_name(request, folder, name, [&](int below, const AsCaller& /*caller*/) {
        return symlinkat(target, below, name);
    });
    reply_entry(request, folder, name, error);
}

void serve_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t folder, const char* name) {
    if (is_hidden(folder, name)) {
        fuse_reply_err(request, EPERM);
        return;
    }
    const Below below = open_node(request, number);
    const Below to = below ? open_node(request, folder) : Below();
    if (!to) {
        fuse_reply_err(request, errno);
        return;
    }
    const Status status = served(request).cache.change(below.get(), false, [&] {
        return error_of(linkat(AT_FDCWD, below.path().c_str(), to.get(), name, AT_SYMLINK_FOLLOW));
    });
    reply_entry(request, folder, name, status.error_number());
}

// Removes a name with `flags` of unlinkat(2). Returns 0 or an errno. What it stood for is closed,
// unless a program has it open.
int remove_name(fuse_req_t request, fuse_ino_t folder, const char* name, int flags) {
    Served& all = served(request);
    if (is_hidden(folder, name)) return ENOENT;
    const Below from = open_node(request, folder);
    if (!from) return errno;
    const Named gone(request, from, name);
    int error = gone.error();
    if (error == 0) {
        drop_kept(request, gone);
        const auto remove = [&] { return error_of(unlinkat(from.get(), name, flags)); };
        error = (flags & AT_REMOVEDIR) != 0
                    ? remove()
                    : all.cache.change(gone.descriptor(), false, remove).error_number();
    }
    if (error == 0) all.nodes.removed(gone.object(), all.nodes.of(folder), name);
    return error;
}

void serve_unlink(fuse_req_t request, fuse_ino_t folder, const char* name) {
    fuse_reply_err(request, remove_name(request, folder, name, 0));
}

void serve_rmdir(fuse_req_t request, fuse_ino_t folder, const char* name) {
    fuse_reply_err(request, remove_name(request, folder, name, AT_REMOVEDIR));
}

// The same for a name that is moved.
int move_name(fuse_req_t request, fuse_ino_t folder, const char* name, fuse_ino_t to_folder,
              const char* to_name, unsigned flags) {
    Served& all = served(request);
    if (is_hidden(folder, name)) return ENOENT;
    if (is_hidden(to_folder, to_name)) return EPERM;
    const Below from = open_node(request, folder);
    const Below to = from ? open_node(request, to_folder) : Below();
    if (!to) return errno;
    const Named moved(request, from, name), replaced(request, to, to_name);
    int error = moved.error() != 0 ? moved.error() : replaced.error();
    if (error == 0) {
        drop_kept(request, replaced);
        const auto rename = [&] {
            return error_of(renameat2(from.get(), name, to.get(), to_name, flags));
        };
        const auto change = [&] {
            return all.cache.change(replaced.descriptor(), false, rename).error_number();
        };
        error = all.cache.change(moved.descriptor(), false, change).error_number();
    }
    if (error == 0)
        all.nodes.renamed(moved.object(), all.nodes.of(folder), name, replaced.object(),
                          all.nodes.of(to_folder), to_name, (flags & RENAME_EXCHANGE) != 0);
    return error;
}

void serve_rename(fuse_req_t request, fuse_ino_t folder, const char* name, fuse_ino_t to_folder,
                  const char* to_name, unsigned flags) {
    fuse_reply_err(request, move_name(request, folder, name, to_folder, to_name, flags));
}

}  // namespace

void add_name_functions(fuse_lowlevel_ops* functions) {
    functions->mknod = serve_mknod;
    functions->mkdir = serve_mkdir;
    functions->symlink = serve_symlink;
    functions->link = serve_link;
    functions->unlink = serve_unlink;
    functions->rmdir = serve_rmdir;
    functions->rename = serve_rename;
}

}  // namespace penstock::cache_service
