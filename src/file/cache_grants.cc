// Chunks that other processes write (abi/chunk_table.h). A granted chunk is pinned. What was
// written to it is dirty when the cache has collected its range.
#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "file/cache_of_files.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;
namespace grant = chunk_table::grant;

// How long a grant is waited for whose writer is in a copy, with the lock held.
constexpr uint64_t kPatienceNs = 2'000'000;

}  // namespace

Result<uint64_t> CacheOfFiles::grant(Inode& inode, uint64_t size, uint64_t offset) {
    if (shared_ == nullptr || window_ != nullptr || inode.slot == SharedTable::kNoSlot)
        return Status{EOPNOTSUPP, "file cache", "its chunks cannot be written by others"};
    uint64_t done = 0;
    Lock lock(mutex_);
    collect(kNone);
    while (done < size) {
        while (too_much_dirty())
            if (Status s = make_room(lock); !s.ok()) return done > 0 ? Result<uint64_t>(done) : s;
        const uint64_t at = offset + done, number = at / chunk_size();
        auto found = grantable(lock, inode, number);
        if (!found.ok()) return done > 0 ? Result<uint64_t>(done) : found.status();
        const ChunkId id = found.value();
        if ((shared_->grant_of(id).load() & grant::kGranted) != 0) {
            chunks_.unpin(id);  // it has the pin of the grant
        } else {
            grants_.push_back(id);
            shared_->grant_of(id).store(grant::kGranted, std::memory_order_release);
        }
        done += chunk_size() - at % chunk_size();
        while (grants_.size() > grants_max()) withdraw(grants_.front());
    }
    return std::min(done, size);
}

size_t CacheOfFiles::grants_max() const { return memory_.slab_count() * kSlabChunks / 4; }

// Returns a chunk with the file's bytes, pinned. Beyond the end of the file they are zeros.
Result<chunk_cache::ChunkId> CacheOfFiles::grantable(Lock& lock, Inode& inode, uint64_t number) {
    for (;;) {
        const bool beyond = valid_size(inode, number) == 0 && !chunks_.holds(inode.id, number);
        auto found = beyond ? replace(lock, inode, number, {})
                            : arrived(lock, inode, number, number);
        if (!found.ok() || found.value() != kNone) return found;
        if (!grants_.empty()) withdraw(grants_.front());
        if (Status status = make_room(lock); !status.ok()) return status;
    }
}

// Takes what was written to a granted chunk for dirty.
void CacheOfFiles::collect_one(ChunkId id) {
    std::atomic<uint64_t>& word = shared_->grant_of(id);
    uint64_t seen = word.load(std::memory_order_acquire);
    while (grant::end(seen) > grant::begin(seen) &&
           !word.compare_exchange_weak(seen, grant::without_range(seen), std::memory_order_acq_rel))
        continue;
    if (grant::end(seen) <= grant::begin(seen)) return;
    Inode& inode = *by_id_[chunks_.chunk(id).file];
    if (dirty_since_ns_ == 0) dirty_since_ns_ = base::monotonic_ns();
    chunks_.write(id, {grant::begin(seen), grant::end(seen)});
    uint64_t size = inode.size;
    shared_->take_end(inode.slot, &size);
    if (size != inode.size) set_size(inode, size);
    note_time(inode);
}

void CacheOfFiles::collect(chunk_cache::FileId file) {
    for (const ChunkId id : grants_)
        if (file == kNone || chunks_.chunk(id).file == file) collect_one(id);
    free_stuck();
}

// Takes a grant back. If its writer does not step back soon, the chunk stays pinned until it has.
void CacheOfFiles::withdraw(ChunkId id) {
    std::atomic<uint64_t>& word = shared_->grant_of(id);
    const uint64_t limit = base::monotonic_ns() + kPatienceNs;
    uint64_t seen = word.load(std::memory_order_acquire);
    for (;;) {
        if (grant::writer(seen) != 0 && base::monotonic_ns() < limit) {
            std::this_thread::yield();
            seen = word.load(std::memory_order_acquire);
            continue;
        }
        collect_one(id);
        seen = grant::without_range(word.load(std::memory_order_acquire));
        if (word.compare_exchange_weak(seen, seen & ~grant::kGranted)) break;
    }
    grants_.erase(std::ranges::find(grants_, id));
    if (grant::writer(seen) != 0) {
        stuck_.push_back(id);
    } else {
        chunks_.unpin(id);
    }
}

void CacheOfFiles::withdraw_all(const Inode& inode, uint64_t first, uint64_t last) {
    std::vector<ChunkId> meant;
    for (const ChunkId id : grants_) {
        const chunk_cache::Chunk& chunk = chunks_.chunk(id);
        if (chunk.file == inode.id && chunk.number >= first && chunk.number <= last)
            meant.push_back(id);
    }
    for (const ChunkId id : meant) withdraw(id);
}

void CacheOfFiles::withdraw_slab(uint32_t slab) {
    std::vector<ChunkId> meant;
    for (const ChunkId id : grants_)
        if (id / kSlabChunks == slab) meant.push_back(id);
    for (const ChunkId id : meant) withdraw(id);
    free_stuck();
}

void CacheOfFiles::free_stuck() {
    std::erase_if(stuck_, [this](ChunkId id) {
        if (grant::writer(shared_->grant_of(id).load()) != 0) return false;
        chunks_.unpin(id);
        return true;
    });
}

void CacheOfFiles::end_grants(Inode& inode) {
    const Lock lock(mutex_);
    if (shared_ != nullptr) withdraw_all(inode, 0, ~0ull);
}

// The process of a writer has ended: it was perhaps in a copy.
void CacheOfFiles::forget_writer(uint32_t writer) {
    const Lock lock(mutex_);
    const auto clear = [&](ChunkId id) {
        std::atomic<uint64_t>& word = shared_->grant_of(id);
        uint64_t seen = word.load();
        while (grant::writer(seen) == writer &&
               !word.compare_exchange_weak(seen, grant::with_writer(seen, 0)))
            continue;
    };
    std::ranges::for_each(grants_, clear);
    std::ranges::for_each(stuck_, clear);
    free_stuck();
}

}  // namespace penstock::file
