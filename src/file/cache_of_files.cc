#include "file/cache_of_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;

constexpr int kReadersAhead = 4;
constexpr uint64_t kOffsetMax = uint64_t{1} << 62;

}  // namespace

CacheOfFiles::CacheOfFiles(const FileCacheOptions& options)
    : options_(options),
      memory_(options.devices, uint64_t{kSlabChunks} * options.chunk_size),
      chunks_({.chunk_size = options.chunk_size, .slab_chunks = kSlabChunks}),
      lost_(options.devices.size()),
      error_count_(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                         std::chrono::nanoseconds(1))) {}

Result<std::shared_ptr<CacheOfFiles>> CacheOfFiles::create(const FileCacheOptions& options) {
    const bool power = (options.chunk_size & (options.chunk_size - 1)) == 0;
    if (!power || options.chunk_size < 4 << 10 || options.chunk_size > 1 << 20)
        return Status{EINVAL, "chunk size", "must be a power of two from 4 KiB to 1 MiB"};
    const uint64_t slab_size = uint64_t{kSlabChunks} * options.chunk_size;
    if (options.devices.empty() || options.devices.size() > kDevicesMax)
        return Status{EINVAL, "file cache", "it needs 1 to 64 devices"};
    if (options.size < slab_size)
        return Status{EINVAL, "file cache", "its size must be at least 1024 chunks a device"};
    for (const Device& device : options.devices)
        if (options.size > device.free_memory())
            return Status{ENOMEM, "file cache", "the device has not so much free memory"};
    std::shared_ptr<CacheOfFiles> made(new CacheOfFiles(options));
    for (uint64_t taken = 0; taken + slab_size <= options.size; taken += slab_size) {
        for (uint32_t i = 0; i < options.devices.size(); ++i) {
            if (Status s = made->memory_.add_slab(i); !s.ok()) return s;
            const uint32_t slab = made->chunks_.add_slab(i);
            made->chunks_.retire_slab(slab);
            made->untaken_.push_back(slab);
        }
    }
    if (Status s = made->take_first_memory(); !s.ok()) return s;
    made->dirtied_ns_.resize(made->memory_.slab_count() * kSlabChunks);
    if (options.shared)
        if (Status status = made->share(); !status.ok()) return status;
    const uint64_t near_size = made->window_ != nullptr ? made->window_->size()
                                                        : made->memory_.slab_count() * slab_size;
    made->readahead_ = std::make_unique<CacheReadahead>(
        [self = made.get()](auto file, uint64_t number) { return self->is_near(file, number); },
        options.chunk_size, near_size);
    if (!options.tier.empty()) {
        auto tier = FastTier::create(options.tier, options.tier_size, options.chunk_size,
                                     made->options_.devices);
        if (!tier.ok()) return tier.status();
        made->tier_ = std::move(tier.value());
        made->tier_thread_ = std::thread([self = made.get()] { self->fill_tier(); });
    }
    if (Status status = made->open_log(); !status.ok()) return status;
    if (made->log_ != nullptr)
        made->drain_thread_ = std::thread([self = made.get()] { self->drain(); });
    made->start_writer(&CacheOfFiles::work);
    for (int i = 0; i < kHelpers; ++i) made->start_writer(&CacheOfFiles::help);
    made->start_writer(&CacheOfFiles::retry_failing);
    made->calls_thread_ = std::thread([self = made.get()] { self->watch_calls(); });
    for (int i = 0; i < kReadersAhead; ++i)
        made->readers_ahead_.emplace_back([self = made.get()] { self->read_ahead(); });
    if (options.keep_free > 0) made->watch_ = std::thread([self = made.get()] { self->watch(); });
    return made;
}

CacheOfFiles::~CacheOfFiles() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    ahead_.notify_all();
    wake_watch_.notify_all();
    wake_tier_.notify_all();
    wake_drain_.notify_all();
    wake_retry_.notify_all();
    wake_calls_.notify_all();
    wake_help_.notify_all();
    for (std::thread* thread : {&calls_thread_, &watch_, &tier_thread_, &drain_thread_})
        if (thread->joinable()) thread->join();
    for (Writer& writer : writers_) writer.thread.join();
    for (std::thread& reader : readers_ahead_) reader.join();
    // What the log has otherwise waits for the next start.
    if (log_ != nullptr && log_->size() == 0) (void)end_log();
}

std::byte* CacheOfFiles::address(ChunkId id) const {
    return memory_.slab(id / kSlabChunks) + id % kSlabChunks * chunk_size();
}

// Returns how many bytes of a chunk belong to the file.
uint32_t CacheOfFiles::valid_size(const Inode& inode, uint64_t number) const {
    const uint64_t begin = number * chunk_size();
    if (begin >= inode.size) return 0;
    return static_cast<uint32_t>(std::min(inode.size - begin, chunk_size()));
}

// ---- Files

Result<Inode*> CacheOfFiles::open(const FileBelow& below, bool reads, bool writes) {
    const uint64_t forgotten = forgotten_;
    storage::Identity identity;
    if (Status status = storage::identify(below.descriptor, &identity); !status.ok()) return status;
    Lock lock(mutex_);
    auto& place = inodes_[{identity.device, identity.inode}];
    // Of such a file the cache has changed nothing since it was identified. With a log that may
    // come between.
    const bool is_new = place == nullptr && forgotten_ == forgotten && log_ == nullptr;
    if (place == nullptr) {
        auto id = chunks_.add_file();
        while (!id.ok() && forget_idle_file()) id = chunks_.add_file();
        if (id.ok() && window_ != nullptr) window_->add_file(id.value());
        if (id.ok() && tier_ != nullptr) tier_->add_file(id.value());
        if (!id.ok()) {
            inodes_.erase({identity.device, identity.inode});
            return id.status();
        }
        place = std::make_unique<Inode>();
        place->id = id.value();
        if (by_id_.size() <= place->id) by_id_.resize(place->id + 1);
        by_id_[place->id] = place.get();
        if (shared_ != nullptr) place->slot = shared_->add_file(identity.device, identity.inode);
    }
    Inode& inode = *place;
    ++inode.handles;
    if (std::exchange(inode.idle, false)) --idle_count_;
    if (writes && inode.writer.descriptor < 0) {
        inode.writer = below;
        if (reads) inode.reader = below;  // a second descriptor would be in the way of a lease
    }
    if (reads && inode.reader.descriptor < 0) inode.reader = below;
    if (is_new) compare(inode, identity);
    lock.unlock();
    if (log_ != nullptr) meet_in_log(inode, below);
    const Status status = is_new ? Status{} : revalidate(inode, below);
    if (status.ok()) return &inode;
    close(inode);
    return status;
}

Inode* CacheOfFiles::open_again(uint64_t device, uint64_t inode, FileBelow* below) {
    const std::lock_guard lock(mutex_);
    const auto found = inodes_.find({device, inode});
    if (found == inodes_.end() || found->second == nullptr) return nullptr;
    Inode& known = *found->second;
    if (known.handles == 0 || known.reader.descriptor < 0) return nullptr;
    *below = known.reader;
    ++known.handles;
    return &known;
}

bool CacheOfFiles::forget_idle_file() {
    for (auto at = inodes_.begin(); at != inodes_.end(); ++at) {
        Inode* inode = at->second.get();
        if (inode == nullptr || inode->handles > 0 || inode->log.is_logged() ||
            inode->space.listed || !chunks_.remove_file(inode->id).ok())
            continue;
        end_failure(*inode);
        by_id_[inode->id] = nullptr;
        if (window_ != nullptr) window_->remove_file(inode->id);
        if (tier_ != nullptr) tier_->remove_file(inode->id);
        if (shared_ != nullptr) shared_->remove_file(inode->slot);
        inodes_.erase(at);
        ++forgotten_;
        return true;
    }
    return false;
}

// Returns whether a file that is closed must be written back first.
bool CacheOfFiles::are_many_idle() const {
    if (idle_count_ < kIdleMin) return false;
    rlimit limit{};
    const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
    return !known ||
           idle_count_ >= std::clamp<rlim_t>(limit.rlim_cur / kIdleShare, kIdleMin, kIdleMax);
}

void CacheOfFiles::close(Inode& inode) {
    Lock lock(mutex_);
    if (inode.handles == 1) drop_unlinked(lock, inode);
    if (options_.write_on_close || are_many_idle()) {
        lock.unlock();
        (void)sync(inode, false, false, nullptr);  // other handles are told of an error
        lock.lock();
    }
    if (inode.handles == 1 && shared_ != nullptr) withdraw_all(inode, 0, ~0ull);
    if (inode.handles == 1) readahead_->forget(inode.id);
    if (--inode.handles == 0 && chunks_.dirty_of(inode.id) > 0) {
        inode.idle = true;
        ++idle_count_;
    }
    close_idle_files(lock, inode);  // what is still dirty, the thread tries again
}

// Closes the files below of an inode that has no handle and nothing dirty.
void CacheOfFiles::close_idle_files(Lock& lock, Inode& inode) {
    if (inode.handles > 0 || chunks_.dirty_of(inode.id) > 0) return;
    if (inode.log.is_logged()) return;  // storage has yet to be synced
    if (inode.space.listed && inode.space.reaches_beyond(inode.size)) return;
    if (std::exchange(inode.idle, false)) --idle_count_;
    FileBelow reader = std::exchange(inode.reader, {}), writer = std::exchange(inode.writer, {});
    const auto call = begin_call(kNone);  // the inode may go meanwhile
    lock.unlock();
    reader = writer = {};
    lock.lock();
    (void)end_call(call);
}

// Drops what is cached if the file below is another than before.
void CacheOfFiles::compare(Inode& inode, const storage::Identity& identity) {
    if (shared_ != nullptr) collect(inode.id);
    // The cache has what is newest, or is changing it.
    if (chunks_.dirty_of(inode.id) > 0 || inode.writing > 0 || inode.space.promising > 0) return;
    if (!inode.racy && inode.below == identity) return;
    if (inode.below != identity) inode.mtime_ns = inode.ctime_ns = 0;
    ++inode.log.unlogged;
    inode.version = ++versions_;
    inode.below = identity;
    inode.racy = storage::is_racy(identity);
    inode.size = identity.size;
    inode.space.forget_from(0);
    drop_chunks(inode, 0, ~0ull);
    tell_readers(inode);
}

Status CacheOfFiles::revalidate(Inode& inode, const FileBelow& below) {
    Lock lock(mutex_);
    for (;;) {
        const uint64_t changes = inode.own_changes;
        lock.unlock();
        storage::Identity identity;
        if (Status status = storage::identify(below.descriptor, &identity); !status.ok())
            return status;
        lock.lock();
        if (inode.own_changes != changes) continue;  // what was seen may be older than they
        compare(inode, identity);
        return {};
    }
}

void CacheOfFiles::drop(Inode& inode, uint64_t offset, uint64_t size) {
    const std::lock_guard lock(mutex_);
    if (size == 0) return;
    drop_chunks(inode, offset / chunk_size(), (offset + size - 1) / chunk_size());
}

uint64_t CacheOfFiles::size_of(const Inode& inode) const {
    const std::lock_guard lock(mutex_);
    return inode.size;
}

// ---- Writing

// Makes room for a chunk of a file, or for more of its dirty bytes. Errors: those of write-backs of
// this file. Another file that fails is set aside, so trying on ends. This thread writes back its
// own file alone: a program does not wait where another one's storage does not answer.
Status CacheOfFiles::make_room(Lock& lock, Inode& inode) {
    const bool failed = inode.failing.has_value();
    if (!write_back(lock, &inode)) {
        ++waiting_for_room_;
        wake_.notify_one();
        wake_help_.notify_all();
        changed_.wait_for(lock, kLookEvery);
        --waiting_for_room_;
    }
    return failed && inode.failing.has_value() ? inode.failing->error : Status{};
}

// Takes an absent chunk, and puts `all` into it before anyone can see it. Returns kNone if there is
// no memory for it, or the file was changed below meanwhile.
Result<chunk_cache::ChunkId> CacheOfFiles::replace(Lock& lock, Inode& inode, uint64_t number,
                                                   std::span<const std::byte> all) {
    const ChunkId id = chunks_.take(inode.id, number);
    if (id == kNone) return ChunkId{kNone};
    lock.unlock();
    const uint32_t slab = id / kSlabChunks;
    Status status = memory_.copy(slab, address(id), all.data(), all.size());
    if (status.ok()) status = zero(id, all.size());
    lock.lock();
    const bool usable = filled(inode, id, status.ok());
    changed_.notify_all();
    if (usable) return id;
    chunks_.unpin(id);
    return status.ok() || lost_by_copy(id, status) ? Result<ChunkId>(ChunkId{kNone}) : status;
}

// Returns a chunk that may be written, pinned. `from` are its bytes from its first one on; if it
// was absent and they replace all that the file has there, it has them already. kNone: all memory
// was given back or lost, or has bytes that cannot be written.
Result<chunk_cache::ChunkId> CacheOfFiles::writable(Lock& lock, Inode& inode, uint64_t number,
                                                    std::span<const std::byte> from, bool* has) {
    for (;;) {
        *has = !from.empty() && from.size() >= valid_size(inode, number) &&
               !chunks_.holds(inode.id, number);
        auto found = *has ? replace(lock, inode, number, from)
                          : arrived(lock, inode, number, number);
        if (!found.ok() || found.value() != kNone || chunks_.open_slabs() == 0) return found;
        if (!may_make_room()) return found;
        if (Status status = make_room(lock, inode); !status.ok()) return status;
    }
}

// Writes a part of a chunk to storage at once, where no handle may read the rest, or where there is
// no memory. Returns whether that is all: false if the chunk is cached by now, maybe without it.
Result<bool> CacheOfFiles::write_through(Lock& lock, Inode& inode, const FileBelow& below,
                                         const std::byte* from, uint64_t size, uint64_t offset) {
    ++inode.writing;
    const bool any_lost = counts_.devices_lost > 0;
    lock.unlock();
    extend_log_life();
    const auto file = file_for_host(below, any_lost);
    const Status status = file.ok() ? file.value().write(from, size, offset).status()
                                    : file.status();
    lock.lock();
    const uint64_t number = offset / chunk_size();
    drop_copies(inode, number, number);
    ++inode.log.unlogged;
    if (status.ok()) {
        set_size(inode, std::max(inode.size, offset + size));
        counts_.bytes_bypassed += size;
        note_new_bytes(lock, inode, inode.writer.descriptor);
    }
    --inode.writing;
    changed_.notify_all();
    if (!status.ok()) return status;
    return !chunks_.holds(inode.id, number);
}

// Writes a part of one chunk. Returns whether it is done: if not, the caller tries again.
Result<bool> CacheOfFiles::write_part(Lock& lock, Inode& inode, const FileBelow& below,
                                      const std::byte* from, uint64_t size, uint64_t offset) {
    const uint64_t number = offset / chunk_size(), within = offset % chunk_size();
    const bool replaced = within == 0 && size >= valid_size(inode, number);
    const bool bypasses = !replaced && inode.reader.descriptor < 0 &&
                          !chunks_.holds(inode.id, number);
    bool has = false;
    auto found = bypasses ? Result<ChunkId>(ChunkId{kNone})
                          : writable(lock, inode, number, {from, replaced ? size : 0}, &has);
    if (!found.ok()) return found.status();
    const ChunkId id = found.value();
    if (id == kNone) return write_through(lock, inode, below, from, size, offset);
    Status status;
    if (!has) {
        ++inode.writing;  // no comparison with the file below drops the chunk meanwhile
        lock.unlock();
        status = memory_.copy(id / kSlabChunks, address(id) + within, from, size);
        lock.lock();
        --inode.writing;
        changed_.notify_all();
    }
    const bool lost = lost_by_copy(id, status) || is_lost(id);
    if (status.ok() && !lost) {
        note_dirty(id, {static_cast<uint32_t>(within), static_cast<uint32_t>(within + size)});
        note_change(inode, number, number, offset + size);
    }
    chunks_.unpin(id);
    return status.ok() || lost ? Result<bool>(!lost) : status;
}

Result<uint64_t> CacheOfFiles::write(Inode& inode, const FileBelow& below, const std::byte* from,
                                     uint64_t size, uint64_t offset) {
    if (offset > kOffsetMax || size > kOffsetMax) return Status{EFBIG, "write", "out of range"};
    uint64_t done = 0;
    Lock lock(mutex_);
    while (done < size) {
        keep_room(lock);
        while (too_much_dirty(inode))
            if (Status status = make_room(lock, inode); !status.ok())
                return done > 0 ? Result<uint64_t>(done) : status;
        const Writing chunks{inode.id, (offset + done) / chunk_size(),
                             (offset + size - 1) / chunk_size()};
        if (window_ != nullptr) begin_writing(chunks);
        const auto some = write_if_promised(lock, inode, below, from + done, size - done,
                                            offset + done);
        if (window_ != nullptr) end_writing(chunks);
        if (!some.ok()) return done > 0 ? Result<uint64_t>(done) : some.status();
        done += some.value();
    }
    if (much_dirty()) wake_.notify_one();
    return done;
}

// Writes whole chunks, or a part of one. Returns how many bytes: 0 if the caller tries again.
Result<uint64_t> CacheOfFiles::write_some(Lock& lock, Inode& inode, const FileBelow& below,
                                          const std::byte* from, uint64_t size, uint64_t offset) {
    auto many = write_chunks(lock, inode, from, size, offset);
    if (!many.ok() || many.value() > 0) return many;
    const uint64_t part = std::min(size, chunk_size() - offset % chunk_size());
    const auto written = write_part(lock, inode, below, from, part, offset);
    if (!written.ok()) return written.status();
    return written.value() ? part : 0;
}

Status CacheOfFiles::sync(Inode& inode, bool durable, bool data_only, uint64_t* told) {
    const Status status = sync_now(inode, durable, data_only);
    if (told == nullptr) return status;
    const Status earlier = take_error(inode, told);
    return status.ok() ? earlier : status;
}

// Errors: those of this call.
Status CacheOfFiles::sync_now(Inode& inode, bool durable, bool data_only) {
    if (log_ == nullptr) return store(inode, durable, data_only);
    {
        Lock lock(mutex_);
        if (durable && sync_to_log(lock, inode, data_only)) return {};
        if (!durable && !inode.log.is_logged()) {
            lock.unlock();
            return store(inode, false, data_only);
        }
    }
    // Others may change the file from now on, so no record may be left that is replayed over that.
    return sync_to_storage(inode, data_only);
}

// Writes back what is dirty to storage, and makes it durable there if asked to. `sequence` gets the
// last record of the log whose bytes that includes.
Status CacheOfFiles::store(Inode& inode, bool durable, bool data_only, uint64_t* sequence) {
    Lock lock(mutex_);
    collect(inode.id);
    const uint64_t before = inode.error_number;
    const auto is_being_cut = [&] { return sequence != nullptr && inode.truncating; };
    while (is_being_cut() || ((chunks_.dirty_of(inode.id) > 0 || inode.log.appending > 0) &&
                              inode.error_number == before)) {
        // Another thread may have it all under way.
        if (is_being_cut() || !write_back(lock, &inode)) changed_.wait(lock);
    }
    if (sequence != nullptr) *sequence = inode.log.last;
    const Status error = inode.error_number == before ? Status{} : inode.error;
    const File file = inode.writer.descriptor >= 0 ? inode.writer.file : inode.reader.file;
    const uint64_t unlogged = inode.log.unlogged;
    lock.unlock();
    if (!error.ok() || !durable || file.closed()) return error;
    // With a log a change of attributes counts as stored from now on, so all is made durable.
    Status status = file.fsync(data_only && log_ == nullptr);
    lock.lock();
    if (status.ok())
        inode.log.stored = std::max(inode.log.stored, unlogged);
    else if (inode.log.is_ahead())
        inode.log.lost = true;  // storage tells such an error once, and has lost the bytes
    if (!status.ok()) note_error(inode, status);
    return status;
}

}  // namespace penstock::file
