// What the host did for the reads of kernels, and when: for traces. Plain values.
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

enum class ServedFor : uint8_t {
    kDemand,  // a call that waits for them, or the launch of a kernel that missed them before
    kWindow,  // readahead
    kAdvice,  // gadvise(kWillNeed)
};

[[nodiscard]] constexpr const char* name(ServedFor kind) {
    constexpr const char* kNames[] = {"demand", "window", "advice"};
    return kNames[static_cast<size_t>(kind)];
}

// Adjacent pages of one file that one block asked for, and that the host read together.
struct ServiceEvent {
    ServedFor kind = ServedFor::kDemand;
    uint32_t block = 0;       // blockIdx.x of who asked
    uint32_t thread = 0;      // that served them, by gettid(2)
    uint32_t page_count = 0;  // pages
    uint64_t page = 0;        // the first
    uint64_t file = 0;        // key of ServiceLog::files
    uint64_t taken_ns = 0;    // out of the ring. How long they lay there nobody has written down
    // Their bytes were read; on a GPU their copy to the device was ahead of them then.
    uint64_t arrived_ns = 0;
    int error_number = 0;  // 0, or what struck one of them
};

// What kernels had done by then with all files: counts up from sample to sample.
struct ServiceSample {
    uint64_t at_ns = 0;
    FileStatistics pages;
};

// The same of one file since the file system knows it.
struct ServiceFileSample {
    uint64_t at_ns = 0;
    uint64_t file = 0;  // key of ServiceLog::files
    FileStatistics pages;
};

struct ServiceLog {
    std::vector<ServiceEvent> events;    // by arrival, as each thread saw it
    std::vector<ServiceSample> samples;  // ten a second, and one when the log was taken
    // With each of them one of each file that something was done with since the one before.
    std::vector<ServiceFileSample> file_samples;
    std::map<uint64_t, std::string> files;  // paths as they were opened
    uint64_t lost = 0;                      // events and samples for which there was no room
};

}  // namespace penstock
