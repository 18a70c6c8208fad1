// Moves chunks between the memory of a file cache and its tier (fast_tier.h).
//
// A chunk that was read from storage is offered to the tier. A thread copies it there, so no reader
// waits for that. Whatever changes the bytes of a chunk in memory drops its copy, and with it a
// copy that is on its way. An error of the tier is told once, and storage is read from then on.
#include <array>
#include <vector>

#include "base/torn_reads.h"
#include "file/cache_of_files.h"
#include "file/device_parts.h"

namespace penstock::file {

// Reads chunks that follow one another and were just taken from the tier. Returns whether they have
// their bytes: if not, the tier lacks them, or could not give them.
bool CacheOfFiles::read_tier(Lock& lock, const Inode& inode, std::span<const ChunkId> run) {
    const uint64_t first = chunks_.chunk(run.front()).number;
    if (tier_ == nullptr || !tier_->holds(inode.id, first)) return false;
    std::array<ChunkId, kRunMax> copies{};
    for (size_t i = 0; i < run.size(); ++i) copies[i] = tier_->pin(inode.id, first + i);
    lock.unlock();
    std::vector<Part<ReadPiece>> parts;
    for (size_t i = 0; i < run.size(); ++i)
        add_piece(part_of(parts, memory_.group_of(run[i] / kSlabChunks)), address(run[i]),
                  chunk_size(), tier_->offset_of(copies[i]));
    std::vector<uint64_t> moved;
    Status status = move_all(tier_->file(), parts, &moved);
    uint64_t sum = 0;
    for (const uint64_t size : moved) sum += size;
    if (status.ok() && sum < run.size() * chunk_size())
        status = {EIO, "tier", "its file has become shorter"};
    lock.lock();
    for (size_t i = 0; i < run.size(); ++i) tier_->unpin(copies[i]);
    if (status.ok()) {
        counts_.tier_bytes_read += sum;
        return true;
    }
    if (!lost_by_transfer(lock, run)) fail_tier(lock, status);
    return false;
}

// Has a chunk copied to the tier that was just read from storage.
void CacheOfFiles::offer_to_tier(const Inode& inode, ChunkId id) {
    if (tier_ == nullptr || !tier_->error().ok()) return;
    if (!tier_->offer(inode.id, chunks_.chunk(id).number, id)) {
        ++counts_.tier_chunks_skipped;
        return;
    }
    chunks_.pin(id);
    wake_tier_.notify_one();
}

void CacheOfFiles::copy_to_tier(Lock& lock, std::span<const FastTier::Copy> copies) {
    std::array<ChunkId, kRunMax> run{};
    for (size_t i = 0; i < copies.size(); ++i) run[i] = copies[i].from;
    lock.unlock();
    std::vector<Part<WritePiece>> parts;
    for (const FastTier::Copy& copy : copies)
        add_piece(part_of(parts, memory_.group_of(copy.from / kSlabChunks)), address(copy.from),
                  chunk_size(), tier_->offset_of(copy.to));
    std::vector<uint64_t> moved;
    Status status;
    {
        const base::TornReads torn;  // a write of the chunk drops the copy
        status = move_all(tier_->file(), parts, &moved);
    }
    lock.lock();
    const bool lost = !status.ok() && lost_by_transfer(lock, std::span(run.data(), copies.size()));
    for (const FastTier::Copy& copy : copies) {
        if (tier_->copied(copy, status.ok())) counts_.tier_bytes_filled += chunk_size();
        chunks_.unpin(copy.from);
    }
    if (!status.ok() && !lost) fail_tier(lock, status);
    changed_.notify_all();
}

// The thread of the tier.
void CacheOfFiles::fill_tier() {
    Lock lock(mutex_);
    std::vector<ChunkId> unwanted;
    while (!stopping_) {
        std::array<FastTier::Copy, kRunMax> room;
        const auto copies = tier_->next(room, &unwanted);
        for (const ChunkId id : std::exchange(unwanted, {})) chunks_.unpin(id);
        if (copies.empty()) {
            changed_.notify_all();
            wake_tier_.wait(lock);
        } else {
            copy_to_tier(lock, copies);
        }
    }
}

void CacheOfFiles::fail_tier(Lock& lock, const Status& status) {
    if (!tier_->error().ok()) return;
    tier_->fail(status);
    wake_tier_.notify_one();
    if (options_.tier_failed == nullptr) return;
    lock.unlock();
    options_.tier_failed(status);
    lock.lock();
}

}  // namespace penstock::file
