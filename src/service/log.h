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
// Samples of single files: 48 MiB of them; and files that may lose their slot between two samples.
constexpr uint32_t kLogFileSamplesMax = 1u << 18;
constexpr uint32_t kLogGoneMax = limits::kFilesMax;

class Log {
public:
    struct Sample {
        uint64_t at_ns = 0;
        FileTotals totals{};
        uint64_t lost = 0;  // files of which there is no FileCount
    };
    // What was done with one file so far.
    struct FileCount {
        uint64_t number = 0;  // of the file
        std::string path;     // where its slot is another's by now
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

    // Takes the memory for so many events.
    Log(const FileTable& files, size_t events_max);

    // Their `file` is a slot of the file table; the log knows it by its number.
    void add(std::span<const ServiceEvent> events);
    // `files`: those with a slot, behind those that have lost theirs since the sample before. Kept
    // is what has changed since then.
    void add(const Sample& sample, std::span<const FileCount> files);
    // What was added since the last call.
    [[nodiscard]] Contents take();

private:
    bool try_add(std::span<const ServiceEvent> events, std::map<uint64_t, std::string>* found,
                 std::map<uint64_t, uint32_t>* unknown);
    void add(uint64_t at_ns, const FileCount& file);

    const FileTable& files_;
    const size_t events_max_;
    std::mutex mutex_;  // guards what follows
    Contents contents_;
    std::vector<FileSample> last_;  // by slot: what was kept last of its file
};

}  // namespace penstock::service
