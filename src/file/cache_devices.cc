// What becomes of the memory of a file cache: slabs that are given back to their device and taken
// again, devices that are lost, and what they all hold.
//
// A slab is in use, or retiring (it hands out no chunk, and empties), or given back. Whoever
// retires a slab frees it: a call of give_back(), or the watch for those in retiring_. A lost
// device's slabs hand out no chunks either, and stay.
#include <algorithm>
#include <cerrno>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "file/cache_of_files.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;
using chunk_cache::State;
using Clock = std::chrono::steady_clock;

// Bytes of the host that stay free for other programs where no option says how many.
constexpr uint64_t kSpareMemory = 64 << 20;

constexpr auto kPinsEvery = std::chrono::milliseconds(10);
constexpr auto kGrowEvery = std::chrono::seconds(1);
constexpr uint64_t kTakeEveryNs = 1'000'000'000;  // after the host had not so much memory

}  // namespace

// ---- Giving back

// Returns the devices, the one with least free memory first. Without the lock.
std::vector<uint32_t> CacheOfFiles::by_free_memory() const {
    std::vector<uint64_t> free;
    for (uint32_t device = 0; device < options_.devices.size(); ++device)
        free.push_back(memory_.free_memory(device));
    std::vector<uint32_t> order(free.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](uint32_t device) { return free[device]; });
    return order;
}

// Frees the memory of a slab that is retired and empty.
void CacheOfFiles::free_slab(Lock& lock, uint32_t slab) {
    lock.unlock();
    memory_.give_back(slab);
    lock.lock();
    given_back_.push_back(slab);
}

// Waits until a slab has no chunk in use. On an error the slab is in use again.
Status CacheOfFiles::empty_slab(Lock& lock, uint32_t slab, Clock::time_point end) {
    std::array<ChunkId, kRunMax> room{};
    while (chunks_.retire_slab(slab) > 0) {
        withdraw_slab(slab);
        const ChunkId dirty = chunks_.dirty_in(slab);
        Status status;
        if (dirty != kNone) {
            const chunk_cache::FileId file = chunks_.chunk(dirty).file;
            write_back_run(lock, chunks_.begin_run(dirty, room));
            status = failure_of(file);
        } else {
            changed_.wait_for(lock, kPinsEvery);
        }
        if (status.ok() && Clock::now() >= end)
            status = {ETIMEDOUT, "file cache", "the memory is still in use"};
        if (status.ok()) continue;
        if (!lost_[memory_.device_of(slab)]) chunks_.restore_slab(slab);
        return status;
    }
    return {};
}

Result<uint64_t> CacheOfFiles::give_back(uint64_t size, std::chrono::nanoseconds limit) {
    const auto end = Clock::now() + limit;
    uint64_t done = 0;
    while (done < size) {
        const std::vector<uint32_t> order = by_free_memory();
        Lock lock(mutex_);
        uint32_t slab = kNone, untaken = kNone;
        for (size_t i = 0; i < order.size() && slab == kNone && untaken == kNone; ++i) {
            untaken = untaken_of(order[i]);
            slab = chunks_.cheapest_slab(order[i]);
        }
        if (untaken != kNone) {
            forgo(untaken);
        } else if (slab != kNone) {
            if (Status status = empty_slab(lock, slab, end); !status.ok())
                return done > 0 ? Result<uint64_t>(done) : status;
            free_slab(lock, slab);
        } else {
            break;
        }
        ++withheld_;
        done += slab_size();
    }
    return done;
}

// ---- Taking memory as it is needed

// Returns a slab of a device whose memory nothing has needed yet; kNone: there is none.
uint32_t CacheOfFiles::untaken_of(uint32_t device) const {
    for (const uint32_t slab : untaken_)
        if (memory_.device_of(slab) == device && slab != taking_) return slab;
    return kNone;
}

// Counts a slab that was not taken among those that were given back.
void CacheOfFiles::forgo(uint32_t slab) {
    std::erase(untaken_, slab);
    given_back_.push_back(slab);
}

// Returns the slab to take next: of the device that has the fewest free chunks.
uint32_t CacheOfFiles::next_untaken() const {
    uint32_t best = kNone;
    uint64_t fewest = ~0ull;
    for (uint32_t device = 0; device < options_.devices.size(); ++device) {
        const uint32_t slab = untaken_of(device);
        const uint64_t free = chunks_.use_of(device).free;
        if (slab == kNone || free >= fewest) continue;
        best = slab;
        fewest = free;
    }
    return best;
}

// Takes one slab of each device; of GPUs, whose memory other programs would take, all. Before any
// other thread.
Status CacheOfFiles::take_first_memory() {
    std::vector<uint32_t> later;
    std::set<uint32_t> taken;  // devices
    for (const uint32_t slab : untaken_) {
        const uint32_t device = memory_.device_of(slab);
        if (memory_.host_addressable(device) && !taken.insert(device).second) {
            later.push_back(slab);
            continue;
        }
        if (Status status = memory_.take(slab); !status.ok()) return status;
        chunks_.restore_slab(slab);
        ++counts_.allocations;
    }
    untaken_ = later;
    return {};
}

// Returns whether a slab should be taken ahead of need.
bool CacheOfFiles::wants_memory() const {
    return !untaken_.empty() && taking_ == kNone && chunks_.free_count() < kSlabChunks / 4 * 3 &&
           base::monotonic_ns() >= next_taking_ns_;
}

// Sees to it that free chunks are there before others must leave. May give up the lock.
void CacheOfFiles::keep_room(Lock& lock) {
    if (untaken_.empty()) return;
    if (wants_memory()) ahead_.notify_one();
    while (chunks_.free_count() < kSlabChunks / 4) {
        if (wants_memory()) {
            take_memory(lock);
        } else if (taking_ != kNone) {
            changed_.wait(lock);
        } else {
            return;
        }
    }
}

// Takes the memory of one slab. Requires wants_memory().
void CacheOfFiles::take_memory(Lock& lock) {
    const uint32_t slab = next_untaken();
    const uint32_t device = memory_.device_of(slab);
    taking_ = slab;
    lock.unlock();
    // Where memory is short, the kernel ends the process that has most of it, with all that it has
    // not written back.
    const uint64_t spare = std::max(options_.keep_free, kSpareMemory);
    const bool may = memory_.free_memory(device) >= spare + slab_size();
    const bool taken = may && memory_.take(slab).ok();
    lock.lock();
    taking_ = kNone;
    if (taken) {
        std::erase(untaken_, slab);
        chunks_.restore_slab(slab);
        ++counts_.allocations;
    } else {
        next_taking_ns_ = base::monotonic_ns() + kTakeEveryNs;
    }
    changed_.notify_all();
}

// ---- Taking again

// Returns a slab of a device that was given back; kNone: there is none.
uint32_t CacheOfFiles::given_back_of(uint32_t device) const {
    for (const uint32_t slab : given_back_)
        if (memory_.device_of(slab) == device && !lost_[device]) return slab;
    return kNone;
}

Status CacheOfFiles::take_slab(Lock& lock, uint32_t slab) {
    std::erase(given_back_, slab);
    lock.unlock();
    const Status status = memory_.take(slab);
    lock.lock();
    if (!status.ok() || lost_[memory_.device_of(slab)]) {
        given_back_.push_back(slab);
        return status;
    }
    chunks_.restore_slab(slab);
    ++counts_.allocations;
    changed_.notify_all();
    return {};
}

Result<uint64_t> CacheOfFiles::grow(uint64_t size) {
    uint64_t done = 0;
    while (done + slab_size() <= size) {
        std::vector<uint32_t> order = by_free_memory();
        Lock lock(mutex_);
        uint32_t slab = kNone;
        for (size_t i = order.size(); i > 0 && slab == kNone; --i)
            slab = given_back_of(order[i - 1]);
        if (slab == kNone) break;
        if (Status status = take_slab(lock, slab); !status.ok())
            return done > 0 ? Result<uint64_t>(done) : status;
        if (withheld_ > 0) --withheld_;
        done += slab_size();
    }
    return done;
}

// ---- Keeping memory free

// Writes back what is dirty in a slab, once. A file whose write-back fails keeps its pauses.
void CacheOfFiles::write_back_slab(Lock& lock, uint32_t slab) {
    withdraw_slab(slab);
    std::array<ChunkId, kRunMax> room{};
    for (uint32_t left = kSlabChunks; left > 0; --left) {
        const ChunkId dirty = chunks_.dirty_in(slab);
        if (dirty == kNone || stopping_) return;
        if (!failure_of(chunks_.chunk(dirty).file).ok()) return;
        write_back_run(lock, chunks_.begin_run(dirty, room));
    }
}

// Gives back what is missing for other programs, as far as it is clean, and has the rest written
// back. Takes a slab again where there is room.
void CacheOfFiles::keep_free(Lock& lock) {
    const auto count = static_cast<uint32_t>(options_.devices.size());
    std::vector<uint64_t> free(count);
    const std::vector<bool> lost = lost_;
    lock.unlock();
    for (uint32_t device = 0; device < count; ++device)
        if (!lost[device]) free[device] = memory_.free_memory(device);
    lock.lock();
    // The slabs that empty count as free already; they are used again if they need not go.
    const auto add = [&](uint32_t slab, bool more) {
        for (uint32_t device = 0; device < count; ++device)
            if (memory_.share_memory(device, memory_.device_of(slab)))
                free[device] += more ? slab_size() : -slab_size();
    };
    for (const uint32_t slab : retiring_) add(slab, true);
    for (uint32_t device = 0; device < count; ++device) {
        uint32_t slab = kNone;
        while (free[device] < options_.keep_free && (slab = untaken_of(device)) != kNone)
            forgo(slab);
        while (!lost_[device] && free[device] < options_.keep_free &&
               (slab = chunks_.cheapest_slab(device)) != kNone) {
            chunks_.close_slab(slab);
            retiring_.push_back(slab);
            add(slab, true);
        }
    }
    for (const uint32_t slab : std::vector(retiring_)) {
        const uint32_t device = memory_.device_of(slab);
        if (chunks_.retire_slab(slab) == 0) {
            std::erase(retiring_, slab);
            free_slab(lock, slab);
        } else if (free[device] >= options_.keep_free + slab_size() && !lost_[device]) {
            std::erase(retiring_, slab);
            chunks_.restore_slab(slab);
            add(slab, false);
        }
    }
    if (!retiring_.empty()) wake_.notify_one();
    if (Clock::now() - grown_ < kGrowEvery || given_back_.size() <= withheld_) return;
    for (uint32_t device = 0; device < count; ++device) {
        const uint32_t slab = given_back_of(device);
        if (slab == kNone || free[device] <= options_.keep_free + 2 * slab_size()) continue;
        if (memory_.host_addressable(device)) {
            std::erase(given_back_, slab);
            untaken_.push_back(slab);
        } else {
            (void)take_slab(lock, slab);  // if the memory is gone by now, later
        }
        grown_ = Clock::now();
        return;
    }
}

void CacheOfFiles::watch() {
    Lock lock(mutex_);
    while (!stopping_) {
        wake_watch_.wait_for(lock, kLookEvery);
        if (!stopping_) keep_free(lock);
    }
}

// ---- Losing a device

Result<File> CacheOfFiles::file_for_host(const FileBelow& below, bool any_lost) {
    return any_lost ? below.on_host() : Result<File>(below.file);
}

// Returns whether a copy from or to a chunk failed because its device is lost: the caller does
// without it.
bool CacheOfFiles::lost_by_copy(ChunkId id, const Status& status) {
    const uint32_t device = memory_.device_of(id / kSlabChunks);
    if (status.ok() || memory_.host_addressable(device)) return false;
    // Without memory for another stream the device is only busy.
    if (status.error_number() != ENOMEM) lose_device(device);
    return lost_[device];
}

// The same after a transfer of a run, which may also have failed in storage: asks the devices.
bool CacheOfFiles::lost_by_transfer(Lock& lock, std::span<const ChunkId> run) {
    std::set<uint32_t> asked;
    bool lost = false;
    for (const ChunkId id : run) {
        const uint32_t slab = id / kSlabChunks, device = memory_.device_of(slab);
        if (!memory_.host_addressable(device) && !lost_[device] && asked.insert(device).second) {
            lock.unlock();
            const Status status = memory_.probe(slab);
            lock.lock();
            (void)lost_by_copy(id, status);
        }
        lost = lost || lost_[device];
    }
    return lost;
}

void CacheOfFiles::lose_device(uint32_t device) {
    if (lost_[device]) return;
    lost_[device] = true;
    ++counts_.devices_lost;
    std::set<Inode*> lossy;
    for (uint32_t slab = 0; slab < memory_.slab_count(); ++slab) {
        if (memory_.device_of(slab) != device) continue;
        chunks_.close_slab(slab);
        for (ChunkId id = slab * kSlabChunks; id < (slab + 1) * kSlabChunks; ++id) {
            const chunk_cache::FileId file = chunks_.chunk(id).file;
            if (lose_chunk(id)) lossy.insert(by_id_[file]);
        }
    }
    for (Inode* inode : lossy) tell_loss(*inode);
    if (chunks_.dirty_count() == 0) dirty_since_ns_ = 0;
    changed_.notify_all();
}

// Forgets a chunk of a lost device. Returns whether it was dirty. One that is being written back
// stays until that ends.
bool CacheOfFiles::lose_chunk(ChunkId id) {
    const chunk_cache::Chunk& chunk = chunks_.chunk(id);
    if (chunk.stale || chunk.state == State::kFree || chunk.state == State::kWriting) return false;
    const bool dirty = chunk.state == State::kDirty;
    if (dirty) counts_.bytes_lost += chunk.dirty.end - chunk.dirty.begin;
    const uint64_t number = chunk.number;
    drop_chunks(*by_id_[chunk.file], number, number);
    return dirty;
}

// Tells the loss of dirty bytes to the next sync. The file ends where storage and what is still
// dirty end.
void CacheOfFiles::tell_loss(Inode& inode) {
    note_error(inode,
               {EIO, "file cache", "a device was lost with bytes that were not written yet"});
    const uint64_t end = std::max(inode.below.size, chunks_.dirty_end_of(inode.id));
    if (end < inode.size) set_size(inode, end);
    if (inode.handles == 0) unused_.push_back(inode.id);
}

// ---- What there is

FileCacheStatistics CacheOfFiles::statistics() const {
    const uint64_t log_size = log_ == nullptr ? 0 : log_->size();
    const Status log_failure = log_ == nullptr ? Status{} : log_->failure();
    Lock lock(mutex_);
    FileCacheStatistics result = counts_;
    result.tier_log_size = log_size;
    if (!log_failure.ok() && result.tier_log_error.empty())
        result.tier_log_error = log_failure.message() + "; writes go to storage";
    const chunk_cache::Statistics chunks = chunks_.statistics();
    const SharedTable::Hits shared = shared_ == nullptr ? SharedTable::Hits{} : shared_->all_hits();
    result.hits = chunks.hits + shared.hits;
    result.bytes_served += shared.bytes;
    result.misses = chunks.misses;
    result.evicted = chunks.evicted;
    std::vector<uint64_t> sizes(options_.devices.size());  // what devices have not got back
    for (uint32_t slab = 0; slab < memory_.slab_count(); ++slab)
        sizes[memory_.device_of(slab)] += slab_size();
    for (const uint32_t slab : given_back_) {
        sizes[memory_.device_of(slab)] -= slab_size();
        if (!lost_[memory_.device_of(slab)]) result.given_back_size += slab_size();
    }
    std::vector<uint64_t> untaken(options_.devices.size());
    for (const uint32_t slab : untaken_) untaken[memory_.device_of(slab)] += slab_size();
    for (uint32_t device = 0; device < options_.devices.size(); ++device) {
        const chunk_cache::ChunkCache::Use use = chunks_.use_of(device);
        const bool lost = lost_[device];
        result.devices.push_back({.name = options_.devices[device].name(),
                                  .size = lost ? 0 : sizes[device],
                                  .free_size = lost ? 0 : use.free * chunk_size() + untaken[device],
                                  .dirty_size = lost ? 0 : use.dirty * chunk_size(),
                                  .lost = lost});
        result.size += result.devices.back().size;
        result.free_size += result.devices.back().free_size;
    }
    if (tier_ != nullptr) {
        result.tier_size = tier_->size();
        result.tier_used_size = tier_->used_size();
        if (!tier_->error().ok()) result.tier_error = tier_->error().message();
    }
    result.clean_size = chunks.clean * chunk_size();
    result.dirty_size = chunks_.dirty_count() * chunk_size();
    const std::vector<FileBelow> failing = list_failing(&result);
    lock.unlock();
    name_failing(failing, &result);
    return result;
}

}  // namespace penstock::file
