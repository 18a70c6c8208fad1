// Requests that make, remove and move names.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "caller.h"
#include "served.h"

namespace penstock::cache_service {
namespace {

// A descriptor of what a name stands for, if there is such a thing.
class Named {
public:
    Named(const Node& folder, const char* name)
        : descriptor_(openat(folder.descriptor, name, O_PATH | O_NOFOLLOW | O_CLOEXEC)) {}
    Named(const Named&) = delete;
    Named& operator=(const Named&) = delete;
    ~Named() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    [[nodiscard]] int get() const { return descriptor_; }

private:
    const int descriptor_;
};

// Closes a file whose name goes: some file systems below keep the bytes of open files under another
// name, which is in the way when the folder is removed.
void drop_kept(fuse_req_t request, const Named& named) {
    struct stat state {};
    if (named.get() >= 0 && fstat(named.get(), &state) == 0)
        served(request).kept.drop({state.st_dev, state.st_ino});
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

void serve_mknod(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode,
                 dev_t device) {
    int error = 0;
    {
        const AsCaller caller(request);
        error = error_of(
            mknodat(node_of(request, folder).descriptor, name, caller.mode(mode), device));
    }
    reply_entry(request, folder, name, error);
}

void serve_mkdir(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode) {
    int error = 0;
    {
        const AsCaller caller(request);
        error = error_of(mkdirat(node_of(request, folder).descriptor, name, caller.mode(mode)));
    }
    reply_entry(request, folder, name, error);
}

void serve_symlink(fuse_req_t request, const char* target, fuse_ino_t folder, const char* name) {
    int error = 0;
    {
        const AsCaller caller(request);
        error = error_of(symlinkat(target, node_of(request, folder).descriptor, name));
    }
    reply_entry(request, folder, name, error);
}

void serve_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t folder, const char* name) {
    const Node& node = node_of(request, number);
    const Node& to = node_of(request, folder);
    const Status status = served(request).cache.change(node.descriptor, false, [&] {
        return error_of(
            linkat(AT_FDCWD, node.path().c_str(), to.descriptor, name, AT_SYMLINK_FOLLOW));
    });
    reply_entry(request, folder, name, status.error_number());
}

void serve_unlink(fuse_req_t request, fuse_ino_t folder, const char* name) {
    const Node& from = node_of(request, folder);
    const Named gone(from, name);
    drop_kept(request, gone);
    const Status status = served(request).cache.change(
        gone.get(), false, [&] { return error_of(unlinkat(from.descriptor, name, 0)); });
    fuse_reply_err(request, status.error_number());
}

void serve_rmdir(fuse_req_t request, fuse_ino_t folder, const char* name) {
    reply_result(request, unlinkat(node_of(request, folder).descriptor, name, AT_REMOVEDIR) == 0);
}

void serve_rename(fuse_req_t request, fuse_ino_t folder, const char* name, fuse_ino_t to_folder,
                  const char* to_name, unsigned flags) {
    const FileCache& cache = served(request).cache;
    const Node& from = node_of(request, folder);
    const Node& to = node_of(request, to_folder);
    const Named moved(from, name), replaced(to, to_name);
    drop_kept(request, replaced);
    const auto rename = [&] {
        return error_of(renameat2(from.descriptor, name, to.descriptor, to_name, flags));
    };
    const Status status = cache.change(moved.get(), false, [&] {
        return cache.change(replaced.get(), false, rename).error_number();
    });
    fuse_reply_err(request, status.error_number());
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
