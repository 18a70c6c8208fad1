#include "transfer/job.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/spin_until.h"
#include "transfer/reasons.h"

namespace penstock::transfer {
namespace {

// To copy all of staging takes 1.1 ms by PCIe 5, and twice that by PCIe 4. A sleeping thread wakes
// 50 us late.
constexpr uint64_t kSpinNs = 1'500'000;
constexpr std::chrono::hours kForever{24 * 365};

std::atomic<unsigned> spinning_waiters{0};

// Counts this thread as spinning while the object exists. Reading threads need most of the CPUs,
// and all of a single CPU.
class SpinPermit {
public:
    SpinPermit() : granted_(spinning_waiters.fetch_add(1, std::memory_order_relaxed) < most()) {}
    ~SpinPermit() { spinning_waiters.fetch_sub(1, std::memory_order_relaxed); }
    SpinPermit(const SpinPermit&) = delete;
    SpinPermit& operator=(const SpinPermit&) = delete;

    [[nodiscard]] bool granted() const { return granted_; }

private:
    static unsigned most() {
        static const unsigned cpus = std::thread::hardware_concurrency();
        return cpus < 2 ? 0 : std::max(1u, cpus / 4);
    }

    const bool granted_;
};

}  // namespace

Job::Job(std::shared_ptr<Source> source, std::vector<Piece> pieces, bool write, bool device_memory,
         const ReadOptions& options, uint64_t window_size, std::shared_ptr<void> keep)
    : source_(std::move(source)),
      write_(write),
      device_memory_(device_memory),
      options_(options),
      created_ns_(base::monotonic_ns()),
      keep_(std::move(keep)),
      cutter_(std::move(pieces), window_size) {
    report_.bytes_asked = to_read_ = left_ = cutter_.left();
    if (!cutter_.pieces().empty()) report_.offset = cutter_.pieces().front().offset;
    if (left_ == 0) end(std::unique_lock(mutex_));
}

// Requires mutex_. Returns whether most of the next bytes go through the cache, as far as is known.
// A staged range waits for its misses and keeps its staging meanwhile. So after a miss the file
// must have been hot for longer.
bool Job::is_likely_cached() const {
    return source_->policy(options_).goes_through_cache(window_size_max()) ||
           (cutter_.missed() ? source_->long_hot() : source_->hot());
}

// Requires mutex_. Opens a staged range if one may begin here. Returns false if the next window
// must wait: the first staged range for its staging (`unprepared`), others until a copy is done.
bool Job::begin_range(StagedRanges* ranges, bool* unprepared) {
    if (!cutter_.may_open() || !device_memory_ || write_ || source_->policy(options_).asks_direct())
        return true;
    if (!is_likely_cached()) {
        cutter_.miss();
        return true;
    }
    *unprepared = !ranges->prepared();
    if (*unprepared) return false;
    const Window next = cutter_.next_range();
    StagedRange* const range = ranges->open(
        [job = shared_from_this()](const FinishedWindow& finished, Callbacks* deferred) {
            job->finish({&finished.window, 1}, {&finished.outcome, 1}, finished.report, deferred);
        },
        next.to, next.offset, next.size);
    if (range == nullptr) return ranges->refused();
    staged_ranges_ = ranges;
    cutter_.open(range);
    return true;
}

size_t Job::take(std::span<Window> out, StagedRanges* ranges) {
    for (;;) {
        bool unprepared = false;
        const size_t count = take_some(out, ranges, &unprepared);
        if (count > 0 || !unprepared) return count;
        ranges->prepare();  // without mutex_, so that other threads can use it
        if (!ranges->prepared()) return 0;
    }
}

size_t Job::take_some(std::span<Window> out, StagedRanges* ranges, bool* unprepared) {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return 0;
    size_t count = 0;
    for (; count < out.size() && !put_back_.empty(); put_back_.pop_back())
        out[count++] = put_back_.back();
    while (count < out.size() && cutter_.left() > 0) {
        if (ranges != nullptr && !begin_range(ranges, unprepared)) break;
        out[count++] = cutter_.cut();
    }
    if (count > 0 && taken_ns_ == 0) taken_ns_ = base::monotonic_ns();
    return count;
}

bool Job::has_windows() const {
    const std::lock_guard lock(mutex_);
    return !cancelled_ && (cutter_.left() > 0 || !put_back_.empty());
}

void Job::put_back(std::span<const Window> windows) {
    std::unique_lock lock(mutex_);
    if (!cancelled_) {
        put_back_.insert(put_back_.end(), windows.rbegin(), windows.rend());
        return;
    }
    for (const Window& window : windows) left_ -= window.size;
    if (left_ == 0) end(std::move(lock));
}

void Job::finish(std::span<const Window> windows, std::span<const Outcome> outcomes,
                 const Report& part, Callbacks* deferred) {
    std::unique_lock lock(mutex_);
    add(part);
    for (size_t i = 0; i < windows.size(); ++i) {
        left_ -= windows[i].size;
        if (windows[i].range == nullptr) to_read_ -= windows[i].size;
        if (outcomes[i].bytes < windows[i].size)
            gaps_.push_back({windows[i].piece, windows[i].offset + outcomes[i].bytes});
    }
    if (left_ == 0) end(std::move(lock), deferred);
}

void Job::all_staged(uint64_t size) {
    const std::lock_guard lock(mutex_);
    to_read_ -= size;
    if (to_read_ != 0 || done()) return;
    spin_until_ns_ = base::monotonic_ns() + kSpinNs;
    changed_.notify_all();
}

void Job::add(const Report& part) {
    if (append()) report_.offset = part.offset;
    add_bytes(&report_, part);
    report_.plan_ns += part.plan_ns;
    report_.predicted_ns += part.predicted_ns;
    report_.transfers += part.transfers;
    report_.direct_depth = std::max(report_.direct_depth, part.direct_depth);
    report_.copy_ns = part.copy_ns;  // the last report counts
    if (part.error_number != 0)
        add_error(&report_, part.error_number, part.error_offset, part.error_route);
}

// Requires mutex_, and releases it before it calls a callback.
void Job::end(std::unique_lock<std::mutex> lock, Callbacks* deferred) {
    const uint64_t now = base::monotonic_ns();
    if (taken_ns_ != 0) {
        report_.queue_ns = taken_ns_ - created_ns_;
        report_.copy_ns = std::min(report_.copy_ns, now - taken_ns_);
        report_.read_ns = now - taken_ns_ - report_.copy_ns;
    }
    // Bytes whose residency was never asked for count as unknown.
    uint64_t known = 0;
    for (const uint64_t bytes : report_.residency_bytes) known += bytes;
    if (known < report_.bytes) {
        report_.residency_bytes[static_cast<size_t>(Residency::kUnknown)] += report_.bytes - known;
    }
    std::sort(gaps_.begin(), gaps_.end(), [](const Gap& a, const Gap& b) {
        return a.piece != b.piece ? a.piece < b.piece : a.at < b.at;
    });
    Callbacks callbacks;
    callbacks.swap(callbacks_);
    std::shared_ptr<void> keep;
    keep.swap(keep_);
    done_.store(true, std::memory_order_release);  // partner: done()
    changed_.notify_all();
    lock.unlock();
    if (deferred == nullptr) {
        for (const auto& callback : callbacks) callback();
    } else {
        deferred->insert(deferred->end(), std::make_move_iterator(callbacks.begin()),
                         std::make_move_iterator(callbacks.end()));
    }
}

bool Job::wait(std::chrono::nanoseconds limit) const {
    if (done() || limit <= std::chrono::nanoseconds(0)) return done();
    limit = std::min<std::chrono::nanoseconds>(limit, kForever);
    const uint64_t end_ns = base::monotonic_ns() + static_cast<uint64_t>(limit.count());
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return done() || spin_until_ns_ != 0; });
    uint64_t now_ns = base::monotonic_ns();
    if (const uint64_t until_ns = std::min(spin_until_ns_, end_ns); now_ns < until_ns) {
        lock.unlock();
        if (const SpinPermit permit; permit.granted())
            (void)base::spin_until(until_ns - now_ns, [this] { return done(); });
        lock.lock();
        now_ns = base::monotonic_ns();
    }
    if (now_ns >= end_ns) return done();
    const std::chrono::nanoseconds left(end_ns - now_ns);
    return changed_.wait_for(lock, left, [this] { return done(); });
}

bool Job::cancel() {
    std::unique_lock lock(mutex_);
    if (cancelled_) return true;
    if (taken_ns_ != 0 || done()) return false;
    cancelled_ = true;
    end(std::move(lock));
    return true;
}

void Job::stop() {
    std::unique_lock lock(mutex_);
    if (cancelled_ || done()) return;
    uint64_t untaken = cutter_.left();
    for (const Window& window : put_back_) untaken += window.size;
    if (untaken == 0) return;
    cancelled_ = true;
    left_ -= untaken;
    if (left_ == 0) return end(std::move(lock));
    // Windows taken of an open staged range end only after shorten() below, so the job cannot end
    // before.
    if (cutter_.range_left() == 0) return;
    const std::shared_ptr<void> keep = keep_;  // others may end the job, which owns staged_ranges_
    lock.unlock();
    staged_ranges_->shorten(cutter_.range(), cutter_.range_left());
}

void Job::on_done(std::function<void()> callback) {
    {
        const std::lock_guard lock(mutex_);
        if (!done()) {
            callbacks_.push_back(std::move(callback));
            return;
        }
    }
    callback();
}

Result<uint64_t> Job::result() const {
    const char* const call = write_ ? "pwrite" : "pread";
    if (cancelled_) return Status{ECANCELED, call, "it was cancelled"};
    if (report_.error_number == EOPNOTSUPP)
        return Status{EOPNOTSUPP, call, "the route asked for cannot be taken"};
    if (report_.error_number != 0)
        return Status{report_.error_number, call,
                      write_ ? "an extent could not be written" : "an extent could not be read"};
    uint64_t bytes = report_.bytes_asked;
    for (size_t i = 0; i < gaps_.size(); ++i) {
        const Gap& gap = gaps_[i];
        const Piece& of = piece(gap.piece);
        if (i == 0 || gaps_[i - 1].piece != gap.piece) bytes -= of.offset + of.size - gap.at;
    }
    return bytes;
}

}  // namespace penstock::transfer
