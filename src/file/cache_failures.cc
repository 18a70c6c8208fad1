// Files whose write-back fails. Their dirty chunks are set aside, so that the bytes of other files
// go to storage as before, and are tried again by a thread of their own, after pauses that grow.
#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "file/cache_of_files.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;

constexpr std::chrono::nanoseconds kPauseMin = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kPauseMax = std::chrono::seconds(16);
constexpr size_t kListedMax = 20;
constexpr char kNoAnswer[] = "storage has not answered for ";

// Returns the path of a file below; empty if it is not known.
std::string path_below(const FileBelow& file) {
    std::array<char, 4096> path{};
    const ssize_t size = storage::system::readlink(
        ("/proc/self/fd/" + std::to_string(file.descriptor)).c_str(), path.data(), path.size());
    return {path.data(), size < 0 ? 0 : static_cast<size_t>(size)};
}

uint64_t milliseconds_since(uint64_t time_ns, uint64_t now_ns) {
    return now_ns > time_ns ? (now_ns - time_ns) / 1'000'000 : 0;
}

}  // namespace

// Notes an error that each handle is to be told of that is open now.
void CacheOfFiles::note_error(Inode& inode, const Status& status) {
    inode.error = status;
    inode.error_number = ++error_count_;
    inode.error_told = false;
    if (shared_ != nullptr) shared_->set_error_count(error_count_);
}

// Returns the error that a handle has not been told. One that no handle has been told is told to
// the first that asks, though it was opened later. Requires mutex_.
Status CacheOfFiles::tell_error(Inode& inode, uint64_t* told) {
    const uint64_t known = std::exchange(*told, error_count_);
    if (inode.error_number <= known && inode.error_told) return {};
    inode.error_told = true;
    return inode.error;
}

Status CacheOfFiles::take_error(Inode& inode, uint64_t* told) {
    const Lock lock(mutex_);
    return tell_error(inode, told);
}

Status CacheOfFiles::take_error(uint64_t device, uint64_t inode, uint64_t* told) {
    const Lock lock(mutex_);
    const auto found = inodes_.find({device, inode});
    const bool known = found != inodes_.end() && found->second != nullptr;
    if (known) return tell_error(*found->second, told);
    *told = error_count_;
    return {};
}

// Notes that a write-back has failed. `oldest_ns` is when the oldest of its bytes was written.
// Returns whether this is news.
bool CacheOfFiles::note_failure(Inode& inode, const Status& status, uint64_t oldest_ns) {
    ++counts_.write_errors;
    note_error(inode, status);
    last_error_ = status;
    const bool is_new = !inode.failing.has_value();
    if (is_new) {
        inode.failing.emplace().since_ns = oldest_ns;
        chunks_.set_aside(inode.id, true);
    }
    Inode::Failing& failing = *inode.failing;
    const bool is_news = is_new || failing.error.error_number() != status.error_number();
    failing_.erase({failing.next_ns, inode.id});
    failing.error = status;
    failing.since_ns = std::min(failing.since_ns, oldest_ns);
    failing.pause = std::clamp(2 * failing.pause, kPauseMin, kPauseMax);
    failing.next_ns = base::monotonic_ns() + static_cast<uint64_t>(failing.pause.count());
    failing_.insert({failing.next_ns, inode.id});
    wake_retry_.notify_one();
    return is_news;
}

// Returns why the last write-back of a file has failed; OK where it has not.
Status CacheOfFiles::failure_of(chunk_cache::FileId file) const {
    const Inode* const inode = by_id_[file];
    return inode == nullptr || !inode->failing.has_value() ? Status{} : inode->failing->error;
}

// Notes that storage takes the bytes of a file, or that it has none any more.
void CacheOfFiles::end_failure(Inode& inode) {
    if (!inode.failing.has_value()) return;
    failing_.erase({inode.failing->next_ns, inode.id});
    inode.failing.reset();
    chunks_.set_aside(inode.id, inode.hanging > 0);
}

// Tells the user of the cache about a file, without the lock.
void CacheOfFiles::tell_failure(Lock& lock, FileBelow file, const Status& status) {
    lock.unlock();
    if (options_.write_failed != nullptr) options_.write_failed(path_below(file), status);
    file = {};
    lock.lock();
}

// Tries the file once whose turn it is.
void CacheOfFiles::retry(Lock& lock) {
    Inode& inode = *by_id_[failing_.begin()->second];
    if (chunks_.dirty_of(inode.id) == 0) {
        end_failure(inode);
    } else if (!write_back(lock, &inode)) {
        changed_.wait_for(lock, kLookEvery);  // another thread writes all of it
    }
}

void CacheOfFiles::retry_failing(const Writer& self) {
    Lock lock(mutex_);
    while (!stopping_ && !self.replaced) {
        const uint64_t now_ns = base::monotonic_ns();
        if (failing_.empty()) {
            wake_retry_.wait(lock);
        } else if (failing_.begin()->first > now_ns) {
            wake_retry_.wait_for(lock, std::chrono::nanoseconds(failing_.begin()->first - now_ns));
        } else {
            retry(lock);
        }
    }
}

// Returns when the oldest byte was written that storage lacks; 0: it lacks none.
uint64_t CacheOfFiles::oldest_dirty_ns() const {
    uint64_t oldest_ns = ~0ull;
    if (const ChunkId id = chunks_.first_dirty(); id != kNone) oldest_ns = dirtied_ns_[id];
    if (!writing_since_ns_.empty()) oldest_ns = std::min(oldest_ns, *writing_since_ns_.begin());
    for (const auto& [next_ns, id] : failing_)
        if (chunks_.dirty_of(id) > 0)
            oldest_ns = std::min(oldest_ns, by_id_[id]->failing->since_ns);
    return oldest_ns == ~0ull ? 0 : oldest_ns;
}

// Enters what waits for storage, all but the paths, which need no lock. Returns the files below.
std::vector<FileBelow> CacheOfFiles::list_failing(FileCacheStatistics* to) const {
    const uint64_t now_ns = base::monotonic_ns(), oldest_ns = oldest_dirty_ns();
    if (oldest_ns > 0) to->dirty_age_ms = milliseconds_since(oldest_ns, now_ns);
    std::vector<FileBelow> files;
    const auto list = [&](const Inode& inode, const std::string& error, uint64_t since_ns,
                          uint64_t retry_ms) {
        ++to->failing_count;
        if (files.size() == kListedMax) return;
        files.push_back(inode.writer);
        to->failing.push_back({.path = {},
                               .error = error,
                               .dirty_size = chunks_.dirty_of(inode.id) * chunk_size(),
                               .dirty_age_ms = milliseconds_since(since_ns, now_ns),
                               .retry_ms = retry_ms});
    };
    std::set<chunk_cache::FileId> listed;
    for (const Call& call : calls_) {
        if (!call.hangs || call.file == kNone || !listed.insert(call.file).second) continue;
        const uint64_t seconds = milliseconds_since(call.begun_ns, now_ns) / 1000;
        list(*by_id_[call.file], kNoAnswer + std::to_string(seconds) + " s", call.begun_ns, 0);
    }
    for (const auto& [next_ns, id] : failing_) {
        const Inode& inode = *by_id_[id];
        if (chunks_.dirty_of(id) > 0 && listed.insert(id).second)
            list(inode, inode.failing->error.message(), inode.failing->since_ns,
                 milliseconds_since(now_ns, next_ns));
    }
    return files;
}

void CacheOfFiles::name_failing(std::span<const FileBelow> files, FileCacheStatistics* to) {
    for (size_t i = 0; i < files.size(); ++i) to->failing[i].path = path_below(files[i]);
}

// Writes back what is dirty, each chunk once: also where a file fails.
Status CacheOfFiles::flush() {
    Lock lock(mutex_);
    collect(kNone);
    const uint64_t errors = counts_.write_errors;
    for (uint64_t left = chunks_.dirty_count(); left > 0;) {
        const bool hangs = std::ranges::any_of(calls_, &Call::hangs);
        if (chunks_.dirty_count() == chunks_.aside_count() && !hangs) break;
        if (write_back(lock, nullptr)) {
            --left;
        } else {
            changed_.wait(lock);  // for write-backs of other threads
        }
    }
    std::vector<chunk_cache::FileId> failing;
    for (const auto& [next_ns, id] : failing_) failing.push_back(id);
    for (const chunk_cache::FileId id : failing)
        for (uint64_t left = by_id_[id] == nullptr ? 0 : chunks_.dirty_of(id); left > 0; --left)
            if (!write_back(lock, by_id_[id])) break;
    // What is dirty without an error was written meanwhile.
    if (chunks_.dirty_count() > 0)
        return counts_.write_errors == errors && failing_.empty() ? Status{} : last_error_;
    lock.unlock();
    // One half may have been under way.
    for (int i = 0; log_ != nullptr && i < 2; ++i)
        if (Status status = drain_log(); !status.ok()) return status;
    return {};
}

}  // namespace penstock::file
