// Copies of many chunks at once: to a reader, from a writer, and to the host window.
#include <algorithm>
#include <array>

#include "base/clock.h"
#include "file/cache_of_files.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;

constexpr uint64_t kOffsetMax = uint64_t{1} << 62;
constexpr size_t kCopyMax = 256;  // chunks of one copy: 16 MiB at 64 KiB each

}  // namespace

// Pins chunks whose bytes are there, from `number` on. Returns how many.
size_t CacheOfFiles::pin_ready(const Inode& inode, uint64_t number, uint64_t last,
                               std::span<ChunkId> run) {
    size_t count = 0;
    while (count < run.size() && number + count <= last) {
        const ChunkId id = chunks_.find_ready(inode.id, number + count);
        if (id == kNone || is_lost(id) || unsettled_.contains(id)) break;
        chunks_.pin(id);
        run[count++] = id;
    }
    return count;
}

void CacheOfFiles::unpin_all(std::span<const ChunkId> run) {
    for (const ChunkId id : run) chunks_.unpin(id);
}

Result<uint64_t> CacheOfFiles::read(Inode& inode, const FileBelow& below, std::byte* to,
                                    uint64_t size, uint64_t offset) {
    if (offset > kOffsetMax || size > kOffsetMax) return Status{EINVAL, "read", "out of range"};
    uint64_t done = 0;
    Lock lock(mutex_);
    inode.by_table = false;
    // What programs wrote to copies is seen at once where they write chunks themselves.
    if (window_ != nullptr && !grants_.empty()) collect(inode.id);
    look_ahead(inode, size, offset);
    keep_room(lock);
    while (done < size && offset + done < inode.size) {
        const uint64_t at = offset + done;
        const uint64_t wanted = std::min(size - done, inode.size - at);
        const uint64_t number = at / chunk_size(), last = (at + wanted - 1) / chunk_size();
        auto found = arrived(lock, inode, number, last);
        if (!found.ok()) return done > 0 ? Result<uint64_t>(done) : found.status();
        if (found.value() == kNone) {
            const uint64_t part = std::min(wanted, chunk_size() - at % chunk_size());
            const Status status = read_past(lock, below, to + done, part, at);
            if (!status.ok()) return done > 0 ? Result<uint64_t>(done) : status;
            done += part;
            continue;
        }
        std::array<ChunkId, kCopyMax> run{found.value()};
        const size_t count = 1 + pin_ready(inode, number + 1, last, std::span(run).subspan(1));
        std::array<CacheMemory::Copy, kCopyMax> copies{};
        uint64_t begun = 0;
        for (size_t i = 0; i < count; ++i) {
            const uint64_t within = (at + begun) % chunk_size();
            const uint64_t part = std::min(wanted - begun, chunk_size() - within);
            copies[i] = {run[i] / kSlabChunks, address(run[i]) + within, to + done + begun, part};
            begun += part;
        }
        uint32_t failed = 0;
        lock.unlock();
        const Status status = memory_.copy_all(std::span(copies).first(count), true, &failed);
        lock.lock();
        unpin_all(std::span(run).first(count));
        if (!status.ok() && lost_by_copy(failed * kSlabChunks, status)) continue;
        if (!status.ok()) return status;
        counts_.bytes_served += begun;
        done += begun;
        keep_room(lock);
    }
    return done;
}

// Reads from the file below what there is no memory for.
Status CacheOfFiles::read_past(Lock& lock, const FileBelow& below, std::byte* to, uint64_t size,
                               uint64_t offset) {
    const bool any_lost = counts_.devices_lost > 0;
    lock.unlock();
    auto file = file_for_host(below, any_lost);
    auto got = file.ok() ? file.value().read(to, size, offset) : file.status();
    lock.lock();
    if (!got.ok()) return got.status();
    // What storage lacks behind its end are zeros that a writer has left.
    std::fill(to + got.value(), to + size, std::byte{0});
    counts_.bytes_bypassed += size;
    return {};
}

// Writes whole chunks that are absent or there. Returns how many bytes; 0 where the next chunk must
// be written by itself.
Result<uint64_t> CacheOfFiles::write_chunks(Lock& lock, Inode& inode, const std::byte* from,
                                            uint64_t size, uint64_t offset) {
    if (offset % chunk_size() != 0) return uint64_t{0};
    const uint64_t number = offset / chunk_size();
    const uint64_t most = own_dirty_max(inode) / chunk_size(), dirty = own_dirty_count(inode);
    const uint64_t room = most > dirty ? most - dirty + 1 : 1;  // one may go beyond
    const auto wanted = static_cast<size_t>(
        std::min<uint64_t>({size / chunk_size(), kCopyMax, room}));
    std::array<ChunkId, kCopyMax> run{};
    std::array<CacheMemory::Copy, kCopyMax> copies{};
    std::array<bool, kCopyMax> is_new{};
    size_t count = 0;
    for (; count < wanted; ++count) {
        const uint64_t one = number + count;
        is_new[count] = pin_ready(inode, one, one, std::span(run).subspan(count, 1)) == 0;
        if (is_new[count] && chunks_.holds(inode.id, one)) break;
        if (is_new[count]) run[count] = chunks_.take(inode.id, one);
        if (run[count] == kNone) break;
        copies[count] = {run[count] / kSlabChunks, address(run[count]),
                         const_cast<std::byte*>(from) + count * chunk_size(), chunk_size()};
    }
    if (count == 0) return uint64_t{0};
    uint32_t failed = 0;
    ++inode.writing;  // no comparison with the file below drops a chunk meanwhile
    lock.unlock();
    const Status status = memory_.copy_all(std::span(copies).first(count), false, &failed);
    lock.lock();
    --inode.writing;
    changed_.notify_all();
    const bool lost = !status.ok() && lost_by_copy(failed * kSlabChunks, status);
    uint64_t done = 0;  // what is cut off or lost meanwhile is written again
    uint64_t end = 0;
    bool all = true;
    for (size_t i = 0; i < count; ++i) {
        const bool usable = !is_new[i] || filled(inode, run[i], status.ok());
        // After an error any of the bytes may be there, and readers see them.
        if ((status.ok() || !is_new[i]) && usable && !is_lost(run[i])) {
            note_dirty(run[i], {0, static_cast<uint32_t>(chunk_size())});
            if (all && status.ok()) done += chunk_size();
            end = (number + i + 1) * chunk_size();
        } else {
            all = false;
        }
        chunks_.unpin(run[i]);
    }
    if (end > 0) note_change(inode, number, number + count - 1, end);
    if (!status.ok() && !lost) return status;
    return done;
}

// Records that bytes of a pinned chunk are newer than storage. note_change() must follow.
void CacheOfFiles::note_dirty(ChunkId id, chunk_cache::Range range) {
    const chunk_cache::Chunk& chunk = chunks_.chunk(id);
    if (chunk.state == chunk_cache::State::kClean && !chunk.stale) {
        dirtied_ns_[id] = base::monotonic_ns();
        if (dirty_since_ns_ == 0) {
            dirty_since_ns_ = dirtied_ns_[id];
            wake_.notify_one();
        }
        // What failed was cut off, or dropped, meanwhile.
        if (chunks_.dirty_of(chunk.file) == 0) end_failure(*by_id_[chunk.file]);
    }
    chunks_.write(id, range);
    if (log_ != nullptr) logged_[id] = false;
}

// Records that chunks of a file have other bytes, up to `end`.
void CacheOfFiles::note_change(Inode& inode, uint64_t first, uint64_t last, uint64_t end) {
    drop_copies(inode, first, last);
    set_size(inode, std::max(inode.size, end));
    note_time(inode);
}

Result<uint64_t> CacheOfFiles::fetch(Inode& inode, uint64_t size, uint64_t offset) {
    if (offset > kOffsetMax || size > kOffsetMax) return Status{EINVAL, "read", "out of range"};
    uint64_t done = 0;
    Lock lock(mutex_);
    inode.by_table = true;
    look_ahead(inode, size, offset);
    keep_room(lock);
    while (done < size && offset + done < inode.size) {
        const uint64_t at = offset + done;
        const uint64_t wanted = std::min(size - done, inode.size - at);
        auto got = fetch_some(lock, inode, at / chunk_size(), (at + wanted - 1) / chunk_size());
        if (!got.ok()) return done > 0 ? Result<uint64_t>(done) : got.status();
        if (got.value() == 0) return done;
        done += std::min(wanted, got.value() * chunk_size() - at % chunk_size());
        keep_room(lock);
    }
    return done;
}

// Brings chunks into memory and shows them. Returns how many, or 0 if there is no memory.
Result<uint64_t> CacheOfFiles::fetch_some(Lock& lock, Inode& inode, uint64_t number,
                                          uint64_t last) {
    for (;;) {
        auto found = arrived(lock, inode, number, last);
        if (!found.ok()) return found.status();
        if (found.value() == kNone) return uint64_t{0};
        std::array<ChunkId, kCopyMax> run{found.value()};
        const size_t count = 1 + pin_ready(inode, number + 1, last, std::span(run).subspan(1));
        uint32_t failed = 0;
        const bool shows = window_ != nullptr && inode.by_table;
        const Status status = shows ? show(lock, inode, std::span(run).first(count), &failed)
                                    : Status{};
        unpin_all(std::span(run).first(count));
        if (!status.ok() && lost_by_copy(failed * kSlabChunks, status)) continue;
        if (!status.ok()) return status;
        return count;
    }
}

// Copies chunks, which the caller has pinned, to the host window. What has no room there is left
// out: the program reads the file below.
Status CacheOfFiles::show(Lock& lock, const Inode& inode, std::span<const ChunkId> run,
                          uint32_t* failed) {
    std::array<ChunkId, kCopyMax> shown{}, shows{};
    std::array<CacheMemory::Copy, kCopyMax> copies{};
    size_t count = 0;
    for (const ChunkId id : run) {
        const uint64_t number = chunks_.chunk(id).number;
        if (chunks_.chunk(id).stale || window_->chunks().holds(inode.id, number)) continue;
        const ChunkId copy = window_->chunks().take(inode.id, number);
        if (copy == kNone) break;
        shown[count] = id;
        shows[count] = copy;
        copies[count++] = {id / kSlabChunks, address(id), window_->address(copy), chunk_size()};
    }
    Status status;
    if (count > 0) {
        lock.unlock();
        status = memory_.copy_all(std::span(copies).first(count), true, failed);
        lock.lock();
    }
    for (size_t i = 0; i < count; ++i) {
        // What was written meanwhile has made the copy stale.
        const chunk_cache::Chunk& chunk = chunks_.chunk(shown[i]);
        if (window_->chunks().filled(shows[i], status.ok() && !chunk.stale))
            shared_->publish(inode.slot, chunk.number, shows[i]);
        window_->chunks().unpin(shows[i]);
    }
    changed_.notify_all();
    // Another thread may have some under way.
    for (const ChunkId id : run)
        while (!chunks_.chunk(id).stale && window_->is_coming(inode.id, chunks_.chunk(id).number))
            changed_.wait(lock);
    return status;
}

// ---- Readahead

void CacheOfFiles::look_ahead(const Inode& inode, uint64_t size, uint64_t offset) {
    if (inode.reader.descriptor >= 0 && readahead_->observe(inode.id, inode.size, offset, size))
        ahead_.notify_all();
}

void CacheOfFiles::observe(Inode& inode, uint64_t size, uint64_t offset) {
    const std::lock_guard lock(mutex_);
    if (offset <= kOffsetMax && size <= kOffsetMax) look_ahead(inode, size, offset);
}

// Returns whether a reader finds a chunk where it looks.
bool CacheOfFiles::is_near(chunk_cache::FileId file, uint64_t number) const {
    const Inode* inode = by_id_[file];
    return chunks_.holds(file, number) &&
           (window_ == nullptr || inode == nullptr || !inode->by_table ||
            window_->chunks().holds(file, number));
}

void CacheOfFiles::read_ahead() {
    Lock lock(mutex_);
    while (!stopping_) {
        const bool takes = wants_memory();
        const auto fetch = takes ? std::nullopt : readahead_->next();
        if (takes) {
            take_memory(lock);
        } else if (fetch.has_value()) {
            fetch_ahead(lock, *fetch);
        } else {
            ahead_.wait(lock);
        }
    }
}

// Fetches what a reader takes next. An error is told when it asks itself.
void CacheOfFiles::fetch_ahead(Lock& lock, const CacheReadahead::Fetch& fetch) {
    Inode* const inode = by_id_[fetch.file];
    bool good = inode != nullptr && inode->handles > 0 && inode->reader.descriptor >= 0;
    if (good) {
        ++inode->handles;  // it stays open meanwhile
        const uint64_t last = (fetch.range.end() - 1) / chunk_size();
        for (uint64_t number = fetch.range.offset / chunk_size(); good && number <= last;) {
            keep_room(lock);
            if (is_near(inode->id, number)) {
                ++number;
                continue;
            }
            auto got = fetch_some(lock, *inode, number, last);
            good = got.ok() && got.value() > 0;
            if (good) number += got.value();
        }
        if (--inode->handles == 0) {
            readahead_->forget(inode->id);
            close_idle_files(lock, *inode);
        }
    }
    readahead_->done(fetch, good);
}

}  // namespace penstock::file
