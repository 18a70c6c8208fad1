#include "transfer/staged_range.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "transfer/reasons.h"

namespace penstock::transfer {
namespace {

constexpr uint64_t kSleepNs = 20'000;
// PCIe 5 copies this in 150 us. In most cases some thread notices within that time that the current
// copy has ended.
constexpr uint64_t kWaitingSize = kRangeSizeMax;

// Changes the report of a window whose bytes in staging did not reach the device. `error` is 0 if
// they were no longer wanted.
void mark_lost(FinishedWindow* finished, int error) {
    const std::vector<extent::Extent>& extents = finished->staged_part.extents;
    if (extents.empty()) return;
    uint64_t first = extents.front().offset;
    for (const extent::Extent& extent : extents) first = std::min(first, extent.offset);
    const uint64_t bytes = first - finished->staged_part.offset;
    if (bytes <= finished->outcome.bytes) {
        finished->outcome.bytes = bytes;
        finished->outcome.error = error;
    }
    if (error != 0) add_error(&finished->report, error, first, Route::kCached);
}

}  // namespace

void StagedRanges::prepare() {
    const std::unique_lock preparing(preparing_, std::try_to_lock);
    if (!preparing.owns_lock() || prepared()) return;
    auto made = Staging::create(device_, kSlots);
    if (made.ok() && made.value()->prepare().ok()) {
        staging_ = std::move(made.value());
    } else {
        refused_.store(true, std::memory_order_relaxed);
    }
    prepared_.store(true, std::memory_order_release);  // partner: prepared()
}

StagedRange* StagedRanges::open(StagedRange::OnDone on_done, std::byte* to, uint64_t offset,
                                uint64_t size) {
    const std::lock_guard lock(mutex_);
    if (refused()) return nullptr;
    const int32_t slot = staging_->take(size);
    if (slot < 0) return nullptr;
    StagedRange& range = staged_ranges_[static_cast<size_t>(slot)];
    range.on_done = std::move(on_done);
    range.to = to;
    range.offset = offset;
    // The memory has the same offset modulo a page as the file, so that copies out of the page
    // cache are aligned.
    range.memory = staging_->memory(slot) + offset % Staging::kMarginSize;
    range.size = range.left = size;
    return &range;
}

uint64_t StagedRanges::finish_window(FinishedWindow finished, Callbacks* deferred) {
    StagedRange* const range = finished.window.range;
    Ended ended;
    uint64_t complete_size = 0;
    {
        const std::lock_guard lock(mutex_);
        range->left -= finished.window.size;
        range->finished.push_back(std::move(finished));
        if (range->left == 0) {
            range->complete_ns = base::monotonic_ns();
            complete_size = range->size;
            complete_.push_back(range);
        }
    }
    send_complete(&ended);
    report_windows(&ended, deferred);
    return complete_size;
}

void StagedRanges::shorten(StagedRange* range, uint64_t size) {
    {
        const std::lock_guard lock(mutex_);
        range->size -= size;
        range->left -= size;
        if (range->left != 0) return;
    }
    Ended ended;
    range->unwanted = true;
    end(range, &ended);
    report_windows(&ended);
}

// If another thread holds copies_mutex_, that thread sends this staged range, because it reads
// complete_ again. While enough bytes wait for the device, staged ranges wait for the thread that
// collects the copies, and go together. The device pauses for microseconds after each call, but
// hardly between the copies of one call (up to 16 on CUDA).
void StagedRanges::send_complete(Ended* ended) {
    std::vector<StagedRange*> mine;
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (complete_.empty() || waiting_.load(std::memory_order_relaxed) >= kWaitingSize)
                return;
        }
        const std::unique_lock copies(copies_mutex_, std::try_to_lock);
        if (!copies.owns_lock()) return;
        {
            const std::lock_guard lock(mutex_);
            mine.swap(complete_);
        }
        send(mine, ended);
        mine.clear();
    }
}

// Appends the parts of a complete staged range to parts_. Neighbours in staging are neighbours on
// the device, so in most cases there is one part.
void StagedRanges::add_parts(const StagedRange& range) {
    std::vector<extent::Extent> runs;
    for (const FinishedWindow& finished : range.finished) {
        const std::vector<extent::Extent>& extents = finished.staged_part.extents;
        runs.insert(runs.end(), extents.begin(), extents.end());
    }
    std::sort(runs.begin(), runs.end(),
              [](const extent::Extent& a, const extent::Extent& b) { return a.offset < b.offset; });
    for (size_t i = 0, next; i < runs.size(); i = next) {
        uint64_t end = runs[i].end();
        for (next = i + 1; next < runs.size() && runs[next].offset == end; ++next)
            end = runs[next].end();
        parts_.push_back({range.to + (runs[i].offset - range.offset), memory(range, runs[i].offset),
                          end - runs[i].offset});
    }
}

// Requires copies_mutex_. Copies the staged ranges as one batch.
void StagedRanges::send(std::span<StagedRange* const> ranges, Ended* ended) {
    parts_.clear();
    slots_.clear();
    std::vector<size_t> begins;  // index in parts_ of each staged range's first part
    for (StagedRange* range : ranges) {
        const size_t begin = parts_.size();
        add_parts(*range);
        if (parts_.size() == begin) {
            end(range, ended);
            continue;
        }
        slots_.push_back(static_cast<int32_t>(range - staged_ranges_.data()));
        begins.push_back(begin);
    }
    if (slots_.empty()) return;
    if (!staging_->copy_out(parts_, slots_).ok()) copy_one_by_one(begins);
    slots_.clear();
    if (Status status = staging_->close_batch(); !status.ok()) collect_slots(status, ended);
    publish_copies();
}

// Requires copies_mutex_. The device has refused to copy all staged ranges together, because some
// read's memory may no longer exist. Parts that it copied nevertheless are copied again with the
// same bytes. `begins` says where the parts of each staged range of slots_ begin in parts_.
void StagedRanges::copy_one_by_one(std::span<const size_t> begins) {
    for (size_t i = 0; i < slots_.size(); ++i) {
        const size_t end = i + 1 < begins.size() ? begins[i + 1] : parts_.size();
        const auto parts = std::span(parts_).subspan(begins[i], end - begins[i]);
        staged_ranges_[static_cast<size_t>(slots_[i])].failed = slots_.size() == 1 ||
                                                                !staging_->copy_out(parts, {}).ok();
    }
}

// Requires copies_mutex_. Publishes the state of the copies after a change.
void StagedRanges::publish_copies() {
    waiting_.store(staging_->waiting_size(), std::memory_order_relaxed);
    oldest_.store(staging_->oldest_batch(), std::memory_order_release);  // partner: ready()
}

bool StagedRanges::ready() const {
    const uint64_t oldest = oldest_.load(std::memory_order_acquire);  // partner: publish_copies()
    return oldest != 0 && staging_->is_over(oldest);
}

void StagedRanges::collect() {
    Ended ended;
    if (copying()) {
        const std::unique_lock copies(copies_mutex_, std::try_to_lock);
        if (!copies.owns_lock()) return;
        slots_.clear();
        collect_slots(staging_->finished(&slots_, false), &ended);
        publish_copies();
    }
    send_complete(&ended);
    report_windows(&ended);
}

void StagedRanges::wait() {
    if (!ready()) base::sleep_until_ns(base::monotonic_ns() + kSleepNs);
    collect();
}

// Requires copies_mutex_. Ends the staged ranges of slots_, whose copies have ended. If `status` is
// an error, first adds the slots of all copies that never will.
void StagedRanges::collect_slots(Status status, Ended* ended) {
    if (!status.ok()) staging_->abandon(&slots_);
    for (const int32_t slot : slots_) {
        StagedRange& range = staged_ranges_[static_cast<size_t>(slot)];
        range.failed = range.failed || !status.ok();
        end(&range, ended);
    }
}

// Requires copies_mutex_, or that none of the staged range's copies has begun.
void StagedRanges::end(StagedRange* range, Ended* ended) {
    const std::lock_guard lock(mutex_);
    staging_->give_back(static_cast<int32_t>(range - staged_ranges_.data()));
    ended->push_back(std::exchange(*range, StagedRange{}));
}

// Requires that no mutex is held: a thread that waits for a job may continue at once.
void StagedRanges::report_windows(Ended* ended, Callbacks* deferred) {
    for (StagedRange& range : *ended) {
        const uint64_t copy_ns = base::monotonic_ns() - range.complete_ns;
        for (FinishedWindow& finished : range.finished) {
            if (range.failed || range.unwanted) {
                mark_lost(&finished, range.failed ? EIO : 0);
            } else {
                add_bytes(&finished.report, finished.staged_part.report);
            }
            if (range.complete_ns != 0) finished.report.copy_ns = copy_ns;
            range.on_done(finished, deferred);
        }
    }
}

}  // namespace penstock::transfer
