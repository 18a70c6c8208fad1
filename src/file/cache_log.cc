// Makes writes of a file cache durable in a log on a quick disk (write_log.h).
//
// Chunks stay dirty until they are written back, as without a log. A sync appends what is dirty in
// its file to the log, unless that is there already, and makes the log durable. Whatever is written
// back to storage is appended first, so that a sync never waits for storage. Every few seconds a
// thread brings all that one half of the log has to storage, makes it durable there, and empties
// the half. A file is synced in storage itself, and its records are forgotten, where the log cannot
// tell all: at its first sync, because the file itself may be new; after changes that are not in
// the log; and where the log is full.
//
// A chunk that was logged is marked under the lock before its bytes are read, and each write clears
// the mark: so bytes that the log lacks are never taken for logged. Locks: that of the log is taken
// before mutex_.
#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/clock.h"
#include "base/torn_reads.h"
#include "file/cache_of_files.h"
#include "file/file_birth.h"
#include "file/log_marker.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;
constexpr auto kRetryEvery = std::chrono::seconds(1);
constexpr Status kLost{EIO, "fsync", "storage has lost bytes; they are in the log of the tier"};

}  // namespace

// Knows the file of an inode for the log. Another file may have had its number before.
void CacheOfFiles::meet_in_log(Inode& inode, const FileBelow& below) {
    LoggedFile file;
    const bool known = describe_birth(below.descriptor, &file);
    const bool goes_with_a_crash = nameless(below.descriptor) == Nameless::kYes;
    const std::lock_guard lock(mutex_);
    if (known && inode.log.file != file) {
        LogState fresh;
        fresh.file = file;
        fresh.held = inode.log.held;
        fresh.appending = inode.log.appending;
        inode.log = fresh;
    }
    if (!known || goes_with_a_crash) inode.log.nameless = true;  // it is synced in storage alone
}

// Returns whether what is written to a file goes to the log.
bool CacheOfFiles::logs(const Inode& inode) const {
    return log_ != nullptr && !log_ended_ && !log_broken_ && !inode.log.nameless &&
           inode.log.in_storage && inode.log.held == 0;
}

// Marks chunks whose dirty bytes the log lacks, and returns them.
std::vector<CacheOfFiles::ToLog> CacheOfFiles::take_unlogged(Inode& inode,
                                                             std::span<const ChunkId> chunks) {
    std::vector<ToLog> pieces;
    if (!logs(inode)) return pieces;
    for (const ChunkId id : chunks) {
        const chunk_cache::Chunk& chunk = chunks_.chunk(id);
        const bool writing = chunk.state == chunk_cache::State::kWriting;
        const chunk_cache::Range range = writing && !chunk.again ? chunk.writing : chunk.dirty;
        if (range.empty() || logged_[id]) continue;
        logged_[id] = true;
        pieces.push_back({id, range});
        chunks_.pin(id);
    }
    ++inode.log.appending;
    return pieces;
}

// Appends chunks to the log, without the lock. end_logging() must follow.
Status CacheOfFiles::log_chunks(Inode& inode, std::span<const ToLog> pieces) {
    if (pieces.empty()) return {};
    const auto appending = log_->begin();
    std::vector<std::byte> bytes;
    std::string path;
    for (const ToLog& piece : pieces) {
        LogRecord record;
        {
            const std::lock_guard lock(mutex_);
            const chunk_cache::Chunk& chunk = chunks_.chunk(piece.id);
            if (path.empty()) path = path_in_log(inode);
            record.file = inode.log.file;
            record.size = inode.size;
            record.offset = chunk.number * chunk_size() + piece.range.begin;
            const uint64_t end = std::min(chunk.number * chunk_size() + piece.range.end,
                                          inode.size);
            // What was cut off meanwhile must not come back.
            if (chunk.stale || inode.log.nameless || record.offset >= end) continue;
            bytes.resize(end - record.offset);
            inode.log.in[static_cast<size_t>(log_->active())] = true;
            if (log_since_ns_ == 0) log_since_ns_ = base::monotonic_ns();
        }
        Status status;
        {
            // Writers may change the bytes meanwhile, so the log gets a copy. They clear the
            // chunk's mark: then it is logged again.
            const base::TornReads torn;
            status = memory_.copy(piece.id / kSlabChunks, bytes.data(),
                                  address(piece.id) + piece.range.begin, bytes.size());
        }
        if (status.ok()) status = log_->append(record, path, bytes);
        if (!status.ok()) return status;
        const std::lock_guard lock(mutex_);
        inode.log.last = log_->sequence();
        counts_.tier_bytes_logged += bytes.size();
    }
    return {};
}

void CacheOfFiles::end_logging(Inode& inode, std::span<const ToLog> pieces, const Status& status) {
    for (const ToLog& piece : pieces) chunks_.unpin(piece.id);
    if (!status.ok()) ++inode.log.unlogged;
    --inode.log.appending;
    changed_.notify_all();
}

// Returns the path of a file below the folder of the log, as far as it is known.
std::string CacheOfFiles::path_in_log(const Inode& inode) const {
    const int file = inode.writer.descriptor >= 0 ? inode.writer.descriptor
                                                  : inode.reader.descriptor;
    std::string path(LogRecord::kPathMax, '\0');
    const ssize_t size = storage::system::readlink(
        ("/proc/self/fd/" + std::to_string(file)).c_str(), path.data(), path.size());
    path.resize(size < 0 ? 0 : static_cast<size_t>(size));
    const std::string begin = options_.tier_root == "/" ? "/" : options_.tier_root + "/";
    return path.starts_with(begin) ? path.substr(begin.size()) : std::string();
}

// Finds changes of attributes that did not pass the cache: of a program with the preload library,
// say. The kernel knows those of this machine, so storage is not asked.
void CacheOfFiles::look_for_changes(Lock& lock, Inode& inode) {
    const int file = inode.writer.descriptor >= 0 ? inode.writer.descriptor
                                                  : inode.reader.descriptor;
    struct statx state {};
    lock.unlock();
    const bool known = storage::system::statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                                              STATX_CTIME | STATX_MODE | STATX_UID | STATX_GID,
                                              &state) == 0;
    lock.lock();
    if (!known) return;
    const LogState::Attributes found{
        state.stx_ctime.tv_sec * int64_t{1'000'000'000} + state.stx_ctime.tv_nsec, state.stx_mode,
        state.stx_uid, state.stx_gid};
    const LogState::Attributes before = std::exchange(inode.log.synced, found);
    const bool same = found.mode == before.mode && found.user == before.user &&
                      found.group == before.group;
    // A write-back changes the time too.
    const bool own = inode.writing > 0 || found.ctime_ns == inode.below.ctime_ns;
    if (!same || (!own && found.ctime_ns != before.ctime_ns)) ++inode.log.unlogged;
}

// Makes a file durable in the log. Returns false if storage must do so instead.
bool CacheOfFiles::sync_to_log(Lock& lock, Inode& inode, bool data_only) {
    if (!data_only) look_for_changes(lock, inode);
    collect(inode.id);
    while (inode.truncating) changed_.wait(lock);
    if (!logs(inode) || inode.log.unlogged != inode.log.stored) return false;
    std::vector<ChunkId> chunks;
    for (ChunkId id = chunks_.first_of(inode.id); id != kNone; id = chunks_.next_of(id))
        if (chunks_.chunk(id).state == chunk_cache::State::kDirty) chunks.push_back(id);
    // The others are being written back. They may have been written meanwhile.
    if (chunks.size() < chunks_.dirty_of(inode.id))
        for (ChunkId id = chunks_.first_of(inode.id); id != kNone; id = chunks_.next_of(id))
            if (chunks_.chunk(id).again) chunks.push_back(id);
    const auto pieces = take_unlogged(inode, chunks);
    lock.unlock();
    const Status appended = log_chunks(inode, pieces);
    lock.lock();
    end_logging(inode, pieces, appended);
    // What another thread writes back may be on its way to the log.
    while (inode.log.appending > 0) changed_.wait(lock);
    if (inode.log.unlogged != inode.log.stored) return false;
    lock.unlock();
    const Status durable = log_->make_durable();
    lock.lock();
    if (durable.ok()) return true;
    ++inode.log.unlogged;
    log_broken_ = true;
    return false;
}

// Appends that the records of a file up to a sequence are not to be replayed, and makes that
// durable. Without the lock.
Status CacheOfFiles::forget_in_log(Inode& inode, uint64_t sequence) {
    {
        const auto appending = log_->begin();
        LogRecord record;
        record.offset = sequence;
        record.kind = LogRecord::Kind::kForget;
        {
            const std::lock_guard lock(mutex_);
            record.file = inode.log.file;
        }
        if (Status status = log_->append(record, {}, {}); !status.ok()) return status;
    }
    return log_->make_durable();
}

// Makes a file durable in storage, and lets the log forget it.
Status CacheOfFiles::sync_to_storage(Inode& inode, bool data_only) {
    uint64_t sequence = 0;
    {
        Lock lock(mutex_);
        if (inode.log.lost) return kLost;
        look_for_changes(lock, inode);  // those of before are durable then
    }
    if (Status status = store(inode, true, data_only, &sequence); !status.ok()) return status;
    bool live = false, broken = false;
    {
        const std::lock_guard lock(mutex_);
        broken = log_broken_;
        // Of a log that is broken and cannot be ended any record may come back.
        live = (inode.log.is_logged() || broken) && !log_ended_;
    }
    if (live && (broken || !forget_in_log(inode, sequence).ok())) return end_broken_log();
    const std::lock_guard lock(mutex_);
    inode.log.in_storage = !inode.log.nameless;
    if (inode.log.last <= sequence && inode.log.appending == 0) inode.log.forget();
    return {};
}

// Notes in the log that a file is about to be cut off or extended. Without the lock. On an error
// records of the file may be replayed behind its new end.
Status CacheOfFiles::truncate_in_log(Inode& inode, uint64_t size) {
    bool live = false;
    Status status;
    {
        const auto appending = log_->begin();
        LogRecord record;
        record.size = size;
        record.kind = LogRecord::Kind::kTruncate;
        std::string path;
        {
            const std::lock_guard lock(mutex_);
            live = inode.log.is_logged();
            if (!logs(inode)) {
                ++inode.log.unlogged;
                return live && !log_ended_ ? Status{EIO, "tier", "its log cannot be used"}
                                           : Status{};
            }
            record.file = inode.log.file;
            path = path_in_log(inode);
        }
        status = log_->append(record, path, {});
        const std::lock_guard lock(mutex_);
        if (status.ok()) {
            inode.log.in[static_cast<size_t>(log_->active())] = true;
            inode.log.last = log_->sequence();
            if (log_since_ns_ == 0) log_since_ns_ = base::monotonic_ns();
        } else {
            ++inode.log.unlogged;
        }
    }
    // What is durable in the log must not come back behind the new end.
    if (status.ok() && live) status = log_->make_durable();
    return live ? status : Status{};
}

// Keeps a file out of the log until release_log(), and brings what the log has of it to storage.
// Returns null if the cache does not know the file.
Inode* CacheOfFiles::hold_log(const struct stat& below) {
    Inode* inode = nullptr;
    {
        Lock lock(mutex_);
        inode = known(below);
        if (inode == nullptr) return nullptr;
        ++inode->handles;  // it stays open meanwhile
        ++inode->log.held;
        while (inode->log.appending > 0) changed_.wait(lock);
        if (!inode->log.is_logged()) return inode;
    }
    // If that fails, the log keeps what it has.
    (void)sync_to_storage(*inode, false);
    return inode;
}

void CacheOfFiles::release_log(Inode& inode) {
    Lock lock(mutex_);
    --inode.log.held;
    if (--inode.handles == 0) close_idle_files(lock, inode);
}

// The last name of a file is gone. Without the lock.
void CacheOfFiles::unlink_in_log(Inode& inode) {
    uint64_t sequence = 0;
    bool live = false;
    {
        Lock lock(mutex_);
        inode.log.nameless = true;
        inode.log.in_storage = false;
        while (inode.log.appending > 0) changed_.wait(lock);
        live = inode.log.is_logged() && !log_ended_;
        sequence = inode.log.last;
    }
    if (live && !forget_in_log(inode, sequence).ok()) return;
    const std::lock_guard lock(mutex_);
    inode.log.forget();
}

// ---- Bringing it to storage

// Brings what a half of the log has of a file to storage.
Status CacheOfFiles::store_logged(Lock& lock, Inode& inode, size_t half) {
    if (!inode.log.in[half] || inode.log.brought[half]) return {};
    if (inode.log.lost) return kLost;
    ++inode.handles;  // it stays open meanwhile
    collect(inode.id);
    // A write-back that began before may lack bytes that the log has.
    while (inode.writing > 0) changed_.wait(lock);
    // What is dirty now, and no more: a writer may be as fast as this thread. The oldest goes
    // first, so what is written meanwhile does not come before it.
    for (uint64_t left = chunks_.dirty_of(inode.id); left > 0; --left)
        if (!write_back(lock, &inode)) break;  // others have begun what was left
    while (inode.writing > 0) changed_.wait(lock);
    Status status = failure_of(inode.id);
    const uint64_t unlogged = inode.log.unlogged;
    const File file = inode.writer.descriptor >= 0 ? inode.writer.file : inode.reader.file;
    if (status.ok()) {
        lock.unlock();
        status = file.closed() ? Status{} : file.fsync(false);
        lock.lock();
        if (status.ok()) {
            inode.log.brought[half] = true;
            inode.log.stored = std::max(inode.log.stored, unlogged);
        } else {
            inode.log.lost = true;
            note_error(inode, status);
        }
    }
    if (--inode.handles == 0) close_idle_files(lock, inode);
    return status;
}

// Brings all that a half of the log has to storage.
Status CacheOfFiles::store_all_logged(Lock& lock, size_t half) {
    std::vector<std::pair<uint64_t, uint64_t>> files;
    for (const auto& [key, inode] : inodes_)
        if (inode != nullptr && inode->log.in[half]) files.push_back(key);
    Status status;
    for (const auto& key : files) {
        const auto found = inodes_.find(key);
        if (found == inodes_.end() || found->second == nullptr) continue;
        if (Status one = store_logged(lock, *found->second, half); !one.ok()) status = one;
    }
    return status;
}

// Notes that a half has been emptied. Until then a sync in storage has the log forget the file: a
// crash would bring older bytes back.
void CacheOfFiles::forget_half(size_t half) {
    for (const auto& [key, inode] : inodes_) {
        if (inode == nullptr || !inode->log.in[half]) continue;
        inode->log.in[half] = inode->log.brought[half] = false;
        if (inode->handles == 0) unused_.push_back(inode->id);
    }
}

// Brings one half of the log to storage and empties it. Requires drain_mutex_.
Status CacheOfFiles::drain_half() {
    Lock lock(mutex_);
    if (log_ended_) return {};
    if (draining_half_ < 0) {
        lock.unlock();
        if (log_->size() == 0) return {};
        const auto half = log_->turn();
        lock.lock();
        if (!half.ok()) return half.status();
        draining_half_ = half.value();
        log_since_ns_ = 0;
    }
    const auto half = static_cast<size_t>(draining_half_);
    Status status = store_all_logged(lock, half);
    lock.unlock();
    if (status.ok()) status = log_->reset(draining_half_);
    lock.lock();
    if (!status.ok()) return status;
    draining_half_ = -1;
    forget_half(half);
    return status;
}

// The same, without a lock. A log that fails then is ended.
Status CacheOfFiles::drain_log() {
    const std::lock_guard alone(drain_mutex_);
    const Status status = drain_half();
    // Storage may take later what it refused, but the log would fail for ever.
    return log_->failure().ok() ? status : give_up_log();
}

Status CacheOfFiles::end_broken_log() {
    const std::lock_guard alone(drain_mutex_);
    return give_up_log();
}

void CacheOfFiles::extend_log_life() {
    if (log_ != nullptr) (void)log_->extend_life();
}

// Ends the use of a log that cannot be written: all that it has goes to storage, and it is removed.
// Requires drain_mutex_. On an error the log counts as before.
Status CacheOfFiles::give_up_log() {
    const std::string why = log_->failure().message();
    Lock lock(mutex_);
    if (log_ended_) return {};
    log_broken_ = true;  // no file begins to use it
    for (const size_t half : {0u, 1u})
        if (Status status = store_all_logged(lock, half); !status.ok()) return status;
    lock.unlock();
    // From now on the log is older than storage. If its disk is back later, that must be known.
    if (Status status = remove_marker(log_root_->get()); !status.ok()) return status;
    for (const int half : {0, 1}) (void)log_->reset(half);
    (void)log_->remove();
    lock.lock();
    log_ended_ = true;
    draining_half_ = -1;
    for (const size_t half : {0u, 1u}) forget_half(half);
    const std::string line = why + "; writes go to storage";
    counts_.tier_log_error = line;
    lock.unlock();
    if (options_.log_ended != nullptr) options_.log_ended(line);
    return {};
}

// Ends a log in good order. Errors: those of storage; then the log counts as before.
Status CacheOfFiles::end_log() {
    if (log_ == nullptr) return {};
    const std::lock_guard alone(drain_mutex_);
    {
        Lock lock(mutex_);
        if (log_ended_) return {};
        log_broken_ = true;  // nothing new goes there
        const auto appends = [](const auto& one) {
            return one.second != nullptr && one.second->log.appending > 0;
        };
        while (std::ranges::any_of(inodes_, appends)) changed_.wait(lock);
    }
    Status status;
    for (int i = 0; i < 2 && status.ok(); ++i) status = drain_half();  // one may be under way
    if (!log_->failure().ok()) return give_up_log();
    if (status.ok()) status = remove_marker(log_root_->get());
    if (status.ok()) (void)log_->remove();  // without the marker it counts for nothing
    const std::lock_guard lock(mutex_);
    log_ended_ = status.ok();
    log_broken_ = false;
    return status;
}

// The thread that drains the log.
void CacheOfFiles::drain() {
    Lock lock(mutex_);
    auto pause = std::chrono::milliseconds(kLookEvery);
    while (!stopping_) {
        wake_drain_.wait_for(lock, pause);
        if (log_ended_) return;
        const auto age = std::chrono::nanoseconds(
            log_since_ns_ == 0 ? 0 : base::monotonic_ns() - log_since_ns_);
        lock.unlock();
        (void)log_->check_names();
        if (log_->size() > 0) (void)log_->extend_life();
        if (age > options_.dirty_age || log_->size() > log_->size_max() / 2 ||
            draining_half_ >= 0 || !log_->failure().ok())
            pause = drain_log().ok() ? kLookEvery : kRetryEvery;
        lock.lock();
    }
}

}  // namespace penstock::file
