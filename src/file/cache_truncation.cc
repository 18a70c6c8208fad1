// Cuts files off and extends them. Storage and the log are asked before any byte is dropped: where
// they refuse, what is dirty behind the new end stays.
//
// Meanwhile nothing of the file is written back or appended to the log: it could come back behind
// the new end. Readers see the shorter file from the beginning, and writers wait (cache_space.cc).
#include <algorithm>
#include <vector>

#include "file/cache_of_files.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;
using chunk_cache::State;

constexpr int kTriesMax = 50;  // to change a chunk of a device that is busy, 200 ms apart

}  // namespace

// Returns the size that the file has for readers until now. end_truncating() must follow.
uint64_t CacheOfFiles::begin_truncating(Lock& lock, Inode& inode, uint64_t size) {
    inode.truncating = true;
    // What is on its way may be longer than the new size.
    while (inode.writing > 0 || inode.log.appending > 0) changed_.wait(lock);
    ++inode.writing;
    const uint64_t old = inode.size;
    if (size < old) {
        if (shared_ != nullptr) shared_->forget_end(inode.slot);
        set_size(inode, size);
    }
    return old;
}

void CacheOfFiles::end_truncating(Inode& inode) {
    --inode.writing;
    inode.truncating = false;
    changed_.notify_all();
}

// Drops what the cache has behind the end of a file that storage has cut off.
void CacheOfFiles::drop_end(Lock& lock, Inode& inode, uint64_t size) {
    const uint64_t kept = size % chunk_size(), last = size / chunk_size();
    drop_chunks(inode, last + (kept != 0 ? 1 : 0), ~0ull);
    drop_copies(inode, last, ~0ull);
    const ChunkId id = kept != 0 ? chunks_.find(inode.id, last) : kNone;
    if (id == kNone) return;
    if (chunks_.chunk(id).state == State::kFilling) {
        drop_chunks(inode, last, last);
        return;
    }
    chunks_.pin(id);
    settle(lock, id);
    for (int tries = 0;;) {
        lock.unlock();
        const Status status = zero(id, kept);
        lock.lock();
        if (status.ok() || lost_by_copy(id, status)) break;
        if (stopping_ || ++tries > kTriesMax) {
            lose_device(memory_.device_of(id / kSlabChunks));
            break;
        }
        changed_.wait_for(lock, kLookEvery);  // the device is busy: again
    }
    chunks_.unpin(id);
    drop_copies(inode, last, ~0ull);
}

// Has readers see a file again that was not cut off to `size`.
void CacheOfFiles::restore_end(Inode& inode, uint64_t size, uint64_t old) {
    set_size(inode, std::max(inode.size, old));
    // Chunks that were read meanwhile end at `size`.
    std::vector<uint64_t> clean;
    for (ChunkId id = chunks_.first_of(inode.id); id != kNone; id = chunks_.next_of(id)) {
        const chunk_cache::Chunk& chunk = chunks_.chunk(id);
        const bool is_clean = chunk.state == State::kFilling || chunk.state == State::kClean;
        if (is_clean && chunk.number >= size / chunk_size()) clean.push_back(chunk.number);
        // In the log a record that cuts the file off may follow its bytes.
        if (log_ != nullptr) logged_[id] = false;
    }
    for (const uint64_t number : clean) drop_chunks(inode, number, number);
    ++inode.log.unlogged;
}

Status CacheOfFiles::truncate(Inode& inode, const File& file, uint64_t size) {
    Lock lock(mutex_);
    begin_cutting(lock, inode);
    if (shared_ != nullptr) withdraw_all(inode, 0, ~0ull);
    uint64_t old = begin_truncating(lock, inode, size);
    const bool live = inode.log.is_logged();
    const uint64_t harmless = std::max(size, inode.below.size);
    lock.unlock();
    // A recovery does what the log says, so storage is asked first, by a size that takes nothing.
    Status status = live ? file.truncate(harmless) : Status{};
    const bool asked = status.ok();
    if (asked && log_ != nullptr) status = truncate_in_log(inode, size);
    if (asked && !status.ok()) {
        lock.lock();
        restore_end(inode, size, old);
        end_truncating(inode);
        lock.unlock();
        status = sync_to_storage(inode, false);  // then the log has nothing of the file
        lock.lock();
        old = begin_truncating(lock, inode, size);
        lock.unlock();
    }
    const bool noted = log_ != nullptr && status.ok();
    if (status.ok()) status = file.truncate(size);
    lock.lock();
    if (status.ok()) {
        set_size(inode, size);
        drop_end(lock, inode, size);
        note_new_bytes(lock, inode, inode.writer.descriptor);
    } else {
        restore_end(inode, size, old);
    }
    end_truncating(inode);
    // What storage has refused must not be done by a recovery.
    if (noted && !status.ok()) {
        lock.unlock();
        (void)sync_to_storage(inode, false);
        lock.lock();
    }
    end_cutting(inode, size);
    return status;
}

}  // namespace penstock::file
