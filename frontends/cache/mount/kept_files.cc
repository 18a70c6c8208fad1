#include "kept_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>

namespace penstock::cache_service {

void KeptFiles::keep(const Key& key, const OpenedFile& opened) {
    std::list<Entry> closed;  // after the lock: it may wait for storage
    const std::lock_guard lock(mutex_);
    if (opened.file.use().is_open_for_writing) return;
    if (const auto old = places_.find(key); old != places_.end())
        closed.splice(closed.end(), files_, old->second);
    files_.emplace_front(key, opened);
    places_[key] = files_.begin();
    if (files_.size() <= count_max_) return;
    places_.erase(files_.back().first);
    closed.splice(closed.end(), files_, std::prev(files_.end()));
}

// Lets the kernel ask storage for the attributes where open(2) would do so. FUSE asks for them
// when they are too old, and no more at an open.
bool KeptFiles::attributes_are_new(dev_t device, int descriptor) {
    bool known = false, is_fuse = false;
    {
        const std::lock_guard lock(mutex_);
        const auto found = is_fuse_.find(device);
        known = found != is_fuse_.end();
        is_fuse = known && found->second;
    }
    if (!known) {
        struct statfs system {};
        is_fuse = fstatfs(descriptor, &system) == 0 && system.f_type == FUSE_SUPER_MAGIC;
        const std::lock_guard lock(mutex_);
        is_fuse_[device] = is_fuse;
    }
    struct statx status {};
    constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_FORCE_SYNC;
    return is_fuse || statx(descriptor, "", kFlags, STATX_BASIC_STATS, &status) == 0;
}

std::optional<OpenedFile> KeptFiles::find(const Key& key) {
    std::optional<OpenedFile> found;
    {
        const std::lock_guard lock(mutex_);
        const auto place = places_.find(key);
        if (place == places_.end()) return std::nullopt;
        files_.splice(files_.begin(), files_, place->second);
        found = files_.front().second;
    }
    const uint64_t version = found->file.version();
    if (attributes_are_new(key.first, found->descriptor) && found->file.revalidate().ok() &&
        found->file.version() == version)
        return found;
    drop(key);  // an open tells the file system below to forget its own pages too
    return std::nullopt;
}

void KeptFiles::drop(const Key& key) {
    std::list<Entry> closed;
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(key);
    if (place == places_.end()) return;
    closed.splice(closed.end(), files_, place->second);
    places_.erase(place);
}

void KeptFiles::drop_all() {
    std::list<Entry> closed;
    const std::lock_guard lock(mutex_);
    closed.swap(files_);
    places_.clear();
}

}  // namespace penstock::cache_service
