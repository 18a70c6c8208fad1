// The log of what the host did for the reads of kernels, and when. Used for traces. Plain values.
//
// All times are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "penstock/file_statistics.h"

namespace penstock {

// Why pages were requested.
enum class ServedFor : uint8_t {
    kDemand,  // a call that waits for them, or the launch of a kernel that missed them before
    kWindow,  // readahead
    kAdvice,  // gadvise(kWillNeed)
};

// Returns "demand", "window" or "advice".
[[nodiscard]] constexpr const char* name(ServedFor kind) {
    constexpr const char* kNames[] = {"demand", "window", "advice"};
    return kNames[static_cast<size_t>(kind)];
}

// Adjacent pages of one file that one block requested, and that the host read together.
struct ServiceEvent {
    ServedFor kind = ServedFor::kDemand;
    uint32_t block = 0;       // blockIdx.x of the block that requested them
    uint32_t thread = 0;      // gettid(2) of the thread that served them
    uint32_t page_count = 0;  // pages
    uint64_t page = 0;        // index of the first page
    uint64_t file = 0;        // key of ServiceLog::files
    uint64_t taken_ns = 0;    // taken out of the ring; the time before that is not recorded
    // Their bytes had been read. On a GPU the copy to the device comes after this time.
    uint64_t arrived_ns = 0;
    int error_number = 0;  // errno of one of the pages, or 0
};

// Counts over all files at one time; they only grow from sample to sample.
struct ServiceSample {
    uint64_t at_ns = 0;
    FileStatistics pages;
};

// The same counts of one file since the file system first opened it.
struct ServiceFileSample {
    uint64_t at_ns = 0;
    uint64_t file = 0;  // key of ServiceLog::files
    FileStatistics pages;
};

// The events and samples of FileSystem::take_log().
struct ServiceLog {
    std::vector<ServiceEvent> events;    // in the order of arrival that each thread saw
    std::vector<ServiceSample> samples;  // ten a second, and one when the log is taken
    // For each sample, one entry for each file whose counts changed since the sample before.
    std::vector<ServiceFileSample> file_samples;
    std::map<uint64_t, std::string> files;  // the paths that the files were opened by
    uint64_t lost = 0;                      // events and samples that found no room
};

}  // namespace penstock
