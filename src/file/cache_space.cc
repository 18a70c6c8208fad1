// Room in storage for what is dirty: a full disk is told by the write that it has no room for, not
// by a later write-back, which can tell it to no caller.
//
// Before bytes become dirty storage gives the file blocks for them. Where it has none left, the
// bytes are written to storage at once, and it says why it cannot take them. Where it promises
// nothing, finish() writes back what is dirty when a program closes the file.
//
// A file that grows is given blocks ahead, so that not each write asks for some. Those behind its
// end are given back when all of it is written back.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/file_size_signal.h"
#include "file/cache_of_files.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;

// So far beyond the end of a file a write goes to storage at once, if storage promises nothing: it
// may be more than a file may have there.
constexpr uint64_t kFarBeyond = 16 << 20;

// Bytes that are reserved ahead of a file that is written in order: as many as that has brought up
// to now, in these steps. Small files get none.
constexpr uint64_t kAheadStep = 64 << 10, kAheadMin = 128 << 10, kAheadMax = 16 << 20;
constexpr uint64_t kGrantAhead = 256 << 10;  // of a file that programs write by grants, or its size
// Nothing is reserved ahead where less than so many times that is free: others may need it.
constexpr uint64_t kFreeTimes = 64;
constexpr uint64_t kFreeChunks = 1024;  // of a file system whose files are written by grants

constexpr std::chrono::seconds kCloseMax{1};

constexpr uint64_t kAgainNs = 200'000'000, kAgainMaxNs = 10'000'000'000;

}  // namespace

// Begins what ends when the bytes that storage promises room for are dirty. No blocks are taken
// away meanwhile.
void CacheOfFiles::begin_promising(Lock& lock, Inode& inode) {
    while (inode.space.cutting) changed_.wait(lock);
    ++inode.space.promising;
}

void CacheOfFiles::end_promising(Inode& inode) {
    SpaceBelow& space = inode.space;
    space.used = true;
    list_reserved(inode);
    if (--space.promising > 0) return;
    space.promising_end = 0;
    if (space.cutting) changed_.notify_all();
}

// Has the thread that writes back look at a file that may have blocks behind its end.
void CacheOfFiles::list_reserved(Inode& inode) {
    if (inode.space.listed || !inode.space.reaches_beyond(inode.size)) return;
    inode.space.listed = true;
    reserved_.push_back(inode.id);
}

// Begins a change of the file below that may take blocks away.
void CacheOfFiles::begin_cutting(Lock& lock, Inode& inode) {
    while (inode.space.cutting) changed_.wait(lock);
    inode.space.cutting = true;
    while (inode.space.promising > 0) changed_.wait(lock);
}

// What lies below `known_size` still has its blocks.
void CacheOfFiles::end_cutting(Inode& inode, uint64_t known_size) {
    inode.space.cutting = false;
    inode.space.forget_from(known_size);
    list_reserved(inode);
    changed_.notify_all();
}

SpaceRules CacheOfFiles::rules_of(Lock& lock, const Inode& inode, int descriptor) {
    const uint64_t device = inode.below.device;
    if (const auto known = rules_.find(device); known != rules_.end()) return known->second;
    lock.unlock();
    const SpaceRules rules = space_rules(descriptor);
    lock.lock();
    return rules_.insert_or_assign(device, rules).first->second;
}

// Returns the range that must have blocks before a range becomes dirty. A write-back writes all
// from the first dirty byte of a chunk to the last.
extent::Extent CacheOfFiles::to_promise(const Inode& inode, uint64_t offset, uint64_t size) const {
    uint64_t begin = offset, end = offset + size;
    const uint64_t first = begin / chunk_size() * chunk_size();
    const uint64_t last = (end - 1) / chunk_size() * chunk_size();
    const auto join = [&](const chunk_cache::Range& range, uint64_t at) {
        if (range.empty()) return;
        begin = std::min(begin, at + range.begin);
        end = std::max(end, at + range.end);
    };
    for (const uint64_t at : {first, last}) {
        const ChunkId id = chunks_.at(inode.id, at / chunk_size());
        if (id == kNone) continue;
        join(chunks_.chunk(id).dirty, at);
        join(chunks_.chunk(id).writing, at);
    }
    if (inode.space.promising > 1) {  // the others' bytes are not dirty yet
        const uint64_t known = std::max(inode.size, inode.space.promising_end);
        begin = first;
        end = std::max(end, std::min(last + chunk_size(), known));
    }
    return {begin, end - begin};
}

// Returns whether blocks behind the end of the file can be given back.
bool CacheOfFiles::may_reserve_ahead(Lock& lock, Inode& inode, int descriptor) {
    using Owner = SpaceBelow::Owner;
    if (!rules_of(lock, inode, descriptor).leases) return false;
    if (inode.space.owner == Owner::kUnknown) {
        lock.unlock();
        const bool own = is_own_file(descriptor);
        lock.lock();
        inode.space.owner = own ? Owner::kOwn : Owner::kOther;
    }
    return inode.space.owner == Owner::kOwn;
}

// Returns how many bytes are to be reserved behind a range that is about to be written.
uint64_t CacheOfFiles::ahead_of(Lock& lock, Inode& inode, int descriptor,
                                const extent::Extent& range) {
    SpaceBelow& space = inode.space;
    const bool in_order = range.offset <= space.end && space.begin < range.end();
    space.in_order = in_order ? space.in_order : 0;
    const uint64_t ahead = std::min(space.in_order / kAheadStep * kAheadStep, kAheadMax);
    if (ahead < kAheadMin || range.end() <= inode.size ||
        !may_reserve_ahead(lock, inode, descriptor))
        return 0;
    lock.unlock();
    const uint64_t free = free_space(descriptor);
    lock.lock();
    return free / kFreeTimes >= ahead ? ahead : 0;
}

// Returns whether the file is known to have blocks for a range.
bool CacheOfFiles::has_space(Lock& lock, Inode& inode, int descriptor,
                             const extent::Extent& range) {
    SpaceBelow& space = inode.space;
    space.promising_end = std::max(space.promising_end, range.end());
    if (space.has(range.offset, range.end())) return true;
    if (range.offset >= inode.below.size || !rules_of(lock, inode, descriptor).reserves)
        return false;
    lock.unlock();
    const uint64_t end = end_of_space(descriptor, range.offset);
    lock.lock();
    if (end > range.offset) space.add(range.offset, end);
    return space.has(range.offset, range.end());
}

// Has storage promise room for bytes that are about to become dirty. Returns for how many from
// `offset` on; 0: they must be written to storage now.
uint64_t CacheOfFiles::promise(Lock& lock, Inode& inode, int descriptor, uint64_t offset,
                               uint64_t size) {
    SpaceBelow& space = inode.space;
    const SpaceRules rules = rules_of(lock, inode, descriptor);
    if (!rules.keeps && offset < inode.below.size) ++space.unpromised;
    const extent::Extent range = to_promise(inode, offset, size);
    const bool has = has_space(lock, inode, descriptor, range);
    if (!has && rules.reserves && !space.refused) {
        const uint64_t ahead = ahead_of(lock, inode, descriptor, range);
        int error = ENOSPC;
        if (ahead > 0) error = reserve(lock, inode, descriptor, {range.offset, range.size + ahead});
        if (is_lack_of_space(error)) error = reserve(lock, inode, descriptor, range);
        const uint64_t part = std::min(size, chunk_size() - offset % chunk_size());
        if (is_lack_of_space(error) && part < size) {
            size = part;
            error = reserve(lock, inode, descriptor, to_promise(inode, offset, part));
        }
        if (error != 0 && !space.refused) return 0;
    }
    space.in_order += size;
    if (has || !(space.refused || !rules.reserves)) return size;
    if (offset > inode.size + kFarBeyond) return 0;
    ++space.unpromised;
    return size;
}

// The same for chunks that other programs are to write, anywhere in them.
uint64_t CacheOfFiles::promise_chunks(Lock& lock, Inode& inode, uint64_t offset, uint64_t size) {
    SpaceBelow& space = inode.space;
    const int descriptor = inode.writer.descriptor;
    const SpaceRules rules = rules_of(lock, inode, descriptor);
    if (!rules.keeps && offset < inode.below.size) space.granted_unpromised = true;
    size = std::min(size, std::max(kGrantAhead, offset));
    const uint64_t begin = offset / chunk_size() * chunk_size();
    const uint64_t chunks = (offset + size - begin + chunk_size() - 1) / chunk_size();
    if (has_space(lock, inode, descriptor, {begin, chunks * chunk_size()})) return size;
    if (!space.refused && may_reserve_ahead(lock, inode, descriptor)) {
        lock.unlock();
        const uint64_t free = free_space(descriptor);
        lock.lock();
        const uint64_t first = std::min(size, begin + chunk_size() - offset);
        if (free < kFreeChunks * chunk_size())
            return has_space(lock, inode, descriptor, {begin, chunk_size()}) ? first : 0;
        int error = reserve(lock, inode, descriptor, {begin, chunks * chunk_size()});
        if (is_lack_of_space(error) && chunks > 1) {
            size = first;
            error = reserve(lock, inode, descriptor, {begin, chunk_size()});
        }
        if (error == 0) return size;
        if (!space.refused) return 0;
    }
    if (offset > inode.size + kFarBeyond) return 0;
    space.granted_unpromised = true;
    return size;
}

// Has storage give blocks. Returns 0 or an errno. The times of the file below change, which is no
// change by another program.
int CacheOfFiles::reserve(Lock& lock, Inode& inode, int descriptor, const extent::Extent& range) {
    SpaceBelow& space = inode.space;
    struct stat state {};
    lock.unlock();
    extend_log_life();
    const int error = reserve_space(descriptor, range.offset, range.end());
    const bool known = storage::system::fstat(descriptor, &state) == 0;
    lock.lock();
    if (known) note_reserved(inode, state);
    space.refused = space.refused || error == EOPNOTSUPP || error == ENOSYS;
    if (error != 0 && !is_lack_of_space(error)) return error;
    const uint64_t block = space.block = rules_of(lock, inode, descriptor).block;
    const uint64_t end = (range.end() + block - 1) / block * block;
    space.reserved_end = std::max(space.reserved_end, end);  // after an error some may be there
    if (error == 0) space.add(range.offset / block * block, end);
    return error;
}

// Writes what storage promises room for, or has storage take it at once. Returns how many bytes: 0
// if the caller tries again.
Result<uint64_t> CacheOfFiles::write_if_promised(Lock& lock, Inode& inode, const FileBelow& below,
                                                 const std::byte* from, uint64_t size,
                                                 uint64_t offset) {
    begin_promising(lock, inode);
    const uint64_t room = has_much_failed() ? 0
                                            : promise(lock, inode, below.descriptor, offset, size);
    Result<uint64_t> some = uint64_t{0};
    if (room > 0) some = write_some(lock, inode, below, from, room, offset);
    end_promising(inode);
    if (room > 0) return some;
    const uint64_t part = std::min(size, chunk_size() - offset % chunk_size());
    return write_now(lock, inode, below, from, part, offset);
}

// Writes a part of one chunk to storage, because it promises no room for it. Returns how many bytes
// it took. A write that fails on ext4 takes away all blocks behind the end of the file below. So
// nothing may wait for these: all of the file is written back before.
Result<uint64_t> CacheOfFiles::write_now(Lock& lock, Inode& inode, const FileBelow& below,
                                         const std::byte* from, uint64_t size, uint64_t offset) {
    begin_cutting(lock, inode);
    Status status = empty(lock, inode);
    uint64_t done = 0;
    if (status.ok()) {
        base::FileSizeSignal signal;
        ++inode.writing;
        lock.unlock();
        extend_log_life();
        const ssize_t written = storage::system::pwrite(below.descriptor, from, size,
                                                        static_cast<off_t>(offset));
        if (written < 0) status = {errno, "write", "storage refuses it"};
        if (written < 0 && errno == EFBIG) signal.take();
        lock.lock();
        done = static_cast<uint64_t>(std::max<ssize_t>(written, 0));
        ++inode.log.unlogged;
        drop_chunks(inode, offset / chunk_size(), offset / chunk_size());
        if (done > 0) set_size(inode, std::max(inode.size, offset + done));
        counts_.bytes_bypassed += done;
        if (done > 0) note_new_bytes(lock, inode, below.descriptor);
        --inode.writing;
    }
    end_cutting(inode, inode.size);
    return status.ok() ? Result<uint64_t>(done) : status;
}

// Writes back all of a file that no writer may make dirty meanwhile.
Status CacheOfFiles::empty(Lock& lock, Inode& inode) {
    if (shared_ != nullptr) withdraw_all(inode, 0, ~0ull);
    while (chunks_.dirty_of(inode.id) > 0 || inode.writing > 0) {
        if (!write_back(lock, &inode)) changed_.wait(lock);
        if (inode.failing.has_value()) return inode.failing->error;
    }
    return {};
}

// Does what the close of a written file needs: what storage has not promised to take is written
// back. Some storage tells an error only when a descriptor of its own is closed.
Status CacheOfFiles::finish(Inode& inode, uint64_t* told) {
    uint64_t unpromised = 0;
    FileBelow writer;
    {
        const Lock lock(mutex_);
        if (shared_ != nullptr) collect(inode.id);  // what programs have written by grants
        unpromised = inode.space.unpromised;
        writer = inode.writer;
        if (unpromised == inode.space.settled) return tell_error(inode, told);
    }
    if (Status status = sync(inode, false, false, told); !status.ok()) return status;
    const int copy = storage::system::fcntl(writer.descriptor, F_DUPFD_CLOEXEC, 0);
    const bool closed = copy < 0 || storage::system::close(copy) == 0 || errno == EINTR;
    const Status status{errno, "close", "storage has not taken what was written"};
    const Lock lock(mutex_);
    if (!closed) {
        note_error(inode, status);
        return tell_error(inode, told);
    }
    inode.space.settled = std::max(inode.space.settled, unpromised);
    return {};
}

// ---- Blocks behind the end

// Gives blocks back that were reserved ahead, of files that are not written now. Only the thread
// that writes back calls it. If it hurries, files that have no handle do not wait for a while.
void CacheOfFiles::give_back_reserved(Lock& lock, bool hurries) {
    for (const chunk_cache::FileId id : std::exchange(reserved_, {})) {
        Inode& inode = *by_id_[id];
        SpaceBelow& space = inode.space;
        const bool was_used = std::exchange(space.used, false);
        const bool is_early = was_used || base::monotonic_ns() < space.again_ns;
        const bool waits = !stopping_ && (inode.writing > 0 || chunks_.dirty_of(id) > 0 ||
                                          (is_early && !(hurries && inode.handles == 0)));
        if (!waits && space.reaches_beyond(inode.size)) cut_to_size(lock, inode);
        if (!space.reaches_beyond(inode.size)) {
            space.listed = false;
            close_idle_files(lock, inode);
        } else {
            reserved_.push_back(id);
        }
    }
}

// Has the thread that writes back close the files below that nothing needs any more, and waits for
// a moment until it has: programs cannot be started of files that are open for writing.
void CacheOfFiles::close_unused() {
    Lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + kCloseMax;
    const uint64_t mine = reserved_.empty() ? looks_done_ : ++looks_wanted_;
    wake_.notify_all();
    while (looks_done_ < mine && !stopping_ && std::chrono::steady_clock::now() < deadline)
        changed_.wait_for(lock, kLookEvery);
}

void CacheOfFiles::cut_to_size(Lock& lock, Inode& inode) {
    SpaceBelow& space = inode.space;
    if (space.cutting || space.promising > 0) return;
    begin_cutting(lock, inode);
    if (shared_ != nullptr) {
        withdraw_all(inode, inode.size / chunk_size(), ~0ull);
        collect(inode.id);
    }
    if (inode.writer.descriptor < 0 || chunks_.dirty_of(inode.id) > 0 || inode.writing > 0) {
        if (inode.writer.descriptor < 0) space.reserved_end = 0;
        end_cutting(inode, ~0ull);
        return;
    }
    // A descriptor of the cache's own would count as another program's.
    FileBelow reader;
    if (inode.handles == 0) reader = std::exchange(inode.reader, {});
    const FileBelow writer = inode.writer;
    const uint64_t size = inode.size;
    ++inode.writing;
    const auto call = begin_call(inode.id);
    lock.unlock();
    reader = {};
    extend_log_life();
    struct stat now {};
    const int error = give_back_space(writer.descriptor, size, space.reserved_end, &now);
    lock.lock();
    (void)end_call(call);
    --inode.writing;
    if (error == 0) note_reserved(inode, now);
    if (error == EAGAIN) {
        const uint64_t pause = std::min(kAgainNs << std::min(space.tries++, 6u), kAgainMaxNs);
        space.again_ns = base::monotonic_ns() + pause;
    } else {
        space.reserved_end = 0;
        space.in_order = space.tries = 0;
    }
    end_cutting(inode, error == EAGAIN ? ~0ull : size);
}

}  // namespace penstock::file
