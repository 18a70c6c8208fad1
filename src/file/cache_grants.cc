// Chunks that other processes write (abi/chunk_table.h). A granted chunk is pinned. What was
// written to it is dirty when the cache has collected its range.
//
// Where the host cannot address chunks, programs write copies of them in the host window. A
// collected range is dirty at once, and unsettled until settle() has copied it to its chunk. Each
// use of a chunk's bytes calls settle() first.
#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "file/cache_of_files.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;
namespace grant = chunk_table::grant;

// How long a grant is waited for whose writer is in a copy, with the lock held.
constexpr uint64_t kPatienceNs = 2'000'000;

// So much of the limit of dirty bytes may be granted before what was written by grants is counted.
constexpr uint64_t kShareUncollected = 16;

constexpr int kTriesMax = 50;  // to copy to a device that is busy, 200 ms apart

}  // namespace

Result<uint64_t> CacheOfFiles::grant(Inode& inode, uint64_t size, uint64_t offset) {
    if (shared_ == nullptr || inode.slot == SharedTable::kNoSlot)
        return Status{EOPNOTSUPP, "file cache", "its chunks cannot be written by others"};
    uint64_t done = 0;
    Lock lock(mutex_);
    inode.by_table = inode.was_granted = true;
    if (granted_since_ * chunk_size() > dirty_size_max() / kShareUncollected) collect(kNone);
    while (done < size) {
        keep_room(lock);
        while (too_much_dirty(inode))
            if (Status s = make_room(lock, inode); !s.ok())
                return done > 0 ? Result<uint64_t>(done) : s;
        if (is_being_written(inode.id, (offset + done) / chunk_size())) {
            changed_.wait(lock);
            continue;
        }
        // The program asks the kernel then.
        if (has_much_failed())
            return done > 0 ? Result<uint64_t>(done)
                            : Status{ENOSPC, "file cache", "too much of it cannot be written"};
        begin_promising(lock, inode);
        const auto granted = grant_one(lock, inode, size - done, offset + done);
        end_promising(inode);
        if (!granted.ok()) return done > 0 ? Result<uint64_t>(done) : granted.status();
        done += granted.value();
        while (grants_.size() > grants_max()) withdraw(Grant(grants_.oldest()));
    }
    return std::min(done, size);
}

// Grants the chunk at `offset`. Returns how many of its bytes lie behind; 0: the caller tries
// again.
Result<uint64_t> CacheOfFiles::grant_one(Lock& lock, Inode& inode, uint64_t size, uint64_t offset) {
    const uint64_t number = offset / chunk_size();
    // Without a grant the program asks the kernel, which tells what storage can take.
    if (promise_chunks(lock, inode, offset, size) == 0)
        return Status{ENOSPC, "file cache", "storage promises no room for the chunk"};
    auto found = grantable(lock, inode, number);
    if (!found.ok()) return found.status();
    const ChunkId id = found.value();
    if (id == kNone) return Status{ENOMEM, "file cache", "it has no memory for what is written"};
    const auto seen = shown(lock, inode, id, (offset + size - 1) / chunk_size());
    if (!seen.ok() || seen.value() == kNone) {  // kNone: it has changed meanwhile
        chunks_.unpin(id);
        return seen.ok() ? Result<uint64_t>(uint64_t{0}) : seen.status();
    }
    const Grant made{id, seen.value(), inode.id, number};
    if (is_being_written(inode.id, number)) {
        unpin_grant(made);
        return uint64_t{0};
    }
    if (grants_.contains(made)) {
        unpin_grant(made);                                       // it has the pins of the grant
        shared_->grant_of(made.seen).fetch_or(grant::kGranted);  // programs may have cleared it
    } else {
        grants_.add(made);
        drop_in_tier(inode, number, number);  // a copy under way may see the writer's bytes
        // A writer that was stopped in its copy when its grant was withdrawn is still there.
        std::atomic<uint64_t>& word = shared_->grant_of(made.seen);
        uint64_t before = word.load(std::memory_order_acquire);
        while (!word.compare_exchange_weak(before, grant::without_range(before) | grant::kGranted,
                                           std::memory_order_acq_rel))
            continue;
    }
    ++granted_since_;
    return chunk_size() - offset % chunk_size();
}

size_t CacheOfFiles::grants_max() const {
    const size_t all = memory_.slab_count() * kSlabChunks / 4;
    return window_ == nullptr ? all : std::min(all, window_->size() / chunk_size() / 2);
}

// Returns what other processes see of a chunk that the caller has pinned, also pinned. kNone: the
// chunk is stale.
Result<chunk_cache::ChunkId> CacheOfFiles::shown(Lock& lock, Inode& inode, ChunkId id,
                                                 uint64_t last) {
    if (window_ == nullptr) return id;
    chunk_cache::ChunkCache& copies = window_->chunks();
    const uint64_t number = chunks_.chunk(id).number;
    while (!chunks_.chunk(id).stale) {
        if (copies.holds(inode.id, number)) {
            if (window_->is_coming(inode.id, number)) {
                changed_.wait(lock);
                continue;
            }
            const ChunkId copy = copies.find(inode.id, number);
            copies.pin(copy);
            return copy;
        }
        std::array<ChunkId, 64> run{id};
        const size_t count = 1 + pin_ready(inode, number + 1, std::max(last, number),
                                           std::span(run).subspan(1));
        uint32_t failed = 0;
        const Status status = show(lock, inode, std::span(run).first(count), &failed);
        unpin_all(std::span(run).subspan(1, count - 1));
        if (!status.ok() && !lost_by_copy(failed * kSlabChunks, status)) return status;
        if (copies.holds(inode.id, number) || !status.ok()) continue;
        if (!grants_.empty()) withdraw(Grant(grants_.oldest()));
        changed_.wait_for(lock, kLookEvery);  // for room in the window
    }
    return ChunkId{kNone};
}

void CacheOfFiles::unpin_grant(const Grant& grant) {
    chunks_.unpin(grant.chunk);
    if (window_ != nullptr) window_->chunks().unpin(grant.seen);
}

// Returns a chunk with the file's bytes, pinned. Beyond the end of the file they are zeros. kNone:
// all memory was given back or lost, or has bytes that cannot be written.
Result<chunk_cache::ChunkId> CacheOfFiles::grantable(Lock& lock, Inode& inode, uint64_t number) {
    for (;;) {
        const bool beyond = valid_size(inode, number) == 0 && !chunks_.holds(inode.id, number);
        auto found = beyond ? replace(lock, inode, number, {})
                            : arrived(lock, inode, number, number);
        if (!found.ok() || found.value() != kNone || chunks_.open_slabs() == 0) return found;
        if (!grants_.empty()) withdraw(Grant(grants_.oldest()));
        if (grants_.empty() && !may_make_room()) return found;
        if (Status status = make_room(lock, inode); !status.ok()) return status;
    }
}

// Takes what was written to a granted chunk for dirty.
void CacheOfFiles::collect_one(const Grant& of) {
    std::atomic<uint64_t>& word = shared_->grant_of(of.seen);
    uint64_t seen = word.load(std::memory_order_acquire);
    while (grant::end(seen) > grant::begin(seen) &&
           !word.compare_exchange_weak(seen, grant::without_range(seen), std::memory_order_acq_rel))
        continue;
    if (grant::end(seen) <= grant::begin(seen)) return;
    Inode& inode = *by_id_[of.file];
    // Any program may have written the word.
    const auto most = static_cast<uint32_t>(chunk_size());
    const chunk_cache::Range range{grant::begin(seen), std::min(grant::end(seen), most)};
    if (range.empty()) return;
    if (inode.space.granted_unpromised) ++inode.space.unpromised;
    note_dirty(of.chunk, range);
    leave_unsettled(of, range);
    drop_in_tier(inode, of.number, of.number);
    uint64_t size = inode.size;
    shared_->take_end(inode.slot, &size);
    if (size != inode.size) set_size(inode, size);
    // The writer has told its time already. There is none where it wrote within the clock tick of
    // the time that the file has.
    const int64_t before_ns = inode.mtime_ns, written_ns = shared_->mtime_of(inode.slot);
    note_time(inode);
    const int64_t told_ns = written_ns != 0 ? written_ns : before_ns;
    if (told_ns != 0) inode.mtime_ns = inode.ctime_ns = std::min(inode.mtime_ns, told_ns);
}

void CacheOfFiles::collect(chunk_cache::FileId file) {
    if (file == kNone) {
        for (const Grant& of : grants_.all()) collect_one(of);
        granted_since_ = 0;
    } else {
        for (const Grant& of : grants_.of(file)) collect_one(of);
    }
    free_stuck();
}

// Takes a grant back. If its writer does not step back soon, the chunk stays pinned until it has.
void CacheOfFiles::withdraw(const Grant& of) {
    std::atomic<uint64_t>& word = shared_->grant_of(of.seen);
    const uint64_t limit = base::monotonic_ns() + kPatienceNs;
    uint64_t seen = word.load(std::memory_order_acquire);
    for (;;) {
        if (grant::writer(seen) != 0 && base::monotonic_ns() < limit) {
            std::this_thread::yield();
            seen = word.load(std::memory_order_acquire);
            continue;
        }
        collect_one(of);
        seen = grant::without_range(word.load(std::memory_order_acquire));
        if (word.compare_exchange_weak(seen, seen & ~grant::kGranted)) break;
    }
    grants_.remove(of);
    if (grant::writer(seen) != 0) {
        stuck_.push_back(of);
    } else {
        unpin_grant(of);
    }
}

void CacheOfFiles::withdraw_all(const Inode& inode, uint64_t first, uint64_t last) {
    for (const Grant& of : grants_.of(inode.id, first, last)) withdraw(of);
}

void CacheOfFiles::withdraw_slab(uint32_t slab) {
    std::vector<Grant> meant;
    for (const Grant& of : grants_.all())
        if (of.chunk / kSlabChunks == slab) meant.push_back(of);
    for (const Grant& of : meant) withdraw(of);
    free_stuck();
}

void CacheOfFiles::free_stuck() {
    std::erase_if(stuck_, [this](const Grant& of) {
        if (grant::writer(shared_->grant_of(of.seen).load()) != 0) return false;
        unpin_grant(of);
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
    const auto clear = [&](const Grant& of) {
        std::atomic<uint64_t>& word = shared_->grant_of(of.seen);
        uint64_t seen = word.load();
        while (grant::writer(seen) == writer &&
               !word.compare_exchange_weak(seen, grant::with_writer(seen, 0)))
            continue;
    };
    std::ranges::for_each(grants_.all(), clear);
    std::ranges::for_each(stuck_, clear);
    free_stuck();
}

// ---- Copies in the host window

// What programs wrote to copies goes into the chunks first, so that a write is the newer one.
void CacheOfFiles::begin_writing(const Writing& chunks) {
    withdraw_all(*by_id_[chunks.file], chunks.first, chunks.last);
    writings_.push_back(chunks);
}

void CacheOfFiles::end_writing(const Writing& chunks) {
    writings_.erase(std::ranges::find(writings_, chunks));
    changed_.notify_all();
}

bool CacheOfFiles::is_being_written(chunk_cache::FileId file, uint64_t number) const {
    return std::ranges::any_of(writings_, [&](const Writing& chunks) {
        return chunks.file == file && chunks.first <= number && number <= chunks.last;
    });
}

void CacheOfFiles::leave_unsettled(const Grant& of, chunk_cache::Range range) {
    if (window_ == nullptr) return;
    const auto [at, is_new] = unsettled_.try_emplace(of.chunk, Unsettled{of.seen, range});
    if (is_new) {
        chunks_.pin(of.chunk);
        window_->chunks().pin(of.seen);
        return;
    }
    PENSTOCK_CHECK(at->second.seen == of.seen, "a chunk has one copy that others may write");
    chunk_cache::Range& known = at->second.range;
    if (known.empty()) {
        known = range;
    } else {
        known = {std::min(known.begin, range.begin), std::max(known.end, range.end)};
    }
}

// Brings a chunk up to date with what other processes wrote to its copy.
void CacheOfFiles::settle(Lock& lock, ChunkId id) {
    for (int tries = 0;;) {
        const auto at = unsettled_.find(id);
        if (at == unsettled_.end()) return;
        Unsettled& one = at->second;  // its place in memory stays
        if (one.moving) {
            changed_.wait(lock);
            continue;
        }
        one.moving = true;
        const chunk_cache::Range range = std::exchange(one.range, {});
        const uint32_t slab = id / kSlabChunks;
        lock.unlock();
        const Status status = memory_.copy(slab, address(id) + range.begin,
                                           window_->address(one.seen) + range.begin,
                                           range.end - range.begin);
        lock.lock();
        one.moving = false;
        changed_.notify_all();
        bool lost = lost_by_copy(id, status);
        if (!status.ok() && !lost && (stopping_ || ++tries > kTriesMax)) {
            lose_device(memory_.device_of(slab));
            lost = true;
        }
        if (!status.ok() && !lost) {  // the device is busy: again
            one.range = one.range.empty()
                            ? range
                            : chunk_cache::Range{std::min(range.begin, one.range.begin),
                                                 std::max(range.end, one.range.end)};
            changed_.wait_for(lock, kLookEvery);
            continue;
        }
        if (!one.range.empty() && !lost) continue;
        const Grant of{id, one.seen};
        unsettled_.erase(id);
        unpin_grant(of);
        return;
    }
}

void CacheOfFiles::settle_all(Lock& lock) {
    std::vector<ChunkId> all;
    for (const auto& [id, one] : unsettled_) all.push_back(id);
    for (const ChunkId id : all) settle(lock, id);
}

}  // namespace penstock::file
