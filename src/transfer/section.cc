#include "transfer/section.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "transfer/reasons.h"

namespace penstock::transfer {
namespace {

constexpr uint64_t kDozeNs = 20'000;
// PCIe 5 copies this in 150 us. In most cases some thread notices within that time that the current
// copy has ended.
constexpr uint64_t kWaitingSize = kSectionSizeMax;

// Changes the report of a window whose bytes in staging did not reach the device. `error` is 0 if
// they were no longer wanted.
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

Section* Sections::open(Section::OnDone on_done, std::byte* to, uint64_t offset, uint64_t size) {
    const std::lock_guard lock(mutex_);
    if (refused()) return nullptr;
    const int32_t slot = staging_->take(size);
    if (slot < 0) return nullptr;
    Section& section = sections_[static_cast<size_t>(slot)];
    section.on_done = std::move(on_done);
    section.to = to;
    section.offset = offset;
    // The memory has the same offset modulo a page as the file, so that copies out of the page
    // cache are aligned.
    section.memory = staging_->memory(slot) + offset % Staging::kMarginSize;
    section.size = section.left = size;
    return &section;
}

uint64_t Sections::land(Section* section, Section::Landed landed, Callbacks* owed) {
    Ended ended;
    uint64_t complete_size = 0;
    {
        const std::lock_guard lock(mutex_);
        section->left -= landed.window.size;
        section->landed.push_back(std::move(landed));
        if (section->left == 0) {
            section->landed_ns = base::monotonic_ns();
            complete_size = section->size;
            landed_.push_back(section);
        }
    }
    send_landed(&ended);
    tell(&ended, owed);
    return complete_size;
}

void Sections::shorten(Section* section, uint64_t size) {
    {
        const std::lock_guard lock(mutex_);
        section->size -= size;
        section->left -= size;
        if (section->left != 0) return;
    }
    Ended ended;
    section->dropped = true;
    end(section, &ended);
    tell(&ended);
}

// If another thread holds copies_mutex_, that thread sends this section, because it looks at
// landed_ again. While enough bytes wait for the device, sections wait for the thread that collects
// the copies, and go together. The device pauses for microseconds after each call, but hardly
// between the copies of one call (up to 16 on CUDA).
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

// Appends the parts of a complete section to parts_. Neighbours in staging are neighbours on the
// device, so in most cases there is one part.
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

// Requires copies_mutex_. Copies the sections as one lot.
void Sections::send(std::span<Section* const> sections, Ended* ended) {
    parts_.clear();
    slots_.clear();
    std::vector<size_t> begins;  // index in parts_ of each section's first part
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

// Requires copies_mutex_. The device has refused to copy all sections together, because some read's
// memory may no longer exist. Parts that it copied nevertheless are copied again with the same
// bytes. `begins` says where the parts of each section of slots_ begin in parts_.
void Sections::copy_one_by_one(std::span<const size_t> begins) {
    for (size_t i = 0; i < slots_.size(); ++i) {
        const size_t end = i + 1 < begins.size() ? begins[i + 1] : parts_.size();
        const auto parts = std::span(parts_).subspan(begins[i], end - begins[i]);
        sections_[static_cast<size_t>(slots_[i])].failed = slots_.size() == 1 ||
                                                           !staging_->copy_out(parts, {}).ok();
    }
}

// Requires copies_mutex_. Publishes the state of the copies after a change.
void Sections::look_at_copies() {
    waiting_.store(staging_->waiting_size(), std::memory_order_relaxed);
    oldest_.store(staging_->oldest_lot(), std::memory_order_release);  // partner: ready()
}

bool Sections::ready() const {
    const uint64_t oldest = oldest_.load(std::memory_order_acquire);  // partner: look_at_copies()
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

// Requires copies_mutex_. Ends the sections of slots_, whose copies have ended. If `status` is an
// error, first adds the slots of all copies that never will.
void Sections::collect_slots(Status status, Ended* ended) {
    if (!status.ok()) staging_->abandon(&slots_);
    for (const int32_t slot : slots_) {
        Section& section = sections_[static_cast<size_t>(slot)];
        section.failed = section.failed || !status.ok();
        end(&section, ended);
    }
}

// Requires copies_mutex_, or that none of the section's copies has begun.
void Sections::end(Section* section, Ended* ended) {
    const std::lock_guard lock(mutex_);
    staging_->give_back(static_cast<int32_t>(section - sections_.data()));
    ended->push_back(std::exchange(*section, Section{}));
}

// Requires that no mutex is held: a thread that waits for a job may continue at once.
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
            section.on_done(landed, owed);
        }
    }
}

}  // namespace penstock::transfer
