// Files that programs have open through a mount.
#pragma once

#include <cerrno>

#include "served.h"

namespace penstock::cache_service {

struct FileHandle : Handle {
    OpenedFile opened;
};

inline FileHandle& handle_of(const fuse_file_info* file) {
    return *reinterpret_cast<FileHandle*>(file->fh);
}
inline OpenedFile& file_of(const fuse_file_info* file) { return handle_of(file).opened; }
inline void reply_status(fuse_req_t request, const Status& status) {
    // After ENOSYS the kernel never asks again, and answers an fsync itself, with success.
    fuse_reply_err(request, status.error_number() == ENOSYS ? EIO : status.error_number());
}
// Opens the file below a node, to be written or not, with no more than that. Returns 0 or an errno.
int open_below(Served* all, const Node& node, const Below& below, bool writes, OpenedFile* opened);
// Takes over a descriptor. Returns 0 or an errno, and then it is closed.
int adopt_below(Served* all, int descriptor, bool writes, OpenedFile* opened);

}  // namespace penstock::cache_service
