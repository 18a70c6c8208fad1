// Chooses the kind of storage. Any thread.
#include "storage/storage.h"

#include "storage/posix.h"
#include "storage/ram.h"
#include "storage/routed.h"
#include "storage/throttle.h"
#include "storage/uring.h"

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
