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

}  // namespace

Log::Log(const FileTable& files, size_t events_max)
    : files_(files), events_max_(events_max), last_(limits::kFilesMax) {
    contents_.events.reserve(events_max_);
}

uint64_t Log::file_in(uint32_t slot) {
    const uint64_t number = files_.number_of(slot);
    if (!contents_.files.contains(number)) contents_.files[number] = files_.path_of(slot);
    return number;
}

void Log::add(std::span<const ServiceEvent> events) {
    const std::lock_guard lock(mutex_);
    const size_t room = events_max_ - contents_.events.size();
    contents_.lost += events.size() - std::min(room, events.size());
    for (ServiceEvent event : events.first(std::min(room, events.size()))) {
        event.file = file_in(static_cast<uint32_t>(event.file));
        contents_.events.push_back(event);
    }
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
    if (are_equal(last.file == file.number ? last.totals : FileTotals{}, file.totals)) return;
    if (contents_.file_samples.size() == kLogFileSamplesMax) {
        ++contents_.lost;
        return;
    }
    if (!contents_.files.contains(file.number)) {
        // Gone meanwhile: then the next sample has its last counts, and its path.
        auto path = file.path.empty() ? files_.path_of_number(file.number) : file.path;
        if (!path.has_value()) return;
        contents_.files[file.number] = std::move(*path);
    }
    last = {at_ns, file.number, file.totals};
    contents_.file_samples.push_back(last);
}

Log::Contents Log::take() {
    Contents fresh;
    fresh.events.reserve(events_max_);
    const std::lock_guard lock(mutex_);
    return std::exchange(contents_, std::move(fresh));
}

}  // namespace penstock::service
