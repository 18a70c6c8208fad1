// What users of a file cache see of a file besides its bytes: size and times, which are ahead of
// the file below while it is dirty, and stay as they are when it is written back.
#include <fcntl.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "file/cache_of_files.h"
#include "penstock/file_cache.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kBlock = 512;  // the unit of st_blocks

int64_t to_ns(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }
timespec to_timespec(int64_t time_ns) {
    // Times before 1970 round down.
    const int64_t seconds = (time_ns - (time_ns % kSecond < 0 ? kSecond - 1 : 0)) / kSecond;
    return {seconds, time_ns - seconds * kSecond};
}

storage::Identity identity_of(const struct stat& state, uint64_t generation) {
    return {.device = state.st_dev,
            .inode = state.st_ino,
            .generation = generation,
            .size = static_cast<uint64_t>(state.st_size),
            .mtime_ns = to_ns(state.st_mtim),
            .ctime_ns = to_ns(state.st_ctim)};
}

void set_mtime(int descriptor, int64_t mtime_ns) {
    const timespec times[] = {{0, UTIME_OMIT}, to_timespec(mtime_ns)};
    // The owner of the file may do so. For others it gets the time of the write-back.
    (void)storage::system::utimensat(descriptor, nullptr, times, 0);
}

// Returns whether an NFS server knows one name of a file: the client's own.
bool has_no_other_name(int descriptor) {
    struct statx state {};
    constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_FORCE_SYNC;
    return storage::system::statx(descriptor, "", kFlags, STATX_NLINK, &state) == 0 &&
           (state.stx_mask & STATX_NLINK) != 0 && state.stx_nlink == 1;
}

}  // namespace

// Records a write. The clock is that of the kernel's file systems.
void CacheOfFiles::note_time(Inode& inode) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    inode.mtime_ns = inode.ctime_ns = to_ns(now);
}

// Takes a change of the file below for the cache's own, and gives the file the time that users see.
// If another program changed it at the same time, that goes unseen.
void CacheOfFiles::note_own_change(Lock& lock, Inode& inode, int descriptor) {
    struct stat state {};
    bool known = false;
    uint64_t changes = 0;
    int64_t mtime_ns = 0;
    do {
        changes = inode.own_changes;
        mtime_ns = inode.mtime_ns;
        lock.unlock();
        extend_log_life();
        if (mtime_ns != 0) set_mtime(descriptor, mtime_ns);
        known = storage::system::fstat(descriptor, &state) == 0;
        lock.lock();
    } while (inode.own_changes != changes || inode.mtime_ns != mtime_ns);
    ++inode.own_changes;
    inode.racy = !known;
    if (known) inode.below = identity_of(state, inode.below.generation);
    tell_readers(inode);
}

// The same for a change that gave the file below its time.
void CacheOfFiles::note_new_bytes(Lock& lock, Inode& inode, int descriptor) {
    inode.mtime_ns = inode.ctime_ns = 0;
    note_own_change(lock, inode, descriptor);
    inode.mtime_ns = std::max(inode.mtime_ns, inode.below.mtime_ns);
    inode.ctime_ns = std::max(inode.ctime_ns, inode.below.ctime_ns);
}

// The same for blocks that storage has given the file.
void CacheOfFiles::note_reserved(Inode& inode, const struct stat& state) {
    ++inode.own_changes;
    inode.below = identity_of(state, inode.below.generation);
    tell_readers(inode);
}

Inode* CacheOfFiles::known(const struct stat& below) {
    const auto found = inodes_.find({below.st_dev, below.st_ino});
    return found == inodes_.end() ? nullptr : found->second.get();
}

void CacheOfFiles::correct(const Inode& inode, struct stat* out) const {
    const uint64_t dirty = chunks_.dirty_of(inode.id) * chunk_size();
    const auto blocks = static_cast<uint64_t>(out->st_blocks) + dirty / kBlock;
    if (dirty > 0 || inode.writing > 0) {
        out->st_size = static_cast<off_t>(inode.size);
        const uint64_t whole = (inode.size + kBlock - 1) / kBlock;
        out->st_blocks = static_cast<blkcnt_t>(
            std::max(static_cast<uint64_t>(out->st_blocks), std::min(whole, blocks)));
    }
    if (inode.space.reaches_beyond(inode.size)) {  // which goes back
        const auto ahead = static_cast<blkcnt_t>((inode.space.reserved_end - inode.size) / kBlock);
        out->st_blocks -= std::min(out->st_blocks, ahead);
    }
    if (inode.mtime_ns != 0) out->st_mtim = to_timespec(inode.mtime_ns);
    if (inode.ctime_ns != 0) out->st_ctim = to_timespec(inode.ctime_ns);
}

Status CacheOfFiles::stat(int descriptor, struct stat* out) {
    Lock lock(mutex_, std::defer_lock);
    const Inode* seen = nullptr;
    uint64_t changes = 0;
    for (;;) {
        if (storage::system::fstat(descriptor, out) != 0)
            return {errno, "fstat", "the file below cannot be described"};
        lock.lock();
        Inode* inode = known(*out);
        if (inode == nullptr) return {};
        const storage::Identity identity = identity_of(*out, inode->below.generation);
        const bool ahead = chunks_.dirty_of(inode->id) > 0 || inode->writing > 0;
        if (!ahead && inode->below != identity) {
            // Another program has changed it, or this cache after it was described.
            if (seen != inode || inode->own_changes != changes) {
                seen = inode;
                changes = inode->own_changes;
                lock.unlock();
                continue;
            }
            compare(*inode, identity);
        }
        correct(*inode, out);
        return {};
    }
}

Status CacheOfFiles::change(int descriptor, bool sets_mtime, const std::function<int()>& change) {
    struct stat before {
    }, after{};
    const bool described = storage::system::fstat(descriptor, &before) == 0;
    const Nameless nameless_before = nameless(descriptor);
    bool own = false;
    {
        const Lock lock(mutex_);
        const Inode* inode = described ? known(before) : nullptr;
        own = inode != nullptr && (chunks_.dirty_of(inode->id) > 0 || inode->writing > 0 ||
                                   inode->below == identity_of(before, inode->below.generation));
    }
    // A name may go that comes back when power is lost: then the file must have what was synced.
    Inode* const kept = log_ == nullptr || sets_mtime || !described ? nullptr : hold_log(before);
    extend_log_life();
    const int error = change();
    if (kept != nullptr) release_log(*kept);
    if (error != 0) return {error, "file cache", "the file below cannot be changed so"};
    if (!described || storage::system::fstat(descriptor, &after) != 0) return {};
    const Nameless nameless_now = nameless(descriptor);
    const bool is_in_the_way = nameless_now == Nameless::kKeptByNfs;
    // A file that has such a name already may be one that a program made so.
    const bool gone = is_in_the_way
                          ? nameless_before == Nameless::kNo && has_no_other_name(descriptor)
                          : nameless_now == Nameless::kYes;
    Lock lock(mutex_);
    Inode* inode = known(after);
    if (inode == nullptr) return {};
    ++inode->handles;  // it stays known meanwhile
    ++inode->log.unlogged;
    // It has got a name. The next sync makes that durable, so it goes to storage.
    if (nameless_before == Nameless::kYes && nameless_now == Nameless::kNo &&
        inode->log.file.inode != 0)
        inode->log.in_storage = inode->log.nameless = false;
    if (own) {
        ++inode->own_changes;
        inode->below = identity_of(after, inode->below.generation);
        inode->ctime_ns = inode->below.ctime_ns;
        if (sets_mtime) inode->mtime_ns = inode->below.mtime_ns;
        tell_readers(*inode);
    }
    if (gone && inode->handles == 1 && is_for_nobody(*inode, nameless_now)) forget_bytes(*inode);
    if (gone && log_ != nullptr) {
        lock.unlock();
        unlink_in_log(*inode);
        lock.lock();
    }
    if (is_in_the_way && inode->handles == 1) {
        // The folder cannot be removed until the file is closed. It may be open by its other name.
        for (uint64_t left = chunks_.dirty_of(inode->id); left > 0; --left)
            if (!write_back(lock, inode)) break;
        while (inode->writing > 0) changed_.wait(lock);
    }
    if (--inode->handles == 0) close_idle_files(lock, *inode);
    return {};
}

// Forgets the bytes of a file whose last name is gone, if its last handle is being closed.
void CacheOfFiles::drop_unlinked(Lock& lock, Inode& inode) {
    const int writer = inode.writer.descriptor, reader = inode.reader.descriptor;
    lock.unlock();
    const Nameless now = nameless(writer >= 0 ? writer : reader);
    // The folder cannot be removed until it is closed, so it is written back now.
    if (now == Nameless::kKeptByNfs) (void)sync_now(inode, false, false);
    lock.lock();
    if (now == Nameless::kYes && inode.handles == 1 && is_for_nobody(inode, now))
        forget_bytes(inode);
}

// Returns whether no program can read a file without a name and without a handle.
bool CacheOfFiles::is_for_nobody(const Inode& inode, Nameless nameless) const {
    if (inode.was_granted) return false;
    return nameless == Nameless::kKeptByNfs || !options_.reopens_nameless;
}

void CacheOfFiles::forget_nameless(int descriptor) {
    struct stat state {};
    if (storage::system::fstat(descriptor, &state) != 0 || state.st_nlink != 0) return;
    Lock lock(mutex_);
    Inode* const inode = known(state);
    if (inode == nullptr || inode->handles > 0 || inode->was_granted) return;
    forget_bytes(*inode);
    close_idle_files(lock, *inode);
}

void CacheOfFiles::forget_bytes(Inode& inode) {
    drop_chunks(inode, 0, ~0ull);
    inode.space.reserved_end = 0;  // storage frees all
    if (chunks_.dirty_count() == 0) dirty_since_ns_ = 0;
    inode.error = {};
    inode.error_number = 0;
    inode.error_told = true;
    end_failure(inode);
    inode.mtime_ns = inode.ctime_ns = 0;
    inode.racy = true;  // a new file may get its number at once
    tell_readers(inode);
    changed_.notify_all();
}

Status CacheOfFiles::allocate(Inode& inode, const FileBelow& below, int mode, uint64_t offset,
                              uint64_t size) {
    Lock lock(mutex_, std::defer_lock);
    for (;;) {
        // Nothing that the log has of the file may come back behind this.
        Status status = log_ == nullptr ? sync_now(inode, false, false)
                                        : sync_to_storage(inode, false);
        if (!status.ok()) return status;
        lock.lock();
        while (inode.writing > 0) changed_.wait(lock);
        begin_cutting(lock, inode);
        while (inode.writing > 0) changed_.wait(lock);
        if (chunks_.dirty_of(inode.id) == 0) break;
        end_cutting(inode, ~0ull);
        lock.unlock();
    }
    ++inode.writing;
    lock.unlock();
    struct stat state {};
    int error = 0;
    if (storage::system::fallocate(below.descriptor, mode, static_cast<off_t>(offset),
                                   static_cast<off_t>(size)) != 0)
        error = errno;
    const bool described = storage::system::fstat(below.descriptor, &state) == 0;
    lock.lock();
    const bool moves = (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) != 0;
    if (size > 0)
        drop_chunks(inode, offset / chunk_size(),
                    moves ? ~0ull : (offset + size - 1) / chunk_size());
    if (described) set_size(inode, static_cast<uint64_t>(state.st_size));
    ++inode.log.unlogged;
    note_new_bytes(lock, inode, below.descriptor);
    --inode.writing;
    end_cutting(inode, 0);
    return error == 0 ? Status{} : Status{error, "fallocate", "storage cannot do so"};
}

Status CacheOfFiles::refresh(Inode& inode, const FileBelow& below) {
    constexpr int kTriesMax = 16;
    for (int tries = 0; tries < kTriesMax; ++tries) {
        if (Status status = sync_now(inode, false, false); !status.ok()) return status;
        uint64_t version = 0;
        {
            const std::lock_guard lock(mutex_);
            version = inode.version;
            inode.racy = true;  // so its times tell nothing
        }
        if (Status status = revalidate(inode, below); !status.ok()) return status;
        if (version_of(inode) != version) return {};
    }
    return {EBUSY, "file cache", "the file is being written all the time"};
}

uint64_t CacheOfFiles::version_of(const Inode& inode) const {
    const Lock lock(mutex_);
    return inode.version;
}

}  // namespace penstock::file
