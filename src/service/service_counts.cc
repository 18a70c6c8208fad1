// Reads what GPU threads have counted: backlog, files, windows, and samples for the log. If the
// host cannot address the device's memory, it reads copies, which are made on request.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/torn_reads.h"
#include "penstock/device/atomic.cuh"
#include "service/service.h"

namespace penstock::service {
namespace {

using device::DeviceWords;

// Limit of the wait for all copies that one question needs.
constexpr std::chrono::seconds kLookLimit{1};

std::chrono::steady_clock::time_point look_end() {
    return std::chrono::steady_clock::now() + kLookLimit;
}

uint64_t load(const uint64_t& word) {
    return DeviceWords::load(const_cast<uint64_t&>(word), site::kRelaxed);
}

void add(FileTotals& sum, const FileTotals& more) {
    for_each_count([&](auto word) { sum.counts.*word += more.counts.*word; });
    sum.advised += more.advised;
    sum.learned += more.learned;
}

// Subtracts `base`, but not below 0: kernels move counts meanwhile, so either side may lack some.
void subtract(FileTotals& from, const FileTotals& base) {
    const auto take = [](uint64_t& word, uint64_t less) { word -= std::min(word, less); };
    for_each_count([&](auto word) { take(from.counts.*word, base.counts.*word); });
    take(from.advised, base.advised);
    take(from.learned, base.learned);
}

}  // namespace

// Returns the next ticket of a ring. If the host cannot address that word, refreshes its copy by
// the file table's stream, in which no kernel ever is.
uint64_t Service::see_tail(const RingState& ring) const {
    uint64_t& seen = const_cast<RingState&>(ring).tail;
    if (tables_copy_ == nullptr) return DeviceWords::load(seen, site::kRelaxed);
    const auto offset = reinterpret_cast<const std::byte*>(&seen) -
                        static_cast<const std::byte*>(tables_copy_);
    const std::lock_guard lock(look_mutex_);
    if (device_->copy(stream_, &seen, static_cast<std::byte*>(tables_) + offset, sizeof seen)
            .ok()) {
        // If the copy is late or fails, the value last seen stays.
        (void)device_->synchronize(stream_, look_end());
    }
    return DeviceWords::load(seen, site::kRelaxed);
}

// Returns words of the tables as the host can read them. If it cannot address the device's memory,
// that is a copy of now, or an older one if the copy has not arrived by `end`. Requires
// look_mutex_.
template <class T>
const T* Service::see(const T* first, size_t count, LookEnd end) const {
    if (tables_copy_ == nullptr) return first;
    const auto offset = reinterpret_cast<const std::byte*>(first) -
                        static_cast<const std::byte*>(tables_);
    void* copy = static_cast<std::byte*>(tables_copy_) + offset;
    const base::TornReads torn;  // kernels continue meanwhile
    if (device_->copy(stream_, copy, first, count * sizeof *first).ok())
        (void)device_->synchronize(stream_, end);
    return static_cast<const T*>(copy);
}

void Service::add_counters(Counters& sum) const {
    for (const auto& worker : helpers_) sum.add(worker->counters());
    for (const auto& worker : workers_) sum.add(worker->counters());
}

// Calls `visit(slot, counts)` once or more for each slot. The sum is what was ever done with its
// files.
template <class Visit>
void Service::visit_counts(uint32_t first_slot, uint32_t slot_count, const Visit& visit) const {
    const auto counts_in = [](const FileCounts& row) {
        FileTotals seen{};
        for_each_count([&](auto word) { seen.counts.*word = load(row.*word); });
        return seen;
    };
    const LookEnd end = look_end();
    const std::lock_guard lock(look_mutex_);
    const FileTotals* totals = see(state_->totals + first_slot, slot_count, end);
    for (uint32_t i = 0; i < slot_count; ++i) {
        FileTotals seen = counts_in(totals[i].counts);
        seen.advised = load(totals[i].advised);
        seen.learned = load(totals[i].learned);
        visit(first_slot + i, seen);
    }
    const ReadaheadPlace* places = see(state_->places, layout_.place_count, end);
    for (uint32_t i = 0; i < layout_.place_count; ++i) {
        for (const FileCounts& row : places[i].counts) {
            const auto slot = static_cast<uint32_t>(load(row.whose) - 1);  // ~0: no slot
            if (slot >= first_slot && slot - first_slot < slot_count) visit(slot, counts_in(row));
        }
    }
}

FileTotals Service::add_counts(uint32_t first_slot, uint32_t slot_count) const {
    FileTotals sum{};
    visit_counts(first_slot, slot_count, [&](uint32_t, const FileTotals& seen) { add(sum, seen); });
    return sum;
}

FileTotals Service::counts() const { return add_counts(0, limits::kFilesMax); }

FileTotals Service::counts_of(uint32_t file_slot) const {
    FileTotals result = add_counts(file_slot, 1);
    const std::lock_guard lock(base_mutex_);
    const auto base = bases_.find(file_slot);
    if (base != bases_.end()) subtract(result, base->second.totals);
    return result;
}

// Called when a slot is given to another file: the counts of the new file begin here.
void Service::keep_counts(uint32_t slot, const std::string& path) {
    const FileTotals now = add_counts(slot, 1);
    const uint64_t number = files_->number_of(slot);
    const std::lock_guard lock(base_mutex_);
    Base& base = bases_[slot];
    if (log_ != nullptr) {
        FileTotals last = now;
        subtract(last, base.totals);
        if (gone_.size() < kLogGoneMax) {
            gone_.push_back({number, path, last});
        } else {
            ++gone_lost_;
        }
    }
    base = {number, now};
}

// Adds a sample to the log: the counts of all files, and of each file.
void Service::add_sample() {
    // Keeps the samples in the order of their times.
    const std::lock_guard order(sample_mutex_);
    std::vector<FileTotals> each(limits::kFilesMax);
    std::vector<Log::FileCount> files;
    Log::Sample sample;
    {
        // No slot can be given to another file meanwhile, but one may be about to be.
        const std::lock_guard lock(base_mutex_);
        visit_counts(0, limits::kFilesMax, [&](uint32_t slot, const FileTotals& seen) {
            add(each[slot], seen);
            add(sample.totals, seen);
        });
        sample.at_ns = base::monotonic_ns();
        files.swap(gone_);
        sample.lost = std::exchange(gone_lost_, 0);
        for (uint32_t slot = 0; slot < each.size(); ++slot) {
            const uint64_t number = files_->number_of(slot);
            const auto base = bases_.find(slot);
            if (base != bases_.end()) {
                if (base->second.number == number) continue;  // already in `files`
                subtract(each[slot], base->second.totals);
            }
            if (number != 0) files.push_back({number, {}, each[slot]});
        }
    }
    log_->add(sample, files);
}

Log::Contents Service::take_log() {
    if (log_ == nullptr) return {};
    add_sample();
    return log_->take();
}

uint64_t Service::window_frames() const {
    const std::lock_guard lock(look_mutex_);
    // A team that finds no room has counted its frames for a moment.
    return std::min(load(*see(&device_state_->window_frames, 1, look_end())),
                    layout_.readahead.frames_max);
}

QueueLoad Service::observe() const {
    QueueLoad result;
    const auto count = [&](uint32_t ring) {
        const uint64_t head = DeviceWords::load(shared_.heads[ring].ticket, site::kRelaxed);
        const uint64_t tail = see_tail(shared_.ring(ring));
        if (tail > head) result.backlog += tail - head;
    };
    for (uint32_t i = 0; i < layout_.ring_count; ++i) count(i);
    count(Shared::kBackground);
    for (const auto& worker : workers_) {
        const Activity activity = worker->activity();
        result.busy_workers += activity == Activity::kServing || activity == Activity::kStorage;
    }
    return result;
}

}  // namespace penstock::service
