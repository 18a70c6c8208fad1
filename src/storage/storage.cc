// Chooses the kind of storage. Any thread.
#include "storage/storage.h"

#include "storage/posix.h"

namespace penstock::storage {

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
        case Kind::kPosix:
            return open_posix();
        default:
            return Status{ENOTSUP, "make_storage", "this kind of storage is not built"};
    }
}

}  // namespace penstock::storage
