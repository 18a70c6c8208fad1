#include "transfer/job.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/look_out.h"
#include "base/units.h"
#include "transfer/section.h"

namespace penstock::transfer {
namespace {

constexpr uint64_t kCutSize = 64 << 10;  // file alignment of cuts that are not at window boundaries
// Windows in a section. All threads must have a share of it, but the cost of giving out a window
// must stay small.
constexpr uint64_t kSectionWindows = 16;
constexpr uint64_t kSectionWindowSizeMin = kPlanSizeMin, kSectionWindowSizeMax = 1 << 20;
// To copy all of staging takes 1.1 ms by PCIe 5, and twice that by PCIe 4. A sleeping thread wakes
// 50 us late.
constexpr uint64_t kAwakeNs = 1'500'000;
constexpr std::chrono::hours kForever{24 * 365};
// The size of the first section after a miss. A miss in a section delays its other windows.
constexpr uint64_t kSectionSizeAgain = 4 << 20;

// Returns the length of the next window, of `left` bytes from `begin` of the file on. It ends at a
// multiple of the window size in the file, so that direct transfers of neighbours meet at aligned
// offsets.
uint64_t cut_window(uint64_t begin, uint64_t left, uint64_t window_size) {
    if (left <= window_size) return left;
    uint64_t size = window_size - begin % window_size;
    // Less than kPlanSizeMin would go through the page cache and stay there.
    if (size < kPlanSizeMin) size += window_size / 2;
    if (left - size >= kPlanSizeMin) return size;
    return left <= kRequestSizeMax ? left : base::align_down(begin + left / 2, kCutSize) - begin;
}

std::atomic<unsigned> awake_waiters{0};

// Counts this thread as spinning while the object exists. Reading threads need most of the CPUs,
// and all of a single CPU.
class Awake {
public:
    Awake() : may_be_(awake_waiters.fetch_add(1, std::memory_order_relaxed) < most()) {}
    ~Awake() { awake_waiters.fetch_sub(1, std::memory_order_relaxed); }
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

    [[nodiscard]] bool may_be() const { return may_be_; }

private:
    static unsigned most() {
        static const unsigned cpus = std::thread::hardware_concurrency();
        return cpus < 2 ? 0 : std::max(1u, cpus / 4);
    }

    const bool may_be_;
};

}  // namespace

void add_bytes(Report* to, const Report& from) {
    const auto add_all = [](auto& sums, const auto& more) {
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    };
    to->bytes += from.bytes;
    add_all(to->route_bytes, from.route_bytes);
    add_all(to->reason_bytes, from.reason_bytes);
    add_all(to->residency_bytes, from.residency_bytes);
}

Job::Job(std::shared_ptr<Source> source, std::vector<Piece> pieces, bool write, bool device_memory,
         const ReadOptions& options, uint64_t window_size, std::shared_ptr<void> keep)
    : source_(std::move(source)),
      pieces_(std::move(pieces)),
      write_(write),
      device_memory_(device_memory),
      options_(options),
      window_size_(std::min(window_size, kRequestSizeMax)),
      created_ns_(base::monotonic_ns()),
      keep_(std::move(keep)) {
    size_t jumps = 0;
    for (const Piece& piece : pieces_) {
        if (&piece != pieces_.data() && piece.offset != (&piece)[-1].offset + (&piece)[-1].size)
            ++jumps;
        left_ += piece.size;
        window_count_ += (piece.size + window_size_ - 1) / window_size_;
        window_size_max_ = std::max(window_size_max_, std::min(piece.size, window_size_));
    }
    scattered_ = 2 * jumps > pieces_.size();
    report_.bytes_asked = to_read_ = left_;
    if (device_memory_) section_windows_.reserve(kSectionWindows + 1);  // without a lock
    if (left_ == 0) end(std::unique_lock(mutex_));
}

// Requires mutex_.
uint64_t Job::next_window(const Piece& piece) const {
    return cut_window(piece.offset + next_begin_, piece.size - next_begin_, window_size_);
}

// Requires mutex_.
void Job::advance(uint64_t size) {
    next_begin_ += size;
    if (next_begin_ < pieces_[next_piece_].size) return;
    ++next_piece_;
    next_begin_ = 0;
}

// Requires mutex_. Returns whether a section may begin here, which needs a long range.
bool Job::may_open(const Piece& piece) const {
    return device_memory_ && !write_ && piece.size - next_begin_ >= kSectionSizeMin &&
           !asks_direct(options_);
}

// Requires mutex_. Returns whether most of the next bytes go through the cache, as far as is known.
// A section waits for its misses and keeps its staging meanwhile. So after a miss the file must
// have been hot for longer.
bool Job::goes_through_cache() const {
    return asks_cached(options_) || (missed_ ? source_->long_hot() : source_->hot()) ||
           source_->file->direct_alignment().offset == 0 ||
           source_->direct_refused.load(std::memory_order_relaxed);
}

// Requires mutex_. Returns false if there is no staging before other sections are done.
bool Job::open_section(const Piece& piece, Sections* sections) {
    const uint64_t begin = piece.offset + next_begin_, left = piece.size - next_begin_;
    uint64_t size = next_section_size_;
    if (&piece == &pieces_.back())  // the last section is copied while nothing is read
        size = std::min(size, base::align_up(left / 2, kSectionSizeMin));
    size = base::align_down(begin + size, kSectionSizeMin) - begin;
    if (size < kSectionSizeMin / 2) size += kSectionSizeMin;  // avoids a copy of a few bytes
    size = std::min(left, size);
    if (left - size < kSectionSizeMin) size = left;  // the rest is too short for its own section
    auto* const to = static_cast<std::byte*>(piece.to) + next_begin_;
    Section* const section = sections->open(shared_from_this(), to, begin, size);
    if (section == nullptr) return sections->refused();
    sections_ = sections;
    const uint64_t least = missed_ ? kSectionWindowSizeMax : kSectionWindowSizeMin;
    const uint64_t window_size = std::clamp(base::align_up(size / kSectionWindows, kCutSize), least,
                                            kSectionWindowSizeMax);
    for (uint64_t at = 0, next; at < size; at += next) {
        next = cut_window(begin + at, size - at, window_size);
        section_windows_.push_back({next_piece_, next_begin_ + at, next, section});
    }
    advance(size);
    next_section_size_ = std::min(2 * next_section_size_, kSectionSizeMax);
    return true;
}

size_t Job::take(std::span<Window> out, Sections* sections) {
    for (;;) {
        bool unprepared = false;
        const size_t count = take_some(out, sections, &unprepared);
        if (count > 0 || !unprepared) return count;
        sections->prepare();  // without mutex_, so that other threads can use it
        if (!sections->prepared()) return 0;
    }
}

// Sets `unprepared` if it stops where the first section would begin.
size_t Job::take_some(std::span<Window> out, Sections* sections, bool* unprepared) {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return 0;
    size_t count = 0;
    for (; count < out.size() && !put_back_.empty(); put_back_.pop_back())
        out[count++] = put_back_.back();
    while (count < out.size()) {
        if (!section_windows_.empty()) {
            out[count++] = section_windows_.front();
            section_windows_.erase(section_windows_.begin());
            continue;
        }
        if (next_piece_ == pieces_.size()) break;
        const Piece& piece = pieces_[next_piece_];
        const bool opens = sections != nullptr && may_open(piece);
        if (opens && goes_through_cache()) {
            *unprepared = !sections->prepared();
            if (*unprepared || !open_section(piece, sections)) break;
            if (!section_windows_.empty()) continue;
        } else if (opens) {
            missed_ = true;
            next_section_size_ = kSectionSizeAgain;
        }
        const uint64_t size = next_window(piece);
        if (size > 0) out[count++] = {next_piece_, next_begin_, size, nullptr};
        advance(size);
    }
    if (count > 0 && taken_ns_ == 0) taken_ns_ = base::monotonic_ns();
    return count;
}

bool Job::has_windows() const {
    const std::lock_guard lock(mutex_);
    return !cancelled_ &&
           (next_piece_ < pieces_.size() || !section_windows_.empty() || !put_back_.empty());
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
                 const Report& part, Callbacks* owed) {
    std::unique_lock lock(mutex_);
    add(part);
    for (size_t i = 0; i < windows.size(); ++i) {
        left_ -= windows[i].size;
        if (windows[i].section == nullptr) to_read_ -= windows[i].size;
        if (outcomes[i].bytes < windows[i].size)
            gaps_.push_back({windows[i].piece, windows[i].begin + outcomes[i].bytes});
    }
    if (left_ == 0) end(std::move(lock), owed);
}

void Job::arriving(uint64_t size) {
    const std::lock_guard lock(mutex_);
    to_read_ -= size;
    if (to_read_ != 0 || done()) return;
    awake_until_ns_ = base::monotonic_ns() + kAwakeNs;
    changed_.notify_all();
}

void Job::add(const Report& part) {
    add_bytes(&report_, part);
    report_.plan_ns += part.plan_ns;
    report_.predicted_ns += part.predicted_ns;
    report_.transfers += part.transfers;
    report_.direct_depth = std::max(report_.direct_depth, part.direct_depth);
    report_.copy_ns = part.copy_ns;  // the last report counts
    if (part.error_number == 0) return;
    if (report_.error_number != 0 && report_.error_offset <= part.error_offset) return;
    report_.error_number = part.error_number;
    report_.error_offset = part.error_offset;
    report_.error_route = part.error_route;
}

// Requires mutex_, and releases it before it calls a callback.
void Job::end(std::unique_lock<std::mutex> lock, Callbacks* owed) {
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
    if (owed == nullptr) {
        for (const auto& callback : callbacks) callback();
    } else {
        owed->insert(owed->end(), std::make_move_iterator(callbacks.begin()),
                     std::make_move_iterator(callbacks.end()));
    }
}

bool Job::wait(std::chrono::nanoseconds limit) const {
    if (done() || limit <= std::chrono::nanoseconds(0)) return done();
    limit = std::min<std::chrono::nanoseconds>(limit, kForever);
    const uint64_t end_ns = base::monotonic_ns() + static_cast<uint64_t>(limit.count());
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return done() || awake_until_ns_ != 0; });
    uint64_t now_ns = base::monotonic_ns();
    if (const uint64_t until_ns = std::min(awake_until_ns_, end_ns); now_ns < until_ns) {
        lock.unlock();
        if (const Awake awake; awake.may_be())
            (void)base::look_out(until_ns - now_ns, [this] { return done(); });
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
    uint64_t untaken = 0;
    for (size_t i = next_piece_; i < pieces_.size(); ++i) untaken += pieces_[i].size;
    untaken -= next_begin_;
    for (const Window& window : put_back_) untaken += window.size;
    uint64_t untaken_of_section = 0;
    for (const Window& window : section_windows_) untaken_of_section += window.size;
    untaken += untaken_of_section;
    if (untaken == 0) return;
    cancelled_ = true;
    left_ -= untaken;
    if (left_ == 0) return end(std::move(lock));
    // Windows taken of an open section end only after shorten() below, so the job cannot end
    // before.
    if (untaken_of_section == 0) return;
    Section* const section = section_windows_.front().section;
    section_windows_.clear();
    const std::shared_ptr<void> keep = keep_;  // others may end the job, which owns sections_
    lock.unlock();
    sections_->shorten(section, untaken_of_section);
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
        if (i == 0 || gaps_[i - 1].piece != gap.piece) bytes -= pieces_[gap.piece].size - gap.at;
    }
    return bytes;
}

}  // namespace penstock::transfer
