#include "service/file_table.h"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "page_cache/invalidation.h"
#include "penstock/abi/limits.h"
#include "penstock/device/atomic.cuh"
#include "storage/system_calls.h"

namespace penstock::service {
namespace {

using device::DeviceWords;

// Returns a name for messages: for a path through a descriptor, the name of the file behind it.
std::string called(const std::string& path) {
    if (!path.starts_with("/proc/self/fd/")) return path;
    char name[PATH_MAX];
    const ssize_t size = storage::system::readlink(path.c_str(), name, sizeof name);
    return size > 0 ? std::string(name, static_cast<size_t>(size)) : path;
}

}  // namespace

FileTable::FileTable(std::shared_ptr<storage::Storage> storage, backend::Device* device,
                     backend::StreamId stream, FileSystemState* state, FileState* device_files,
                     std::unique_ptr<PageDropper> dropper, transfer::CostsOf costs_of)
    : storage_(std::move(storage)),
      costs_of_(costs_of ? std::move(costs_of)
                         : [known = std::make_shared<transfer::Costs>()](
                               const storage::File&) { return known; }),
      device_(device),
      stream_(stream),
      state_(state),
      device_files_(device_files),
      dropper_(std::move(dropper)),
      numbers_(limits::kFilesMax),
      slots_(limits::kFilesMax),
      directory_(state->directory_size) {}

Result<FileTable::Wanted> FileTable::parse(int flags) {
    constexpr int kKnown = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_CLOEXEC |
                           kOpenWriteOnce | kOpenNoSync;
    const int access = flags & O_ACCMODE;
    const bool writes = access != O_RDONLY;
    const Status invalid{EINVAL, "gopen", "flags that are not known, or do not go together"};
    if ((flags & ~kKnown) != 0 || access == O_ACCMODE) return invalid;
    if (!writes && (flags & (O_TRUNC | O_APPEND | kOpenNoSync)) != 0) return invalid;
    if ((flags & kOpenWriteOnce) != 0 && access != O_WRONLY) return invalid;
    if ((flags & O_EXCL) != 0 && (flags & O_CREAT) == 0) return invalid;
    Wanted wanted;
    wanted.storage_flags = access | (flags & (O_CREAT | O_EXCL));
    wanted.truncates = (flags & O_TRUNC) != 0;
    if (!writes) return wanted;
    wanted.access = kMayWrite | (access == O_WRONLY ? kMayNotRead : 0) |
                    ((flags & O_APPEND) != 0 ? kAppends : 0);
    wanted.writing = kWriting | kHasWriters | ((flags & kOpenWriteOnce) != 0 ? kWritesOnce : 0) |
                     ((flags & kOpenNoSync) != 0 ? kWritesScratch : 0);
    return wanted;
}

Result<Descriptor> FileTable::open(const std::string& path, int flags, Opener opener) {
    const auto parsed = parse(flags);
    if (!parsed.ok()) return parsed.status();
    const Wanted& wanted = parsed.value();
    auto opened = storage_->open(path, wanted.storage_flags);
    if (!opened.ok()) return opened.status();
    const std::shared_ptr<storage::File>& opened_file = opened.value();
    // A partial write of a page reads the page first, unless the file is written once.
    if (!opened_file->rights().read && (wanted.writing & kWritesOnce) == 0)
        return Status{EACCES, "gopen", "a file that is written must be readable too"};
    storage::Identity identity = opened_file->identity();
    auto costs = costs_of_(*opened_file);

    const std::lock_guard lock(mutex_);
    auto found = wanted.truncates ? truncate_unused(*opened_file, identity)
                                  : join(*opened_file, identity, wanted);
    if (!found.ok()) return found.status();
    const uint32_t index = found.value();
    Slot& slot = slots_[index];
    const bool first = slot.references == 0;
    if (first) slot.path = called(path);
    const bool lacks = !first && wanted.writing != 0 && !slot.source->file->rights().write;
    if (first || lacks)
        slot.source = std::make_shared<transfer::Source>(opened_file, std::move(costs));
    if (first) slot.syncs = std::make_shared<SyncGroup>();
    if (Status status = first ? begin_use(index, wanted) : begin_writing(index, wanted);
        !status.ok())
        return status;
    ++slot.references;
    ++open_count_;
    const uint32_t writer = wanted.writing != 0 ? 1 : 0, kernel = opener == Opener::kKernel ? 1 : 0;
    slot.writers += writer;
    slot.kernel_references += kernel;
    slot.kernel_writers += writer * kernel;
    return make_descriptor(state_->system, index, state_->files[index].generation, wanted.access);
}

// Returns a new slot for a file that is cut to nothing. The truncation is the last step that can
// fail. A file that is open here is refused, because its cached pages would become invalid
// unnoticed.
Result<uint32_t> FileTable::truncate_unused(storage::File& file, storage::Identity identity) {
    const auto known = known_.find(key_of(identity));
    if (known != known_.end()) {
        if (slots_[known->second].references > 0)
            return Status{EBUSY, "gopen", "a file that is open cannot be truncated by opening it"};
        supersede(known->second);
    }
    identity.size = 0;
    auto found = slot_for(identity, true, true);
    if (!found.ok()) return found;
    const uint32_t index = found.value();
    Slot& slot = slots_[index];
    Status status = file.truncate(0);
    if (status.ok()) status = file.stat(&identity);
    if (!status.ok()) {
        supersede(index);
        slot.idle = idle_.insert(idle_.begin(), index);
        return status;
    }
    slot.identity = identity;
    slot.racy = storage::is_racy(identity);
    state_->files[index].modified_ns = identity.mtime_ns;
    return index;
}

// Returns the slot of a file that was opened. While the file is open for writing its times say
// nothing, so all opens share one slot. The times may also have been read before the last writer
// had written everything.
Result<uint32_t> FileTable::join(const storage::File& file, storage::Identity identity,
                                 const Wanted& wanted) {
    const auto found = known_.find(key_of(identity));
    if (found == known_.end()) {
        // The identity was read before the lock, when the file may still have been open and
        // written.
        if (Status status = file.stat(&identity); !status.ok()) return status;
        return slot_for(identity, storage::is_racy(identity), wanted.writing != 0);
    }
    const Slot& slot = slots_[found->second];
    if (slot.discarding)
        return Status{EAGAIN, "gopen", "unwritten data of the file is being discarded; try again"};
    if (slot.references > 0) {
        const uint64_t writing = state_->files[found->second].writing;
        const bool once = ((writing | wanted.writing) & kWritesOnce) != 0;
        const bool all_once = (writing & wanted.writing & kWritesOnce) != 0;
        if (once && !all_once)
            return Status{EBUSY, "gopen", "a file that is written once is open in another way"};
        const bool trusted = !slot.invalidated || slot.writers > 0;
        if (writing != 0 && trusted) return found->second;
        // The reader must see what is written here. A change that the times hide was missed by
        // earlier reads anyway.
        if (wanted.writing != 0 && slot.identity == identity) {
            if (is_fresh(found->second, storage::is_racy(identity)) || trusted)
                return found->second;
        }
    }
    if (slot.identity != identity) {
        if (Status status = file.stat(&identity); !status.ok()) return status;
    }
    return slot_for(identity, storage::is_racy(identity), wanted.writing != 0);
}

// Begins the use of a slot that was closed, and sends the slot to the device.
Status FileTable::begin_use(uint32_t index, const Wanted& wanted) {
    Slot& slot = slots_[index];
    FileState& file = state_->files[index];
    if (slot.idle != idle_.end()) idle_.erase(std::exchange(slot.idle, idle_.end()));
    DeviceWords::store(file.writing, wanted.writing, site::kRelaxed);
    // Windows requested by an older descriptor may arrive after the file was written and closed;
    // the new epoch makes them invalid. It is published after `writing`, so a thread that sees the
    // epoch also counts writes.
    DeviceWords::fetch_add(file.epoch, 1, site::kPublish);
    DeviceWords::store(file.error, 0, site::kRelaxed);
    DeviceWords::store(file.size, slot.identity.size, site::kRelaxed);
    DeviceWords::store(file.stored, slot.identity.size, site::kRelaxed);
    DeviceWords::store(file.generation, file.generation + 1, site::kRelaxed);  // odd: open
    Status sent = send(index);
    if (sent.ok()) return {};
    DeviceWords::store(file.generation, file.generation + 1, site::kRelaxed);
    slot.source.reset();
    slot.idle = idle_.insert(idle_.end(), index);
    return sent;
}

// Handles another open of a file in use. If it is the first one for writing, windows requested
// before are no longer trusted.
Status FileTable::begin_writing(uint32_t index, const Wanted& wanted) {
    FileState& file = state_->files[index];
    const bool first = file.writing == 0;
    if (wanted.writing == 0) return {};
    const uint64_t scratch = first ? kWritesScratch : file.writing & kWritesScratch;
    const uint64_t writing = (file.writing | wanted.writing) & ~kWritesScratch;
    DeviceWords::store(file.writing, writing | (wanted.writing & scratch), site::kRelaxed);
    if (first) {
        grow_directory(index);
        DeviceWords::fetch_add(file.epoch, 1, site::kPublish);
    }
    return send(index, first);
}

Result<uint32_t> FileTable::slot_for(const storage::Identity& identity, bool racy, bool grows) {
    const auto found = known_.find(key_of(identity));
    if (found != known_.end()) {
        const uint32_t index = found->second;
        if (slots_[index].identity == identity && is_fresh(index, racy)) {
            if (grows && slots_[index].references == 0) grow_directory(index);
            return index;
        }
        supersede(index);
    }
    auto empty = empty_slot();
    if (!empty.ok()) return empty;
    const uint32_t index = empty.value();
    if (Status status = reserve_directory(index, identity.size, grows); !status.ok()) {
        empty_.push_back(index);
        return status;
    }
    Slot& slot = slots_[index];
    if (number_of(index) != 0 && reused_) reused_(index, slot.path);
    slot = Slot{};
    slot.identity = identity;
    slot.racy = racy;
    slot.idle = idle_.end();
    numbers_[index].store(++file_count_ << 16 | index, std::memory_order_relaxed);
    known_[key_of(identity)] = index;
    FileState& file = state_->files[index];
    DeviceWords::store(file.size, identity.size, site::kRelaxed);
    DeviceWords::store(file.stored, identity.size, site::kRelaxed);
    file.device = identity.device;
    file.inode = identity.inode;
    file.modified_ns = identity.mtime_ns;
    file.mode = S_IFREG;
    DeviceWords::store(file.advice, 0, site::kRelaxed);
    DeviceWords::store(file.missing, 0, site::kRelaxed);
    return index;
}

// Returns whether the pages of a slot are those of the file as it is now. The identity is the same.
// If the times may hide a change, the pages are dropped, so that all opens of a file that has just
// been written share one slot. Returns false if a page is held or the file was found shorter.
bool FileTable::is_fresh(uint32_t index, bool racy) {
    Slot& slot = slots_[index];
    if (!slot.racy && !slot.invalidated) return true;
    if (size_of(index) != slot.identity.size) return false;
    if (dropper_ != nullptr && !dropper_->possible()) return false;
    if (!drop_pages(index)) return false;
    slot.racy = racy;
    slot.invalidated = false;
    return true;
}

// Marks the slot's file as changed. The slot still serves its open descriptors, and is the first to
// be reused after they are closed.
void FileTable::supersede(uint32_t index) {
    Slot& slot = slots_[index];
    slot.superseded = true;
    known_.erase(key_of(slot.identity));
    if (slot.idle != idle_.end()) idle_.splice(idle_.begin(), idle_, slot.idle);
}

// Returns a slot without a file: an unused one, or else that of the file that was closed longest
// ago.
Result<uint32_t> FileTable::empty_slot() {
    const bool superseded = !idle_.empty() && slots_[idle_.front()].superseded;
    if (empty_.empty() && (superseded || used_ == limits::kFilesMax)) (void)forget_some();
    if (!empty_.empty()) {
        const uint32_t index = empty_.back();
        empty_.pop_back();
        return index;
    }
    if (used_ < limits::kFilesMax) return used_++;
    return Status{ENFILE, "gopen", "every file slot is in use: close some files"};
}

// Forgets one closed file. Returns false if there is none whose pages can be dropped now.
bool FileTable::forget_some() {
    for (size_t tries = idle_.size(); tries > 0; --tries) {
        if (dropper_ != nullptr && !dropper_->possible()) return false;
        if (forget(idle_.front())) return true;
        // A view holds a page of it, so other files are tried first.
        idle_.splice(idle_.end(), idle_, idle_.begin());
    }
    return false;
}

// Drops the pages and the directory of a closed file, which empties its slot. Returns false if a
// page is held.
bool FileTable::forget(uint32_t index) {
    if (!drop_pages(index)) return false;
    directory_.give_back(state_->files[index].directory_first,
                         state_->files[index].directory_count);
    Slot& slot = slots_[index];
    if (!slot.superseded) known_.erase(key_of(slot.identity));
    idle_.erase(slot.idle);
    slot.idle = idle_.end();
    empty_.push_back(index);
    return true;
}

// Drops the pages of a file: on the host if it can address the page table, else by a kernel.
// Windows of the file are not accepted any more, even if its pages stay.
bool FileTable::drop_pages(uint32_t index) {
    uint64_t& epoch = state_->files[index].epoch;
    // A read-modify-write, so that every thread sees it before this one looks at the page table.
    DeviceWords::fetch_add(epoch, 1, site::kPublish);
    if (!send(index, state_->files[index].writing == 0).ok()) return false;
    if (dropper_ == nullptr) return page_cache::drop_file(*state_, index);
    const FileState& file = state_->files[index];
    return dropper_->drop(file.directory_first, file.directory_count);
}

// Returns the directory words of a file of `size` bytes. If it `grows`, includes those that it may
// grow into.
uint64_t FileTable::directory_words(uint64_t size, bool grows) const {
    const uint64_t pages = (size + (1ull << state_->page_shift) - 1) >> state_->page_shift;
    const uint64_t words = std::max<uint64_t>(
        1, (pages + limits::kLeafEntries - 1) / limits::kLeafEntries);
    return grows ? std::max<uint64_t>(2 * words, limits::kGrowingWordsMin) : words;
}

Status FileTable::reserve_directory(uint32_t index, uint64_t size, bool grows) {
    if (directory_words(size, false) > state_->directory_size)
        return {EFBIG, "gopen", "the file has more pages than the page table has room for"};
    const uint64_t words = std::min(directory_words(size, grows), state_->directory_size);
    for (;;) {
        if (const auto first = directory_.take(words); first.has_value()) {
            FileState& file = state_->files[index];
            DeviceWords::store(file.directory_first, *first, site::kRelaxed);
            DeviceWords::store(file.directory_count, words, site::kRelaxed);
            return {};
        }
        if (!forget_some())
            return {ENFILE, "gopen", "the page table has no room for another file of this size"};
    }
}

// Gives a file that is written the missing words behind its own, as far as they are free. The words
// that it has cannot move.
void FileTable::grow_directory(uint32_t index) {
    FileState& file = state_->files[index];
    const uint64_t count = file.directory_count;
    const uint64_t wanted = directory_words(size_of(index), true);
    if (wanted <= count) return;
    const uint64_t more = directory_.take_at(file.directory_first + count, wanted - count);
    if (more > 0) DeviceWords::store(file.directory_count, count + more, site::kRelaxed);
}

FileTable::Slot* FileTable::find_open(Descriptor descriptor) {
    if (descriptor < 0 || descriptor_system(descriptor) != state_->system) return nullptr;
    const uint32_t index = descriptor_slot(descriptor);
    if (index >= used_ || slots_[index].references == 0) return nullptr;
    const bool same = (state_->files[index].generation & 0xffffffff) ==
                      descriptor_generation(descriptor);
    return same ? &slots_[index] : nullptr;
}

// Returns what the last writer must do before the file is closed, or nothing if it may be closed.
std::optional<int64_t> FileTable::before_close(uint32_t index, bool last, bool reclaims,
                                               Closing how) {
    Slot& slot = slots_[index];
    if (how == Closing::kHasForgotten || how == Closing::kHasLeft) {
        // Some pinned pages hold bytes that are in no file, so later opens get another slot.
        if (how == Closing::kHasLeft && !slot.superseded) supersede(index);
        slot.discarding = false;
        return std::nullopt;
    }
    if (how == Closing::kAsks && (last || reclaims)) {
        slot.unwritten = false;
        return kWriteBackFirst;
    }
    if (!last) return std::nullopt;
    // An open and close during the last writer's write-back has written nothing.
    if (std::exchange(slot.unwritten, false)) return kWriteBackFirst;
    const bool scratch = (state_->files[index].writing & kWritesScratch) != 0;
    if (how != Closing::kCannotWrite && !scratch) return std::nullopt;
    slot.discarding = true;
    return kForgetFirst;
}

Result<int64_t> FileTable::close(Descriptor descriptor, Opener opener, Closing how) {
    const std::lock_guard lock(mutex_);
    Slot* slot = find_open(descriptor);
    if (slot == nullptr) return Status{EBADF, "gclose", "no such open file"};
    const uint32_t index = descriptor_slot(descriptor);
    const bool reclaims = opener == Opener::kReclaim;
    const bool writes = (reclaims || (descriptor & kMayWrite) != 0) && slot->writers > 0;
    if (writes) {
        const bool last = reclaims ? slot->writers == slot->kernel_writers : slot->writers == 1;
        if (const auto first = before_close(index, last, reclaims, how); first.has_value())
            return *first;
    }
    if (reclaims) return 0;
    if (writes && how == Closing::kAsks) slot->unwritten = true;
    if (writes && opener == Opener::kKernel && slot->kernel_writers > 0) --slot->kernel_writers;
    if (writes && --slot->writers == 0) end_writing(index);
    slot->kernel_writers = std::min(slot->kernel_writers, slot->writers);
    release(index, opener);
    return 0;
}

void FileTable::invalidate(uint32_t slot) {
    const std::lock_guard lock(mutex_);
    if (slot < used_) slots_[slot].invalidated = true;
}

// Ends the writing of a file: all data is with the host or discarded. The file's times are those of
// our own writes, so they show no change by others.
void FileTable::end_writing(uint32_t index) {
    Slot& slot = slots_[index];
    FileState& file = state_->files[index];
    // Pages of a file that is written once have holes and must not be read.
    if ((file.writing & kWritesOnce) != 0 && !slot.superseded) supersede(index);
    DeviceWords::fetch_and(file.writing, ~kHasWriters, site::kRelaxed);
    storage::Identity now;
    const bool known = slot.source->file->stat(&now).ok() && now.same_file(slot.identity);
    if (!known) {
        slot.racy = true;
        (void)send(index, slot.references == 1);
        return;
    }
    slot.identity = now;
    slot.racy = storage::is_racy(now);
    DeviceWords::store(file.size, now.size, site::kRelaxed);
    DeviceWords::store(file.stored, now.size, site::kRelaxed);
    file.modified_ns = now.mtime_ns;
    (void)send(index, slot.references == 1);
    send_size(index);
}

void FileTable::release(uint32_t index, Opener opener) {
    Slot& slot = slots_[index];
    if (opener == Opener::kKernel && slot.kernel_references > 0) --slot.kernel_references;
    slot.kernel_references = std::min(slot.kernel_references, --slot.references);
    --open_count_;
    if (slot.references > 0) return;
    // The thread that discarded its data never came back.
    if (std::exchange(slot.discarding, false) && !slot.superseded) supersede(index);
    slot.source.reset();
    slot.idle = idle_.insert(slot.superseded ? idle_.begin() : idle_.end(), index);
    FileState& file = state_->files[index];
    DeviceWords::store(file.generation, file.generation + 1, site::kRelaxed);  // even: closed
    // If this fails, the device may take the descriptor for open; its reads then get EBADF.
    (void)send(index, file.writing == 0);
}

uint64_t FileTable::close_kernel_files() {
    const std::lock_guard lock(mutex_);
    uint64_t count = 0;
    for (uint32_t i = 0; i < used_; ++i) {
        const uint32_t writers = std::exchange(slots_[i].kernel_writers, 0);
        slots_[i].writers -= writers;
        if (writers > 0 && slots_[i].writers == 0) end_writing(i);  // written back by the caller
        while (slots_[i].kernel_references > 0) {
            release(i, Opener::kKernel);
            ++count;
        }
    }
    return count;
}

}  // namespace penstock::service
