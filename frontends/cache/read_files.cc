#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>
#include <vector>

#include "clients.h"
#include "json.h"

namespace penstock::cache_service {
namespace {

using cache_protocol::CacheReply;
using cache_protocol::CacheRequest;
using cache_protocol::Request;

// A file of up to this size is fetched as a whole when a program reads its begin.
constexpr uint64_t kWholeSize = 1 << 20;

// Beyond it, no file is written by grants any more.
constexpr size_t kPassedMax = 1 << 20;

size_t open_files_max() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return std::min<size_t>(limit.rlim_cur / 2, 200'000);
}

CacheReply error_reply(int error) {
    CacheReply reply{};
    reply.error = error;
    return reply;
}

CacheReply slot_reply(const std::pair<uint64_t, uint64_t>& key, const CachedFile& file) {
    CacheReply reply{};
    reply.slot = file.use().slot;
    reply.device = key.first;
    reply.inode = key.second;
    return reply;
}

std::string link_of(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

std::string path_of(int descriptor) {
    char path[PATH_MAX];
    const ssize_t size = readlink(link_of(descriptor).c_str(), path, sizeof path);
    return size < 0 ? std::string() : std::string(path, static_cast<size_t>(size));
}

}  // namespace

ReadFiles::ReadFiles(const std::string& folder, FileCache cache)
    : cache_(std::move(cache)),
      folder_(folder.ends_with('/') ? folder : folder + '/'),
      open_max_(open_files_max()),
      leases_([this](int descriptor) { broken(descriptor); }) {}

void ReadFiles::set_mount(uint64_t device, uint64_t below) {
    const std::lock_guard lock(mutex_);
    mount_ = device;
    below_mount_ = below;
    open_max_ /= 2;
}

// Returns why the file of a descriptor is not opened for its sender; 0: it is. The service may have
// more rights than the descriptor says that the sender has.
int ReadFiles::refusal(int descriptor, const struct stat& status, bool writes) const {
    if (!S_ISREG(status.st_mode)) return ESPIPE;
    const int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || (flags & O_PATH) != 0) return EBADF;
    const int mode = flags & O_ACCMODE;
    if (mode == (writes ? O_RDONLY : O_WRONLY)) return EBADF;
    const bool is_of_mount = mount_ != 0 && status.st_dev == mount_;
    return is_of_mount || path_of(descriptor).starts_with(folder_) ? 0 : EXDEV;
}

CacheReply ReadFiles::open(int descriptor, uint32_t how) {
    const bool writes = how == 1;
    struct stat status {};
    if (fstat(descriptor, &status) != 0) return error_reply(errno);
    if (const int why = refusal(descriptor, status, how != 0)) return error_reply(why);
    // The kernel has bytes of a mount's files, and would not see what programs write here.
    if (mount_ != 0 && status.st_dev == mount_) {
        if (writes) return error_reply(EOPNOTSUPP);
        // Nothing would say when a file without a name is to be closed.
        return status.st_nlink == 0 ? error_reply(EAGAIN)
                                    : open_of_mount(status.st_ino, descriptor);
    }
    if (how > 1) return error_reply(EAGAIN);
    const Key key{status.st_dev, status.st_ino};
    if (const auto known = find(key);
        known != nullptr && known->leased && (known->writes || !writes))
        return slot_reply(key, known->file);
    if (is_held(key)) return error_reply(EAGAIN);
    // So would the mount's pages, if programs wrote its files below.
    if (writes && (is_passed(key) || (mount_ != 0 && status.st_dev == below_mount_)))
        return error_reply(EOPNOTSUPP);
    const std::lock_guard one_at_a_time(opening_);
    if (const auto known = find(key);
        known != nullptr && known->leased && (known->writes || !writes))
        return slot_reply(key, known->file);
    if (writes) remove(key);
    // Not the program's own: it may have locks, which would last as long as this one.
    const int flags = (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    const int own = ::open(link_of(descriptor).c_str(), flags);
    if (own < 0) return error_reply(errno);
    const Lease lease = writes ? Lease::kNone : Leases::take(own);
    if (lease == Lease::kRefused || (lease == Lease::kNone && !writes && is_passed(key))) {
        ::close(own);
        return error_reply(EAGAIN);
    }
    auto entry = std::make_shared<Entry>();
    entry->path = path_of(own);
    auto adopted = cache_.adopt(own);
    if (!adopted.ok()) return error_reply(adopted.status().error_number());
    entry->file = std::move(adopted.value());
    if (take_change(key) && !entry->file.refresh().ok()) {
        note_change(key);
        return error_reply(EAGAIN);
    }
    entry->descriptor = own;
    entry->leased = writes || lease == Lease::kHeld;
    entry->writes = writes;
    return enter(key, entry);
}

// A file that a program has open through the mount. All changes of it pass through the cache.
CacheReply ReadFiles::open_of_mount(uint64_t inode, int descriptor) {
    const Key key{below_mount_, inode};
    if (is_passed(key)) return error_reply(EAGAIN);  // a program has mapped it
    (void)take_change(key);                          // all changes pass through the cache
    auto opened = cache_.opened(key.first, key.second);
    if (!opened.ok()) return error_reply(EAGAIN);
    if (const auto known = find(key); known != nullptr && known->leased)
        return slot_reply(key, known->file);
    auto entry = std::make_shared<Entry>();
    entry->path = path_of(descriptor);
    entry->file = std::move(opened.value());
    entry->leased = true;
    return enter(key, entry);
}

CacheReply ReadFiles::drop_bytes(int descriptor) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) return error_reply(errno);
    if (const int why = refusal(descriptor, status, false)) return error_reply(why);
    const bool is_of_mount = mount_ != 0 && status.st_dev == mount_;
    const Key key{is_of_mount ? below_mount_ : status.st_dev, status.st_ino};
    // What programs write by grants is taken from them first.
    if (const auto entry = find(key); entry != nullptr && entry->writes) take_out(key, entry);
    auto file = cache_.opened(key.first, key.second);
    if (!file.ok() && is_of_mount) return error_reply(file.status().error_number());
    if (!file.ok()) {
        const int own = ::open(link_of(descriptor).c_str(), O_RDONLY | O_CLOEXEC);
        if (own < 0) return error_reply(errno);
        file = cache_.adopt(own);
        if (!file.ok()) return error_reply(file.status().error_number());
    }
    CacheReply reply{};
    const uint64_t cached_size = file.value().use().cached_size;
    reply.error = file.value().refresh().error_number();
    if (reply.error == 0) reply.size = cached_size;
    return reply;
}

CacheReply ReadFiles::enter(const Key& key, const std::shared_ptr<Entry>& entry) {
    make_room();
    entry->size = entry->file.size();
    std::shared_ptr<Entry> closed;  // after the lock
    const std::lock_guard lock(mutex_);
    if (const auto old = entries_.find(key); old != entries_.end()) {
        uses_.erase(old->second->use);
        closed = std::exchange(old->second, entry);
    } else {
        entries_[key] = entry;
    }
    uses_.push_front(key);
    entry->use = uses_.begin();
    // It may have been passed since it was opened, and changed.
    const bool passed = held_.contains(key) || changed_.contains(key) ||
                        (entry->writes && passed_.contains(key));
    const bool readable = !passed &&
                          entry->file.publish(entry->leased ? CachedFile::Readable::kUnchanged
                                                            : CachedFile::Readable::kUnlessRecent);
    // A program may have asked for the lease before the entry was there to be found.
    const bool lost = entry->leased && !entry->writes && entry->descriptor >= 0 &&
                      !Leases::holds(entry->descriptor);
    if (readable && !lost) return slot_reply(key, entry->file);
    entry->file.publish(CachedFile::Readable::kNo);
    uses_.erase(entry->use);
    entries_.erase(key);
    return error_reply(EAGAIN);
}

std::shared_ptr<ReadFiles::Entry> ReadFiles::find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    uses_.splice(uses_.begin(), uses_, found->second->use);
    found->second->used = true;
    return found->second;
}

void ReadFiles::used(const CacheRequest& request) {
    if (const auto entry = find({request.device, request.inode}); entry != nullptr)
        entry->file.observe(request.offset, request.size);
}

void ReadFiles::note_change(const Key& key) {
    const std::lock_guard lock(mutex_);
    if (changed_.size() < kPassedMax) changed_.insert(key);
}

bool ReadFiles::take_change(const Key& key) {
    const std::lock_guard lock(mutex_);
    const bool was_full = changed_.size() >= kPassedMax;  // then others were not noted
    return changed_.erase(key) > 0 || was_full;
}

bool ReadFiles::is_held(const Key& key) const {
    const std::lock_guard lock(mutex_);
    return held_.contains(key);
}

bool ReadFiles::is_passed(const Key& key) const {
    const std::lock_guard lock(mutex_);
    return passed_.size() >= kPassedMax || passed_.contains(key);
}

std::shared_ptr<ReadFiles::Entry> ReadFiles::remove(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    const std::shared_ptr<Entry> entry = found->second;
    entry->file.publish(CachedFile::Readable::kNo);
    uses_.erase(entry->use);
    entries_.erase(found);
    return entry;
}

// Takes a file out of the table for a call that is not served. A chunk that was granted beside the
// call would have old bytes where the call writes, and be written over them.
CacheReply ReadFiles::pass(const CacheRequest& request, const Key& key, int process) {
    if (request.writes == cache_protocol::kPassHeld) hold(key, process);
    note_change(key);
    if (request.writes == cache_protocol::kPassForGood) {
        const std::lock_guard lock(mutex_);
        if (passed_.size() < kPassedMax) passed_.insert(key);
    }
    const auto entry = find(key);
    if (entry == nullptr || take_out(key, entry)) return {};
    if (request.writes == cache_protocol::kPassHeld) release(key, process);
    const Status status = entry->file.flush(nullptr);
    return error_reply(status.ok() ? EAGAIN : status.error_number());
}

void ReadFiles::hold(const Key& key, int process) {
    const std::lock_guard lock(mutex_);
    ++held_[key][process];
}

void ReadFiles::release(const Key& key, int process) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(key);
    if (found == held_.end()) return;
    const auto own = found->second.find(process);
    if (own == found->second.end()) return;
    // The call has changed the file by now, after a thread that opens it here has looked at it.
    if (changed_.size() < kPassedMax) changed_.insert(key);
    if (--own->second == 0) found->second.erase(own);
    if (found->second.empty()) held_.erase(found);
}

void ReadFiles::release(int process) {
    const std::lock_guard lock(mutex_);
    for (auto at = held_.begin(); at != held_.end();) {
        const bool held = at->second.erase(process) > 0;
        if (held && changed_.size() < kPassedMax) changed_.insert(at->first);
        at = at->second.empty() ? held_.erase(at) : std::next(at);
    }
}

CacheReply ReadFiles::change(const CacheRequest& request, int process) {
    const bool is_of_mount = mount_ != 0 && request.device == mount_;
    const Key key{is_of_mount ? below_mount_ : request.device, request.inode};
    if (request.kind == Request::kFlush && request.inode == 0) {
        const Status status = flush_all();
        cache_.close_unused();
        return error_reply(status.error_number());
    }
    if (request.kind == Request::kRelease) {
        release(key, process);
        return {};
    }
    if (request.kind == Request::kPass) return pass(request, key, process);
    const auto entry = find(key);
    if (request.kind == Request::kTruncate) {
        if (entry == nullptr || !entry->writes) return error_reply(ESTALE);
        const std::shared_lock lock(entry->granting);
        return error_reply(entry->retiring > 0 ? ESTALE
                                               : entry->file.truncate(request.size).error_number());
    }
    if (request.kind == Request::kClose) {
        if (entry == nullptr) return {};
        (void)take_out(key, entry);
        return error_reply(entry->file.flush(nullptr).error_number());
    }
    if (request.kind == Request::kSync || request.kind == Request::kError)
        return told_reply(request, key, entry);
    if (entry == nullptr) return error_reply(request.kind == Request::kGrant ? ESTALE : 0);
    CacheReply reply{};
    if (request.kind == Request::kGrant) {
        const std::shared_lock lock(entry->granting);
        if (entry->retiring > 0) return error_reply(ESTALE);
        const auto granted = entry->file.grant(request.offset, request.size);
        reply.error = granted.status().error_number();
        if (granted.ok()) reply.size = granted.value();
    } else {
        reply.error = entry->file.flush(nullptr).error_number();
    }
    return reply;
}

// Answers a sync or a close, which tell the program's descriptor what it does not know of errors.
CacheReply ReadFiles::told_reply(const CacheRequest& request, const Key& key,
                                 const std::shared_ptr<Entry>& entry) {
    uint64_t told = request.offset;
    const bool syncs = request.kind == Request::kSync;
    const Status status = entry == nullptr ? cache_.take_error(key.first, key.second, &told)
                          : syncs          ? entry->file.sync(request.size != 0, &told)
                                           : entry->file.finish(&told);
    const bool below = entry == nullptr && syncs && status.ok();  // the program syncs it there
    CacheReply reply = error_reply(below ? ESTALE : status.error_number());
    reply.size = told;
    return reply;
}

// A program waits to change a file: its readers must go to the file below from now on.
void ReadFiles::broken(int descriptor) {
    std::shared_ptr<Entry> entry;
    {
        const std::lock_guard lock(mutex_);
        for (auto at = entries_.begin(); at != entries_.end(); ++at) {
            if (at->second->descriptor != descriptor) continue;
            entry = at->second;
            uses_.erase(entry->use);
            entries_.erase(at);
            break;
        }
    }
    if (entry != nullptr) {
        entry->file.publish(CachedFile::Readable::kNo);
        // With a log of writes nothing is replayed over the change.
        (void)entry->file.flush(nullptr);
    }
    Leases::give_up(descriptor);
}

CacheReply ReadFiles::fetch(const CacheRequest& request) {
    const auto entry = find({request.device, request.inode});
    if (entry == nullptr) return error_reply(ESTALE);
    const bool whole = request.offset == 0 && entry->size <= kWholeSize;
    const auto got = entry->file.fetch(request.offset, whole ? kWholeSize : request.size);
    if (!got.ok()) return error_reply(got.status().error_number());
    CacheReply reply{};
    reply.slot = request.slot;
    reply.size = got.value();
    return reply;
}

void ReadFiles::drop_all() {
    std::vector<std::shared_ptr<Entry>> closed;  // after the lock
    const std::lock_guard lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
        const std::shared_ptr<Entry>& entry = at->second;
        if (entry->writes) {
            ++at;
            continue;
        }
        entry->file.publish(CachedFile::Readable::kNo);
        uses_.erase(entry->use);
        closed.push_back(entry);
        at = entries_.erase(at);
    }
}

void ReadFiles::close_unneeded() {
    constexpr size_t kLooksMax = 2000;
    std::vector<std::pair<Key, std::shared_ptr<Entry>>> closed;
    {
        const std::lock_guard lock(mutex_);
        auto at = entries_.upper_bound(looked_at_);
        for (size_t i = std::min(kLooksMax, entries_.size()); i > 0; --i, ++at) {
            if (at == entries_.end()) at = entries_.begin();
            looked_at_ = at->first;
            Entry& entry = *at->second;
            // A program that goes on to write such a file opens it here again.
            const bool rests = entry.writes && !std::exchange(entry.used, false) &&
                               entry.file.use().dirty_size == 0;
            if (rests || nameless(entry.descriptor) != Nameless::kNo) closed.emplace_back(*at);
        }
    }
    for (const auto& [key, entry] : closed) (void)take_out(key, entry);
}

// Takes a file out of the table, for the file below. That must have all that was written before:
// programs that have it open read and sync it from then on. Returns false if it cannot, and leaves
// the file where it is.
bool ReadFiles::take_out(const Key& key, const std::shared_ptr<Entry>& entry) {
    if (entry->writes) {
        // It leaves the table last: a thread that finds it there until then waits for the same.
        retire(*entry, 1);
        entry->file.end_grants();
        if (!entry->file.flush(nullptr).ok()) {
            retire(*entry, -1);
            return false;
        }
    }
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second != entry) return true;
    entry->file.publish(CachedFile::Readable::kNo);
    uses_.erase(entry->use);
    entries_.erase(found);
    return true;
}

void ReadFiles::retire(Entry& entry, int change) {
    const std::unique_lock lock(entry.granting);
    entry.retiring += change;
}

// Makes room for one more file: that goes which was used first.
void ReadFiles::make_room() {
    Key key;
    std::shared_ptr<Entry> first;
    {
        const std::lock_guard lock(mutex_);
        if (entries_.size() < open_max_) return;
        key = uses_.back();
        first = entries_[key];
    }
    (void)take_out(key, first);
}

// Writes back all files, and keeps none open for writing that could be: other programs may change
// or run them.
Status ReadFiles::flush_all() {
    const std::lock_guard one_at_a_time(opening_);
    std::vector<std::pair<Key, std::shared_ptr<Entry>>> written;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [key, entry] : entries_)
            if (entry->writes) written.emplace_back(key, entry);
    }
    const Status status = cache_.flush();
    for (const auto& [key, entry] : written) (void)take_out(key, entry);
    return status;
}

ReadFiles::~ReadFiles() {
    for (const auto& [key, entry] : entries_) entry->file.publish(CachedFile::Readable::kNo);
}

std::string ReadFiles::json(size_t count) const {
    struct Row {
        CachedFile::Use use;
        const Entry* entry;
    };
    const std::lock_guard lock(mutex_);
    std::vector<Row> rows;
    for (const auto& [key, entry] : entries_) rows.push_back({entry->file.use(), entry.get()});
    count = std::min(count, rows.size());
    std::partial_sort(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(count), rows.end(),
                      [](const Row& a, const Row& b) { return a.use.bytes > b.use.bytes; });
    rows.resize(count);
    std::string text = "[";
    for (const Row& row : rows) {
        if (text.size() > 1) text += ", ";
        text += "{\"path\": " + quoted(row.entry->path) +
                ", \"hits\": " + std::to_string(row.use.hits) +
                ", \"bytes_served\": " + std::to_string(row.use.bytes) +
                ", \"cached_bytes\": " + std::to_string(row.use.cached_size) +
                ", \"dirty_bytes\": " + std::to_string(row.use.dirty_size) + "}";
    }
    return text + "]";
}

}  // namespace penstock::cache_service
