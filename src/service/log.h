// Records what was served and when, until the caller takes it. Any thread; workers add once per
// drain.
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

// A log holds at most this many events (256 MiB) and samples (one hour).
constexpr uint32_t kLogEventsMax = 1u << 22;
constexpr uint32_t kLogSamplesMax = 36'000;
// Limits of the samples of single files (48 MiB), and of the files that lose their slot between two
// samples.
constexpr uint32_t kLogFileSamplesMax = 1u << 18;
constexpr uint32_t kLogGoneMax = limits::kFilesMax;

class Log {
public:
    struct Sample {
        uint64_t at_ns = 0;
        FileTotals totals{};
        uint64_t lost = 0;  // files without a FileCount
    };
    // The counts of one file so far.
    struct FileCount {
        uint64_t number = 0;  // of the file
        std::string path;     // set if its slot belongs to another file by now
        FileTotals totals{};
    };
    struct FileSample {
        uint64_t at_ns = 0;
        uint64_t file = 0;  // its number
        FileTotals totals{};
    };
    struct Contents {
        std::vector<ServiceEvent> events;
        std::vector<Sample> samples;
        std::vector<FileSample> file_samples;
        std::map<uint64_t, std::string> files;
        uint64_t lost = 0;
    };

    // Takes the memory for `events_max` events.
    Log(const FileTable& files, size_t events_max);

    // Adds events. Their `file` is a slot of the file table; the log stores the file's number
    // instead.
    void add(std::span<const ServiceEvent> events);
    // Adds a sample. `files` has first the files that have lost their slot since the previous
    // sample, then those with a slot. The log keeps those that have changed since the previous
    // sample.
    void add(const Sample& sample, std::span<const FileCount> files);
    // Returns what was added since the last call.
    [[nodiscard]] Contents take();

private:
    bool try_add(std::span<const ServiceEvent> events, std::map<uint64_t, std::string>* found,
                 std::map<uint64_t, uint32_t>* unknown);
    void add(uint64_t at_ns, const FileCount& file);

    const FileTable& files_;
    const size_t events_max_;
    std::mutex mutex_;  // guards the members below
    Contents contents_;
    std::vector<FileSample> last_;  // by slot: the last sample kept of its file
};

}  // namespace penstock::service
