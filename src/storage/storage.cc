// Chooses the kind of storage. Any thread.
#include "storage/storage.h"
#include "storage/descriptor_file.h"

#include <fcntl.h>

#include "base/check.h"
#include "storage/posix.h"
#include "storage/ram.h"
#include "storage/routed.h"
#include "storage/throttle.h"
#include "storage/uring.h"

namespace penstock::storage {

Status File::sync(bool /*data_only*/) {
    return {EOPNOTSUPP, "fsync", "this file cannot be synced"};
}

Status File::truncate(uint64_t /*size*/) {
    return {EOPNOTSUPP, "ftruncate", "this file cannot be cut"};
}

Completion Queue::submit_and_reap(const Operation& operation) {
    Completion completion;
    if (submit({&operation, 1}) != 1 || reap({&completion, 1}, true) != 1)
        PENSTOCK_CHECK(false, "an idle queue takes an operation and completes it");
    return completion;
}

Result<std::shared_ptr<File>> borrow(int descriptor) { return DescriptorFile::borrow(descriptor); }

Result<std::shared_ptr<File>> Storage::adopt(int /*descriptor*/) {
    return Status{EOPNOTSUPP, "adopt", "this storage opens files by name only"};
}

Status Storage::unlink(const std::string& /*path*/) {
    return {EOPNOTSUPP, "unlink", "names here cannot be taken away"};
}

Status check_open_flags(int flags) {
    const int access = flags & O_ACCMODE;
    if ((flags & ~(O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND)) != 0 ||
        (access != O_RDONLY && access != O_WRONLY && access != O_RDWR))
        return {EINVAL, "open", "a flag that files are not opened with"};
    if ((flags & O_TRUNC) != 0 && access == O_RDONLY)
        return {EINVAL, "open", "only a file that may be written can be cut"};
    if ((flags & O_APPEND) != 0 && access == O_RDONLY)
        return {EINVAL, "open", "only a file that may be written can be appended to"};
    if ((flags & O_EXCL) != 0 && (flags & O_CREAT) == 0)
        return {EINVAL, "open", "O_EXCL says nothing without O_CREAT"};
    return {};
}

Status Storage::check_depth(uint32_t depth) {
    if (depth >= 1 && depth <= kQueueDepthMax) return {};
    return {EINVAL, "make_queue", "the depth of a storage queue is 1 to 4096"};
}

const char* name(Kind kind) {
    switch (kind) {
        case Kind::kAuto:
            return "auto";
        case Kind::kPosix:
            return "posix";
        case Kind::kUring:
            return "uring";
        case Kind::kRam:
            return "ram";
        case Kind::kThrottle:
            return "throttle";
    }
    return "unknown";
}

Result<std::shared_ptr<Storage>> make_storage(const Options& options) {
    switch (options.kind) {
        case Kind::kAuto:
            return open_routed();
        case Kind::kPosix:
            return open_posix();
        case Kind::kUring:
            return open_uring();
        case Kind::kRam:
            return std::shared_ptr<Storage>(std::make_shared<RamStorage>());
        case Kind::kThrottle: {
            if (options.under == Kind::kThrottle) {
                return Status{EINVAL, "make_storage", "a throttle slows another kind of storage"};
            }
            Options under = options;
            under.kind = options.under;
            Result<std::shared_ptr<Storage>> slowed = make_storage(under);
            if (!slowed.ok()) return slowed;
            return open_throttle(std::move(slowed.value()), options.throttle);
        }
    }
    return Status{EINVAL, "make_storage", "no such kind of storage"};
}

}  // namespace penstock::storage
