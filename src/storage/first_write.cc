#include "storage/first_write.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "storage/system_calls.h"

namespace penstock::storage {
namespace {

using Inode = std::pair<uint64_t, uint64_t>;

constexpr size_t kSweepMin = 64;

}  // namespace

std::shared_ptr<FirstWrite> FirstWrite::of(uint64_t device, uint64_t inode) {
    // Never destroyed: other threads may open files while the program ends.
    static auto& mutex = *new std::mutex;  // guards the map
    static auto& all = *new std::map<Inode, std::weak_ptr<FirstWrite>>;
    static size_t sweep_at = kSweepMin;  // so that an open looks at few on average
    const std::lock_guard lock(mutex);
    if (all.size() >= sweep_at) {
        std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
        sweep_at = std::max(kSweepMin, 2 * all.size());
    }
    std::weak_ptr<FirstWrite>& known = all[{device, inode}];
    std::shared_ptr<FirstWrite> first = known.lock();
    if (first == nullptr) {
        first = std::make_shared<FirstWrite>();
        known = first;
    }
    return first;
}

// fallocate waits for all direct I/O of a file, on ext4, XFS and btrfs alike. It punches a hole so
// far behind the end that no file grows to there. That changes nothing but the times, which the
// write is about to change anyway. If fallocate fails, there is no such wait.
void FirstWrite::wait_for_direct_writes(int descriptor) {
    constexpr off_t kFarEnough[] = {off_t{1} << 62, off_t{1} << 53, off_t{1} << 43};
    constexpr off_t kRoom = off_t{1} << 42;
    struct stat now {};
    if (system::fstat(descriptor, &now) != 0) return;
    for (const off_t offset : kFarEnough) {  // EFBIG: beyond the file system's largest file
        if (now.st_size > offset - kRoom) return;
        constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        if (system::fallocate(descriptor, kMode, offset, 4096) == 0 || errno != EFBIG) return;
    }
}

}  // namespace penstock::storage
