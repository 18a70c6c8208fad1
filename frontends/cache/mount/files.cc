// Requests on open files: their bytes go through the cache.
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>

#include "caller.h"
#include "hidden.h"
#include "nameless_files.h"

namespace penstock::cache_service {
namespace {

// Opens by `open` with flags for reading or for both, so that the cache can read the rest of chunks
// that are written in part. Where only writing is allowed, it writes around the cache.
int open_as_allowed(Served* all, bool writes, const std::function<int(int)>& open) {
    const auto descriptor = with_descriptors(all, [&] {
        const int opened = open(writes ? O_RDWR : O_RDONLY);
        return opened < 0 ? std::nullopt : std::optional(opened);
    });
    if (descriptor.has_value()) return *descriptor;
    return errno == EACCES && writes ? open(O_WRONLY) : -1;
}

}  // namespace

int adopt_below(Served* all, int descriptor, bool writes, OpenedFile* opened) {
    auto adopted = all->cache.adopt(descriptor);
    if (!adopted.ok()) return adopted.status().error_number();
    opened->file = std::move(adopted.value());
    opened->descriptor = descriptor;
    opened->writes = writes;
    return 0;
}

int open_below(Served* all, const Node& node, const Below& below, bool writes, OpenedFile* opened) {
    const std::string path = below.path();
    const int descriptor = open_as_allowed(all, writes, [&](int access) {
        return open_quietly(*all, AT_FDCWD, path.c_str(), access | O_CLOEXEC);
    });
    const int error = descriptor < 0 ? errno : adopt_below(all, descriptor, writes, opened);
    if (writes) all->kept.drop(key_of(node));  // it would keep programs from running it
    return error;
}

namespace {

// Returns memory of this thread for the bytes of one request.
std::byte* buffer() {
    thread_local const std::unique_ptr<std::byte[]> memory(new std::byte[kRequestSizeMax]);
    return memory.get();
}

// Returns whether writes need no pages of the kernel, which take a copy more and a request for the
// file's capabilities each. The handle cannot be mapped. The kernel itself takes set-ID bits away.
bool is_direct(const Served& all, const OpenedFile& opened, const fuse_file_info& file) {
    struct stat state {};
    return all.writes_direct && (file.flags & (O_ACCMODE | O_DIRECT)) == O_WRONLY &&
           fstat(opened.descriptor, &state) == 0 && (state.st_mode & (S_ISUID | S_ISGID)) == 0;
}

// Ends an open: cuts the file off if that was asked for, and tells the kernel what it may keep.
int finish_open(const Served& all, Node* node, OpenedFile* opened, fuse_file_info* file) {
    if ((file->flags & O_TRUNC) != 0) {
        const Status status = opened->file.truncate(0);
        if (!status.ok()) return status.error_number();
    }
    const uint64_t version = opened->file.version();
    file->keep_cache = node->version_cached.exchange(version) == version ? 1 : 0;
    opened->direct = is_direct(all, *opened, *file);
    file->direct_io = opened->direct ? 1 : 0;
    file->noflush = opened->writes ? 0 : 1;  // there is no error to tell
    return 0;
}

// Opens a file that is not kept, for a program. Returns 0 or an errno.
int open_counted(fuse_req_t request, Node* node, bool writes, OpenedFile* opened) {
    opened->counted = count_handle(request);
    if (opened->counted == nullptr) return errno;
    const Below below = open_node(request, *node);
    return below ? open_below(&served(request), *node, below, writes, opened) : errno;
}

// Enters a handle. Before the kernel is told: it may send requests on the handle at once.
void enter_handle(fuse_req_t request, Node* node, const std::shared_ptr<FileHandle>& handle,
                  fuse_file_info* file) {
    handle->descriptor = handle->opened.descriptor;
    served(request).nodes.add_handle(*node, handle);
    file->fh = reinterpret_cast<uint64_t>(handle.get());
}

void serve_open(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    Node& node = node_of(request, number);
    const bool writes = (file->flags & O_ACCMODE) != O_RDONLY || (file->flags & O_TRUNC) != 0;
    auto handle = std::make_shared<FileHandle>();
    OpenedFile& opened = handle->opened;
    KeptFiles& kept = served(request).kept;
    auto found = writes ? std::nullopt : kept.find(key_of(node));
    // Asked now: while it is open no other file gets its number.
    if (found.has_value() && !served(request).nodes.is_current(node)) found.reset();
    if (found.has_value()) opened = std::move(*found);
    int error = writes && served(request).read_only ? EROFS : 0;
    if (error == 0 && !found.has_value()) error = open_counted(request, &node, writes, &opened);
    if (error == 0) error = finish_open(served(request), &node, &opened, file);
    if (error == 0 && !writes && !found.has_value()) kept.keep(key_of(node), opened);
    if (error != 0) {
        fuse_reply_err(request, error);
        return;
    }
    enter_handle(request, &node, handle, file);
    Nodes& nodes = served(request).nodes;
    if (fuse_reply_open(request, file) != 0) nodes.remove_handle(node, *handle);
}

// Returns a descriptor of a regular file, or closes it and returns -1 with errno set: the kernel
// looks the name up again.
int only_regular(int descriptor) {
    struct stat state {};
    if (descriptor >= 0 && fstat(descriptor, &state) == 0 && S_ISREG(state.st_mode))
        return descriptor;
    if (descriptor >= 0) close(descriptor);
    // ENXIO: a FIFO without a reader. EWOULDBLOCK: a leased file, which an open may wait for.
    if (descriptor >= 0 || errno == ENXIO || errno == EWOULDBLOCK) errno = ESTALE;
    return -1;
}

// Makes a file as the caller, maybe one without a name. Returns its descriptor, or -1 with errno
// set. If there is such a file by now it is opened, where the caller allows that. A new file does
// not need to be cut off.
int make_file(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode,
              fuse_file_info* file) {
    if (is_hidden(folder, name)) {
        errno = EPERM;
        return -1;
    }
    const Below parent = open_node(request, folder);
    if (!parent) return -1;
    const bool nameless = is_no_name(name);
    const auto make = [&](int flags) {
        return open_as_allowed(&served(request), true, [&](int access) {
            const AsCaller caller(request);
            return openat(parent.get(), nameless ? "." : name, access | flags | O_CLOEXEC,
                          caller.mode(mode));
        });
    };
    if (nameless) return make(O_TMPFILE | (file->flags & O_EXCL));
    const int made = make(O_CREAT | O_NOFOLLOW | O_EXCL);
    if (made >= 0) file->flags &= ~O_TRUNC;
    if (made >= 0 || errno != EEXIST || (file->flags & O_EXCL) != 0) return made;
    // There may be a FIFO since the kernel looked: an open of it would wait without end.
    return only_regular(make(O_CREAT | O_NOFOLLOW | O_NONBLOCK));
}

void serve_create(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode,
                  fuse_file_info* file) {
    auto handle = std::make_shared<FileHandle>();
    OpenedFile& opened = handle->opened;
    opened.counted = count_handle(request);
    const int descriptor = opened.counted == nullptr ? -1
                                                     : make_file(request, folder, name, mode, file);
    int error = descriptor < 0 ? errno : adopt_below(&served(request), descriptor, true, &opened);
    fuse_entry_param entry;
    if (error == 0 && !(is_no_name(name) ? enter_nameless(request, descriptor, &entry)
                                         : look_up(request, folder, name, &entry)))
        error = errno;
    if (error != 0) {
        fuse_reply_err(request, error);
        return;
    }
    Node& node = node_of(request, entry.ino);
    served(request).kept.drop(key_of(node));
    error = finish_open(served(request), &node, &opened, file);
    if (error == 0) {
        enter_handle(request, &node, handle, file);
        if (fuse_reply_create(request, &entry, file) == 0) return;
        served(request).nodes.remove_handle(node, *handle);
    }
    forget(request, entry.ino, 1);
    if (error != 0) fuse_reply_err(request, error);
}

void serve_release(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    served(request).nodes.remove_handle(node_of(request, number), handle_of(file));
    drop_gone(served(request));
    fuse_reply_err(request, 0);
}

void serve_read(fuse_req_t request, fuse_ino_t /*number*/, size_t size, off_t offset,
                fuse_file_info* file) {
    std::byte* const to = buffer();
    auto got = file_of(file).file.read(to, std::min<size_t>(size, kRequestSizeMax),
                                       static_cast<uint64_t>(offset));
    if (got.ok()) {
        fuse_reply_buf(request, reinterpret_cast<const char*>(to), got.value());
    } else {
        reply_status(request, got.status());
    }
}

// Takes set-ID bits away that a file has got since it was opened. Root may keep them.
void take_set_id(fuse_req_t request, Node* node) {
    struct stat state {};
    if (fuse_req_ctx(request)->uid == 0) return;
    const Below below = open_node(request, *node);
    if (!below || fstat(below.get(), &state) != 0) return;
    const mode_t group = (state.st_mode & S_IXGRP) != 0 ? S_ISGID : 0;
    const mode_t mode = state.st_mode & 07777 & ~(S_ISUID | group);
    (void)served(request).cache.change(
        below.get(), false, [&] { return chmod(below.path().c_str(), mode) == 0 ? 0 : errno; });
    node->has_set_id = false;
}

// Writes to a direct handle. What the kernel does for others is done here.
Result<uint64_t> write_direct(fuse_req_t request, Node* node, const char* from, size_t size,
                              uint64_t offset, const fuse_file_info& file) {
    const CachedFile& cached = file_of(&file).file;
    if (node->has_set_id) take_set_id(request, node);
    auto written = cached.write(from, size, offset);
    if (!written.ok() || (file.flags & O_DSYNC) == 0) return written;
    const Status synced = cached.sync((file.flags & O_SYNC) != O_SYNC);
    return synced.ok() ? written : synced;
}

void serve_write(fuse_req_t request, fuse_ino_t number, const char* from, size_t size, off_t offset,
                 fuse_file_info* file) {
    const OpenedFile& opened = file_of(file);
    const auto at = static_cast<uint64_t>(offset);
    auto written = opened.direct
                       ? write_direct(request, &node_of(request, number), from, size, at, *file)
                       : opened.file.write(from, size, at);
    if (written.ok()) {
        fuse_reply_write(request, written.value());
    } else {
        reply_status(request, written.status());
    }
}

// A close waits for storage only where that could not promise to take what was written.
void serve_flush(fuse_req_t request, fuse_ino_t /*number*/, fuse_file_info* file) {
    const OpenedFile& opened = file_of(file);
    reply_status(request, opened.writes ? opened.file.finish() : Status{});
}

void serve_fsync(fuse_req_t request, fuse_ino_t /*number*/, int data_only, fuse_file_info* file) {
    reply_status(request, file_of(file).file.sync(data_only != 0));
}

void serve_fallocate(fuse_req_t request, fuse_ino_t /*number*/, int mode, off_t offset, off_t size,
                     fuse_file_info* file) {
    reply_status(request, file_of(file).file.allocate(mode, static_cast<uint64_t>(offset),
                                                      static_cast<uint64_t>(size)));
}

// Only the file below knows its holes. If it lacks bytes, all of it counts as data.
void serve_lseek(fuse_req_t request, fuse_ino_t /*number*/, off_t offset, int whence,
                 fuse_file_info* file) {
    const OpenedFile& opened = file_of(file);
    if (opened.file.flush().ok()) {
        const off_t found = lseek(opened.descriptor, offset, whence);
        if (found >= 0) {
            fuse_reply_lseek(request, found);
        } else {
            fuse_reply_err(request, errno);
        }
        return;
    }
    const auto size = static_cast<off_t>(opened.file.size());
    if (offset >= size) {
        fuse_reply_err(request, ENXIO);
    } else {
        fuse_reply_lseek(request, whence == SEEK_DATA ? offset : size);
    }
}

// Copies from cache to cache. The kernel asks again for what is left.
void serve_copy(fuse_req_t request, fuse_ino_t /*number*/, off_t offset, fuse_file_info* from,
                fuse_ino_t /*to_number*/, off_t to_offset, fuse_file_info* to, size_t size,
                int /*flags*/) {
    constexpr size_t kCopyMax = 16 << 20;
    const size_t wanted = std::min(size, kCopyMax);
    size_t done = 0;
    while (done < wanted) {
        const size_t part = std::min<size_t>(wanted - done, kRequestSizeMax);
        auto moved = file_of(from).file.read(buffer(), part, static_cast<uint64_t>(offset) + done);
        if (moved.ok() && moved.value() == 0) break;
        if (moved.ok())
            moved = file_of(to).file.write(buffer(), moved.value(),
                                           static_cast<uint64_t>(to_offset) + done);
        if (!moved.ok()) {
            if (done > 0) break;
            reply_status(request, moved.status());
            return;
        }
        done += moved.value();
    }
    fuse_reply_write(request, done);
}

}  // namespace

void add_file_functions(fuse_lowlevel_ops* functions) {
    functions->open = serve_open;
    functions->create = serve_create;
    functions->release = serve_release;
    functions->read = serve_read;
    functions->write = serve_write;
    functions->flush = serve_flush;
    functions->fsync = serve_fsync;
    functions->fallocate = serve_fallocate;
    functions->lseek = serve_lseek;
    functions->copy_file_range = serve_copy;
}

}  // namespace penstock::cache_service
