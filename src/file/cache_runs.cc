// Moves runs of chunks between the memory of a file cache and the files below: each part by a File
// of the device that has its chunks.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "base/torn_reads.h"
#include "file/cache_of_files.h"
#include "file/device_parts.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;
using chunk_cache::State;

constexpr int kReadTriesMax = 3;  // of chunks whose file is cut off meanwhile

// Bytes that cannot be written have this share of all memory, and a file of it this one.
constexpr uint64_t kShareFailed = 8, kShareFailedFile = 4;

constexpr uint64_t kBegunMin = 512 << 10;  // bytes of a run for which a disk is worth starting

}  // namespace

// Reads [begin, end) of a file into the chunks of a run, without the lock. Returns how many bytes
// arrived: fewer if the file ends before, or a part of it, and then nothing tells which are there.
Result<uint64_t> CacheOfFiles::read_parts(const FileBelow& reader, std::span<const ChunkId> run,
                                          uint64_t begin, uint64_t end) {
    std::vector<Part<ReadPiece>> parts;
    for (size_t i = 0; i < run.size() && begin + i * chunk_size() < end; ++i) {
        const uint64_t at = begin + i * chunk_size();
        add_piece(part_of(parts, memory_.group_of(run[i] / kSlabChunks)), address(run[i]),
                  std::min(chunk_size(), end - at), at);
    }
    if (parts.empty()) return uint64_t{0};
    std::vector<uint64_t> moved;
    if (Status status = move_all(reader, parts, &moved); !status.ok()) return status;
    return std::accumulate(moved.begin(), moved.end(), uint64_t{0});
}

Status CacheOfFiles::zero(ChunkId id, uint64_t from) {
    return memory_.zero(id / kSlabChunks, address(id) + from, chunk_size() - from);
}

// Reads chunks that begin at `begin`, without the lock. Bytes behind `end`, and behind the end of
// the file below, become zeros, so that a longer file shows them. Returns the end of what was read.
//
// Write-backs may lengthen the file meanwhile. Then a piece may end early though one behind it does
// not. So bytes are read only up to the end that the file had before.
Result<uint64_t> CacheOfFiles::read_run(const FileBelow& reader, std::span<const ChunkId> run,
                                        uint64_t begin, uint64_t end) {
    for (int tries = 0;; ++tries) {
        struct stat now {};
        if (storage::system::fstat(reader.descriptor, &now) != 0)
            return Status{errno, "file cache", "the file below cannot be asked for its size"};
        end = std::clamp(static_cast<uint64_t>(now.st_size), begin, end);
        const bool is_last = tries == kReadTriesMax;  // some files are never as long as they say
        for (size_t i = 0; i < run.size(); ++i) {
            const uint64_t at = begin + i * chunk_size();
            const uint64_t has = is_last || end <= at ? 0 : std::min(end - at, chunk_size());
            if (has == chunk_size()) continue;
            if (Status status = zero(run[i], has); !status.ok()) return status;
        }
        const auto read = read_parts(reader, run, begin, end);
        if (!read.ok()) return read.status();
        if (is_last || read.value() == end - begin) return end;
    }
}

// Reads the bytes of chunks that follow one another and were just taken, without the lock. They are
// pinned before and after. `lost`: it failed because a device is lost, so another may do.
Status CacheOfFiles::fill(Lock& lock, Inode& inode, std::span<const ChunkId> run, bool* lost) {
    const bool in_tier = read_tier(lock, inode, run);
    const uint64_t begin = chunks_.chunk(run.front()).number * chunk_size();
    const uint64_t end = std::min(begin + run.size() * chunk_size(), std::max(inode.size, begin));
    Result<uint64_t> read = begin;
    if (!in_tier) {
        const FileBelow reader = inode.reader;
        lock.unlock();
        read = read_run(reader, run, begin, end);
        lock.lock();
    }
    const Status status = read.status();
    *lost = !status.ok() && lost_by_transfer(lock, run);
    for (size_t i = 0; i < run.size(); ++i) {
        const bool usable = filled(inode, run[i], status.ok());
        const bool has_any = status.ok() && begin + i * chunk_size() < read.value();
        if (usable && has_any) offer_to_tier(inode, run[i]);
    }
    if (status.ok()) counts_.bytes_read += read.value() - begin;
    changed_.notify_all();
    return status;
}

Result<chunk_cache::ChunkId> CacheOfFiles::arrived(Lock& lock, Inode& inode, uint64_t number,
                                                   uint64_t last) {
    for (;;) {
        const ChunkId id = chunks_.find(inode.id, number);
        // Of a lost device it is being written back, and goes when that ends.
        const bool comes = id != kNone &&
                           (chunks_.chunk(id).state == State::kFilling || is_lost(id));
        if (id != kNone && !comes) {
            chunks_.pin(id);
            if (!unsettled_.contains(id)) return id;
            settle(lock, id);
            chunks_.unpin(id);
            continue;
        }
        if (comes) {
            changed_.wait(lock);
            continue;
        }
        std::array<ChunkId, kRunMax> run{};
        size_t count = 0;
        // All of a run comes from one place.
        const bool in_tier = tier_ != nullptr && tier_->holds(inode.id, number);
        while (count < kRunMax && number + count <= last) {
            if (count > 0 &&
                (chunks_.holds(inode.id, number + count) ||
                 (tier_ != nullptr && tier_->holds(inode.id, number + count) != in_tier)))
                break;
            run[count] = chunks_.take(inode.id, number + count);
            if (run[count] == kNone) break;
            ++count;
        }
        if (count == 0) return ChunkId{kNone};
        bool lost = false;
        const Status status = fill(lock, inode, std::span(run.data(), count), &lost);
        for (size_t i = status.ok() ? 1 : 0; i < count; ++i) chunks_.unpin(run[i]);
        if (!status.ok() && lost) continue;
        if (!status.ok()) return status;
        if (!chunks_.chunk(run[0]).stale) return run[0];
        chunks_.unpin(run[0]);  // the file has changed meanwhile: once more
    }
}

uint64_t CacheOfFiles::dirty_size_max() const {
    // Memory that could not be taken may not be there.
    const bool may_grow = base::monotonic_ns() >= next_taking_ns_;
    const uint64_t all = (chunks_.open_slabs() + (may_grow ? untaken_.size() : 0)) * slab_size();
    return options_.dirty_size_max != 0 ? options_.dirty_size_max : all / 4;
}

// Returns how much memory the bytes may take that cannot be written.
uint64_t CacheOfFiles::failed_size_max() const {
    const uint64_t all = uint64_t{chunks_.open_slabs()} * slab_size();
    return std::min(dirty_size_max() / 2, all / kShareFailed);
}

// From then on writes go to storage at once, since those that it refuses would take more memory.
bool CacheOfFiles::has_much_failed() const {
    const uint64_t size = chunks_.aside_count() * chunk_size();
    return size > 0 && size >= failed_size_max();
}

// The limit of dirty bytes for a writer of a file. A file that cannot be written has one of its
// own, and does not hold up the writers of others.
uint64_t CacheOfFiles::own_dirty_max(const Inode& inode) const {
    return inode.failing.has_value() ? failed_size_max() / kShareFailedFile : dirty_size_max();
}

// Returns how many chunks count for it.
uint64_t CacheOfFiles::own_dirty_count(const Inode& inode) const {
    return inode.failing.has_value() ? chunks_.dirty_of(inode.id)
                                     : chunks_.dirty_count() - chunks_.aside_count();
}

// Writers wait for write-backs, and those of a file that cannot be written get the error.
bool CacheOfFiles::too_much_dirty(const Inode& inode) const {
    return own_dirty_count(inode) * chunk_size() > own_dirty_max(inode) ||
           (inode.failing.has_value() && has_much_failed());
}

// The thread writes back what is oldest, so that writers need not wait.
bool CacheOfFiles::much_dirty() const {
    return (chunks_.dirty_count() - chunks_.aside_count()) * chunk_size() > dirty_size_max() / 2;
}

// Writes the chunks of a run to the file below, without the lock.
Status CacheOfFiles::write_run(Inode& inode, std::span<const ChunkId> run, uint64_t size) {
    std::vector<Part<WritePiece>> parts;
    for (const ChunkId id : run) {
        const chunk_cache::Chunk& chunk = chunks_.chunk(id);
        const uint64_t begin = chunk.number * chunk_size() + chunk.writing.begin;
        const uint64_t end = std::min(chunk.number * chunk_size() + chunk.writing.end, size);
        if (begin >= end) continue;
        add_piece(part_of(parts, memory_.group_of(id / kSlabChunks)),
                  address(id) + chunk.writing.begin, end - begin, begin);
    }
    if (parts.empty()) return {};
    std::vector<uint64_t> moved;
    Status status;
    {
        const base::TornReads torn;  // chunks that are written meanwhile are written back again
        status = move_all(inode.writer, parts, &moved);
    }
    // The disk begins now, so that a later fsync waits for less. It does not matter if it cannot.
    // The kernel gathers smaller runs.
    const uint64_t begin = chunks_.chunk(run.front()).number * chunk_size();
    const uint64_t all = run.size() * chunk_size();
    if (status.ok() && all >= kBegunMin)
        (void)storage::system::sync_file_range(inode.writer.descriptor, static_cast<off_t>(begin),
                                               static_cast<off_t>(all), SYNC_FILE_RANGE_WRITE);
    return status;
}

// Writes back the oldest dirty run of one file, or of any. Returns whether there was one.
bool CacheOfFiles::write_back(Lock& lock, Inode* of) {
    std::array<ChunkId, kRunMax> room{};
    const auto run = chunks_.begin_write_back(of != nullptr ? of->id : kNone, room);
    if (!run.empty()) write_back_run(lock, run);
    return !run.empty();
}

// Writes back chunks whose write-back was begun in the chunk cache.
void CacheOfFiles::write_back_run(Lock& lock, std::span<const ChunkId> run) {
    Inode& inode = *by_id_[chunks_.chunk(run.front()).file];
    uint64_t oldest_ns = base::monotonic_ns();
    for (const ChunkId id : run) oldest_ns = std::min(oldest_ns, dirtied_ns_[id]);
    const auto since = writing_since_ns_.insert(oldest_ns);
    const auto call = begin_call(inode.id);
    while (inode.truncating) changed_.wait(lock);
    // What was cut off meanwhile must not come back, though the file may be longer again.
    std::array<ChunkId, kRunMax> room{};
    const auto is_stale = [&](ChunkId id) { return chunks_.chunk(id).stale; };
    const auto rest = std::ranges::remove_copy_if(run, room.begin(), is_stale).out;
    const std::span<const ChunkId> written(room.begin(), rest);
    const uint64_t size = inode.size, begun_ns = base::monotonic_ns();
    ++inode.writing;
    for (const ChunkId id : run) settle(lock, id);
    // Before a sync can find nothing dirty, it must know what the log lacks.
    if (logs(inode)) {
        const std::vector<ToLog> unlogged = take_unlogged(inode, run);
        lock.unlock();
        const Status logged = log_chunks(inode, unlogged);
        lock.lock();
        end_logging(inode, unlogged, logged);
    } else {
        ++inode.log.unlogged;
    }
    lock.unlock();
    extend_log_life();
    const Status status = write_run(inode, written, size);
    lock.lock();
    if (status.ok()) note_own_change(lock, inode, inode.writer.descriptor);
    const bool lost = !status.ok() && lost_by_transfer(lock, run);
    const bool hung = end_call(call);
    --inode.writing;
    writing_since_ns_.erase(since);
    bool lost_bytes = false;
    for (const ChunkId id : run) {
        if (status.ok()) {
            counts_.bytes_written += chunks_.chunk(id).writing.end -
                                     chunks_.chunk(id).writing.begin;
            dirtied_ns_[id] = begun_ns;  // of what was written meanwhile
        }
        chunks_.written(id, status.ok());
        if (is_lost(id) && lose_chunk(id)) lost_bytes = true;
    }
    if (shared_ != nullptr && status.ok() && chunks_.dirty_of(inode.id) == 0 && inode.writing == 0)
        shared_->forget_mtime(inode.slot, inode.mtime_ns);
    if (lost_bytes) tell_loss(inode);
    const bool failed = !status.ok() && !lost;
    if (failed) {  // a write that fails may free what was reserved behind the end
        inode.space.forget_from(0);
        ++inode.space.unpromised;
    }
    const bool tells = failed ? note_failure(inode, status, oldest_ns)
                              : inode.failing.has_value() || hung;
    if (!failed) end_failure(inode);
    FileBelow told = tells ? inode.writer : FileBelow();
    if (chunks_.dirty_count() == 0) dirty_since_ns_ = 0;
    changed_.notify_all();
    close_idle_files(lock, inode);
    if (tells) tell_failure(lock, std::move(told), failed ? status : Status{});
}

}  // namespace penstock::file
