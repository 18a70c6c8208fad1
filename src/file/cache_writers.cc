// The threads that write back, and what becomes of them where storage does not answer: a server
// that is away, or a file system that is frozen. The file is set aside as one whose write-back
// fails, so that no other thread waits for it too, and the work of the thread that waits is done by
// another.
#include <csignal>

#include "base/clock.h"
#include "file/cache_of_files.h"

namespace penstock::file {
namespace {

using chunk_cache::kNone;

constexpr uint64_t kHangs_ns = 5'000'000'000;  // what takes longer is a hang
constexpr size_t kWritersMax = 64;             // with those that wait

}  // namespace

thread_local CacheOfFiles::Writer* CacheOfFiles::this_writer_ = nullptr;

// Starts a thread that writes back. Requires that no other thread looks at writers_, or the lock.
void CacheOfFiles::start_writer(void (CacheOfFiles::*loop)(const Writer&)) {
    Writer& writer = writers_.emplace_back();
    writer.loop = loop;
    writer.thread = std::thread([this, &writer] {
        sigset_t lease_signal;
        sigemptyset(&lease_signal);
        sigaddset(&lease_signal, SIGIO);
        pthread_sigmask(SIG_BLOCK, &lease_signal, nullptr);
        this_writer_ = &writer;
        (this->*writer.loop)(writer);
        const std::lock_guard lock(mutex_);
        writer.ended = true;
    });
}

// Enters a call on a file below that this thread is about to make without the lock; kNone: a close,
// after which the cache may forget the file.
CacheOfFiles::Calls::iterator CacheOfFiles::begin_call(chunk_cache::FileId file) {
    return calls_.insert(calls_.end(), {base::monotonic_ns(), file, this_writer_, false});
}

// Ends it. Returns whether it was a hang of a file, which was told.
bool CacheOfFiles::end_call(Calls::iterator call) {
    const Call ended = *call;
    calls_.erase(call);
    if (!ended.hangs || ended.file == kNone) return false;
    Inode& inode = *by_id_[ended.file];
    if (--inode.hanging == 0 && !inode.failing.has_value()) chunks_.set_aside(inode.id, false);
    changed_.notify_all();
    return true;
}

// Looks for calls that hang.
void CacheOfFiles::watch_calls() {
    Lock lock(mutex_);
    while (!stopping_) {
        wake_calls_.wait_for(lock, kLookEvery);
        std::vector<FileBelow> told;
        const uint64_t now_ns = base::monotonic_ns();
        for (Call& call : calls_) {
            if (call.hangs || now_ns < call.begun_ns + kHangs_ns) continue;
            call.hangs = true;
            if (call.file != kNone) {
                Inode& inode = *by_id_[call.file];
                if (++inode.hanging == 1) told.push_back(inode.writer);
                chunks_.set_aside(inode.id, true);
            }
            if (call.writer == nullptr || writers_.size() >= kWritersMax) continue;
            call.writer->replaced = true;
            start_writer(call.writer->loop);
        }
        for (FileBelow& file : told)
            tell_failure(lock, std::move(file),
                         {ETIMEDOUT, "write-back", "storage does not answer"});
        for (auto writer = writers_.begin(); writer != writers_.end();) {
            if (!writer->ended) {
                ++writer;
                continue;
            }
            writer->thread.join();
            writer = writers_.erase(writer);
        }
    }
}

// ---- Their loops

void CacheOfFiles::work(const Writer& self) {
    Lock lock(mutex_);
    while (!stopping_ && !self.replaced) {
        wake_.wait_for(lock, kLookEvery);
        const uint64_t wanted = looks_wanted_;
        if (!reserved_.empty()) give_back_reserved(lock, wanted != looks_done_);
        if (std::exchange(looks_done_, wanted) != wanted) changed_.notify_all();
        collect(kNone);
        settle_all(lock);
        for (const uint32_t slab : std::vector(retiring_)) write_back_slab(lock, slab);
        for (const chunk_cache::FileId id : std::exchange(unused_, {}))
            if (by_id_[id] != nullptr) close_idle_files(lock, *by_id_[id]);
        while ((much_dirty() || waiting_for_room_ > 0) && !stopping_ && !self.replaced)
            if (!write_back(lock, nullptr)) break;
        const auto age = std::chrono::nanoseconds(
            dirty_since_ns_ == 0 ? 0 : base::monotonic_ns() - dirty_since_ns_);
        if (age < options_.dirty_age) continue;
        // What is dirty now, and no more: a writer may be as fast as this thread.
        for (uint64_t left = chunks_.dirty_count(); left > 0 && !stopping_ && !self.replaced;
             --left)
            if (!write_back(lock, nullptr)) break;
        if (dirty_since_ns_ != 0) dirty_since_ns_ = base::monotonic_ns();
    }
    if (!self.replaced) give_back_reserved(lock, true);
}

// Writes back beside the first thread while programs wait, or soon will.
void CacheOfFiles::help(const Writer& self) {
    Lock lock(mutex_);
    while (!stopping_ && !self.replaced) {
        wake_help_.wait(lock);
        while ((much_dirty() || waiting_for_room_ > 0) && !stopping_ && !self.replaced)
            if (!write_back(lock, nullptr)) break;
    }
}

}  // namespace penstock::file
