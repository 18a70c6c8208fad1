#include "service/log.h"

#include <algorithm>
#include <utility>

namespace penstock::service {

Log::Log(const FileTable& files, size_t events_max) : files_(files), events_max_(events_max) {
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

void Log::add(const Sample& sample) {
    const std::lock_guard lock(mutex_);
    if (contents_.samples.size() < kLogSamplesMax) {
        contents_.samples.push_back(sample);
    } else {
        ++contents_.lost;
    }
}

Log::Contents Log::take() {
    Contents fresh;
    fresh.events.reserve(events_max_);
    const std::lock_guard lock(mutex_);
    return std::exchange(contents_, std::move(fresh));
}

}  // namespace penstock::service
