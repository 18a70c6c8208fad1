// Divides the read requests of one drain into runs, and keeps their sources and pieces meanwhile.
//
// Each worker has one; one thread at a time. The constructor takes all memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "penstock/abi/limits.h"
#include "service/page_delivery.h"
#include "service/read_run.h"
#include "service/shared.h"

namespace penstock::service {

// What the requests of a drain have in common.
struct Drain {
    bool background = false;  // from the background ring
    uint64_t taken_ns = 0;
};

// Returns whether windows of that file had to wait for storage the last time. Requires a device
// that the host can address.
[[nodiscard]] bool is_missing(const FileSystemState& state, const Request& request);

class DrainRuns {
public:
    DrainRuns(const Shared& shared, PageDelivery& delivery);

    // Joins neighbouring pages into runs. The requests are at most kDrainMax, in order. They and
    // the runs stay as they are until the next call of divide() or divide_again(). May lock the
    // file table.
    std::span<ReadRun> divide(std::span<const Request> requests, const Drain& drain);
    // Makes a run of each page, to be read again. At most kDrainMax.
    std::span<ReadRun> divide_again(std::span<const PageOf> pages);
    // Returns the source of a run of the drain, to hold it longer.
    [[nodiscard]] std::shared_ptr<transfer::Source> hold(const ReadRun& run) const;
    // Releases the sources of all runs.
    void release_sources() { sources_.clear(); }

private:
    [[nodiscard]] transfer::Source* find_source(const Request& request, const Request* before);
    [[nodiscard]] bool joins(const ReadRun& run, const Request& request) const;

    const Shared& shared_;
    PageDelivery& delivery_;
    const uint64_t page_size_;
    const bool direct_;
    iovec pieces_[limits::kDrainMax];
    ReadRun runs_[limits::kDrainMax];
    // Each file once: the use count lies on one cache line for all workers.
    std::vector<std::shared_ptr<transfer::Source>> sources_;
};

}  // namespace penstock::service
