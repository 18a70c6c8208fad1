// What was served and when, kept until somebody takes it. Any thread; servers add once a drain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "penstock/abi/file_system.h"
#include "penstock/service_log.h"
#include "service/file_table.h"

namespace penstock::service {

// Events that a log holds at most: 256 MiB of them; and samples: those of an hour.
constexpr uint32_t kLogEventsMax = 1u << 22;
constexpr uint32_t kLogSamplesMax = 36'000;

class Log {
public:
    struct Sample {
        uint64_t at_ns = 0;
        FileTotals totals;
    };
    struct Contents {
        std::vector<ServiceEvent> events;
        std::vector<Sample> samples;
        std::map<uint64_t, std::string> files;
        uint64_t lost = 0;
    };

    // Takes the memory for so many events.
    Log(const FileTable& files, size_t events_max);

    // Their `file` is a slot of the file table; the log knows it by its number.
    void add(std::span<const ServiceEvent> events);
    void add(const Sample& sample);
    // What was added since the last call.
    [[nodiscard]] Contents take();

private:
    uint64_t file_in(uint32_t slot);

    const FileTable& files_;
    const size_t events_max_;
    std::mutex mutex_;  // guards what follows
    Contents contents_;
};

}  // namespace penstock::service
