// Requests on open files: their bytes go through the cache.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "served.h"

namespace penstock::cache_service {
namespace {

struct OpenedFile {
    CachedFile file;
};

OpenedFile& file_of(const fuse_file_info* file) { return *reinterpret_cast<OpenedFile*>(file->fh); }

void reply_status(fuse_req_t request, const Status& status) {
    fuse_reply_err(request, status.error_number());
}

// Returns memory of this thread for the bytes of one request.
std::byte* buffer() {
    thread_local const std::unique_ptr<std::byte[]> memory(new std::byte[kRequestSizeMax]);
    return memory.get();
}

void serve_open(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    const Node& node = node_of(request, number);
    if ((file->flags & O_ACCMODE) != O_RDONLY) {
        fuse_reply_err(request, EROFS);
        return;
    }
    const int descriptor = open(node.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    auto adopted = served(request).cache.adopt(descriptor);
    if (!adopted.ok()) {
        close(descriptor);
        reply_status(request, adopted.status());
        return;
    }
    auto opened = std::make_unique<OpenedFile>(std::move(adopted.value()));
    file->fh = reinterpret_cast<uint64_t>(opened.get());
    if (fuse_reply_open(request, file) == 0) (void)opened.release();
}

void serve_release(fuse_req_t request, fuse_ino_t /*number*/, fuse_file_info* file) {
    delete &file_of(file);
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

}  // namespace

void add_file_functions(fuse_lowlevel_ops* functions) {
    functions->open = serve_open;
    functions->release = serve_release;
    functions->read = serve_read;
}

}  // namespace penstock::cache_service
