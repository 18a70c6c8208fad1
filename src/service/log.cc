#include "service/log.h"

#include <algorithm>
#include <utility>

namespace penstock::service {

namespace {

bool are_equal(const FileTotals& one, const FileTotals& other) {
    bool equal = one.advised == other.advised && one.learned == other.learned;
    for_each_count([&](auto word) { equal = equal && one.counts.*word == other.counts.*word; });
    return equal;
}

FileTotals larger(const FileTotals& one, const FileTotals& other) {
    FileTotals result{};
    for_each_count(
        [&](auto word) { result.counts.*word = std::max(one.counts.*word, other.counts.*word); });
    result.advised = std::max(one.advised, other.advised);
    result.learned = std::max(one.learned, other.learned);
    return result;
}

}  // namespace

Log::Log(const FileTable& files, size_t events_max)
    : files_(files), events_max_(events_max), last_(limits::kFilesMax) {
    contents_.events.reserve(events_max_);
    contents_.file_samples.reserve(kLogFileSamplesMax);
}

void Log::add(std::span<const ServiceEvent> events) {
    // Gets missing paths without the log's mutex. The file table may be locked for as long as the
    // storage takes. A thread that takes a sample must not wait for that, but does wait for the
    // log.
    std::map<uint64_t, std::string> found;
    std::map<uint64_t, uint32_t> unknown;  // number, slot
    while (!try_add(events, &found, &unknown)) {
        for (const auto& [number, slot] : unknown) found[number] = files_.path_of(slot);
    }
}

// Returns false if neither the log nor `found` has the paths of the files in `unknown`.
bool Log::try_add(std::span<const ServiceEvent> events, std::map<uint64_t, std::string>* found,
                  std::map<uint64_t, uint32_t>* unknown) {
    const std::lock_guard lock(mutex_);
    const size_t room = std::min(events_max_ - contents_.events.size(), events.size());
    const std::span<const ServiceEvent> kept = events.first(room);
    unknown->clear();
    for (const ServiceEvent& event : kept) {
        const auto slot = static_cast<uint32_t>(event.file);
        const uint64_t number = files_.number_of(slot);
        if (!contents_.files.contains(number) && !found->contains(number))
            unknown->emplace(number, slot);
    }
    if (!unknown->empty()) return false;
    contents_.files.merge(*found);
    contents_.lost += events.size() - room;
    for (ServiceEvent event : kept) {
        event.file = files_.number_of(static_cast<uint32_t>(event.file));
        contents_.events.push_back(event);
    }
    return true;
}

void Log::add(const Sample& sample, std::span<const FileCount> files) {
    const std::lock_guard lock(mutex_);
    contents_.lost += sample.lost;
    for (const FileCount& file : files) add(sample.at_ns, file);
    if (contents_.samples.size() < kLogSamplesMax) {
        contents_.samples.push_back(sample);
    } else {
        ++contents_.lost;
    }
}

void Log::add(uint64_t at_ns, const FileCount& file) {
    FileSample& last = last_[file.number & 0xffff];
    const FileTotals before = last.file == file.number ? last.totals : FileTotals{};
    // Kernels move counts from place to place, so a sum may be too low for a moment.
    const FileTotals now = larger(before, file.totals);
    if (are_equal(before, now)) return;
    if (contents_.file_samples.size() == kLogFileSamplesMax) {
        ++contents_.lost;
        return;
    }
    if (!contents_.files.contains(file.number)) {
        // If the slot was lost meanwhile, the next sample has its last counts and its path. If the
        // table is busy, the next sample asks again.
        auto path = file.path.empty() ? files_.path_of_number(file.number) : file.path;
        if (!path.has_value()) return;
        contents_.files[file.number] = std::move(*path);
    }
    last = {at_ns, file.number, now};
    contents_.file_samples.push_back(last);
}

Log::Contents Log::take() {
    Contents fresh;
    fresh.events.reserve(events_max_);
    fresh.file_samples.reserve(kLogFileSamplesMax);
    const std::lock_guard lock(mutex_);
    return std::exchange(contents_, std::move(fresh));
}

}  // namespace penstock::service
