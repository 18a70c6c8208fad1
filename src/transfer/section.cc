#include "transfer/section.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"

namespace penstock::transfer {
namespace {

constexpr uint64_t kDozeNs = 20'000;
// Copied in 150 us by PCIe 5: mostly somebody sees in that time that what is copied now is over.
constexpr uint64_t kWaitingSize = kSectionSizeMax;
// A part with its share of the margins between slots, of which a long section takes none.
constexpr uint64_t kPartStride = Sections::kPartSize + Staging::kMarginSize;
static_assert(2 * Sections::kPartSize == Staging::kSlotSize);

// Of a window whose bytes in staging did not reach the device. `error` 0: they were not to.
void lose(Section::Landed* landed, int error) {
    const std::vector<extent::Extent>& extents = landed->landing.extents;
    if (extents.empty()) return;
    uint64_t first = extents.front().offset;
    for (const extent::Extent& extent : extents) first = std::min(first, extent.offset);
    const uint64_t bytes = first - landed->landing.offset;
    Report& report = landed->report;
    if (bytes <= landed->outcome.bytes) {
        landed->outcome.bytes = bytes;
        landed->outcome.error = error;
    }
    if (error == 0) return;
    if (report.error_number != 0 && report.error_offset <= first) return;
    report.error_number = error;
    report.error_offset = first;
    report.error_route = Route::kCached;
}

}  // namespace

void Sections::prepare() {
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

Section* Sections::open(std::shared_ptr<Job> job, std::byte* to, uint64_t offset, uint64_t size) {
    const std::lock_guard lock(mutex_);
    if (refused()) return nullptr;
    const int32_t slot = staging_->take(size);
    if (slot < 0) return nullptr;
    Section& section = sections_[static_cast<size_t>(slot)];
    section.job = std::move(job);
    section.to = to;
    section.offset = offset;
    // As it lies in the file modulo a page, so that copies out of the page cache are aligned.
    section.memory = staging_->memory(slot) + offset % Staging::kMarginSize;
    section.left = size;
    return &section;
}

bool Sections::is_own(unsigned hand, const Section& section, uint64_t offset) const {
    const auto at = static_cast<uint64_t>(memory(section, offset) - staging_->memory(0));
    return (at + kPartStride / 2) / kPartStride % hand_count_ == hand % hand_count_;
}

void Sections::land(Section* section, Section::Landed landed, Callbacks* owed) {
    Ended ended;
    std::shared_ptr<Job> whole;  // whose section this makes whole: it may be over soon
    uint64_t size = 0;
    {
        const std::lock_guard lock(mutex_);
        section->left -= landed.window.size;
        section->landed.push_back(std::move(landed));
        if (section->left == 0) {
            section->landed_ns = base::monotonic_ns();
            whole = section->job;
            for (const Section::Landed& one : section->landed) size += one.window.size;
            landed_.push_back(section);
        }
    }
    send_landed(&ended);
    // Behind what this thread sends for others too: where many read, who waits may be told late.
    if (whole != nullptr) whole->arriving(size);
    tell(&ended, owed);
}

void Sections::shorten(Section* section, uint64_t size) {
    {
        const std::lock_guard lock(mutex_);
        section->left -= size;
        if (section->left != 0) return;
    }
    Ended ended;
    section->dropped = true;
    end(section, &ended);
    tell(&ended);
}

// Who finds the copies taken leaves it to who has them, who looks again behind that. While enough
// waits for the device, sections wait for who collects the copies, and go together: the device
// pauses for microseconds behind each call, hardly between the copies of one (up to 16 on CUDA).
void Sections::send_landed(Ended* ended) {
    std::vector<Section*> mine;
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (landed_.empty() || waiting_.load(std::memory_order_relaxed) >= kWaitingSize) return;
        }
        const std::unique_lock copies(copies_mutex_, std::try_to_lock);
        if (!copies.owns_lock()) return;
        {
            const std::lock_guard lock(mutex_);
            mine.swap(landed_);
        }
        send(mine, ended);
        mine.clear();
    }
}

// Of a section that is whole, to parts_. What lies side by side in staging lies so on the device:
// mostly it is one.
void Sections::add_parts(const Section& section) {
    std::vector<extent::Extent> runs;
    for (const Section::Landed& landed : section.landed) {
        const std::vector<extent::Extent>& extents = landed.landing.extents;
        runs.insert(runs.end(), extents.begin(), extents.end());
    }
    std::sort(runs.begin(), runs.end(),
              [](const extent::Extent& a, const extent::Extent& b) { return a.offset < b.offset; });
    for (size_t i = 0, next; i < runs.size(); i = next) {
        uint64_t end = runs[i].end();
        for (next = i + 1; next < runs.size() && runs[next].offset == end; ++next)
            end = runs[next].end();
        parts_.push_back({section.to + (runs[i].offset - section.offset),
                          memory(section, runs[i].offset), end - runs[i].offset});
    }
}

// With the copies. As one lot.
void Sections::send(std::span<Section* const> sections, Ended* ended) {
    parts_.clear();
    slots_.clear();
    std::vector<size_t> begins;  // of each section's, in parts_
    for (Section* section : sections) {
        const size_t begin = parts_.size();
        add_parts(*section);
        if (parts_.size() == begin) {
            end(section, ended);
            continue;
        }
        slots_.push_back(static_cast<int32_t>(section - sections_.data()));
        begins.push_back(begin);
    }
    if (slots_.empty()) return;
    if (!staging_->copy_out(parts_, slots_).ok()) copy_one_by_one(begins);
    slots_.clear();
    if (Status status = staging_->close_lot(); !status.ok()) collect_slots(status, ended);
    look_at_copies();
}

// With the copies, of which the device has refused all together: some read's memory may be no more.
// What it began nevertheless brings the same bytes twice. parts_ of the sections of slots_ begin at
// `begins`.
void Sections::copy_one_by_one(std::span<const size_t> begins) {
    for (size_t i = 0; i < slots_.size(); ++i) {
        const size_t end = i + 1 < begins.size() ? begins[i + 1] : parts_.size();
        const auto parts = std::span(parts_).subspan(begins[i], end - begins[i]);
        sections_[static_cast<size_t>(slots_[i])].failed = slots_.size() == 1 ||
                                                           !staging_->copy_out(parts, {}).ok();
    }
}

// With the copies, which have changed.
void Sections::look_at_copies() {
    waiting_.store(staging_->waiting_size(), std::memory_order_relaxed);
    oldest_.store(staging_->oldest_lot(), std::memory_order_release);  // partner: ready()
}

bool Sections::ready() const {
    const uint64_t oldest = oldest_.load(std::memory_order_acquire);  // partner: send(), collect()
    return oldest != 0 && staging_->is_over(oldest);
}

void Sections::collect() {
    Ended ended;
    if (copying()) {
        const std::unique_lock copies(copies_mutex_, std::try_to_lock);
        if (!copies.owns_lock()) return;
        slots_.clear();
        collect_slots(staging_->finished(&slots_, false), &ended);
        look_at_copies();
    }
    send_landed(&ended);
    tell(&ended);
}

void Sections::wait() {
    if (!ready()) base::sleep_until_ns(base::monotonic_ns() + kDozeNs);
    collect();
}

// With the copies: slots_ are those of copies that are over, or, where `status` says so, of all
// that never will be.
void Sections::collect_slots(Status status, Ended* ended) {
    if (!status.ok()) staging_->abandon(&slots_);
    for (const int32_t slot : slots_) {
        Section& section = sections_[static_cast<size_t>(slot)];
        section.failed = section.failed || !status.ok();
        end(&section, ended);
    }
}

// With the copies, or before the section's first.
void Sections::end(Section* section, Ended* ended) {
    const std::lock_guard lock(mutex_);
    staging_->give_back(static_cast<int32_t>(section - sections_.data()));
    ended->push_back(std::exchange(*section, Section{}));
}

// Under no lock: whoever waits for a job may go on at once.
void Sections::tell(Ended* ended, Callbacks* owed) {
    for (Section& section : *ended) {
        const uint64_t copy_ns = base::monotonic_ns() - section.landed_ns;
        for (Section::Landed& landed : section.landed) {
            if (section.failed || section.dropped) {
                lose(&landed, section.failed ? EIO : 0);
            } else {
                add_bytes(&landed.report, landed.landing.report);
            }
            if (section.landed_ns != 0) landed.report.copy_ns = copy_ns;
            section.job->finish({&landed.window, 1}, {&landed.outcome, 1}, landed.report, owed);
        }
    }
}

}  // namespace penstock::transfer
