// Completes the pages of runs that have been read: what lies beyond the end of a file, errors,
// completion words, and the log. One thread at a time.
#pragma once

#include <vector>

#include "service/page_delivery.h"
#include "service/progress.h"
#include "service/read_run.h"
#include "service/shared.h"
#include "transfer/executor.h"

namespace penstock::service {

class RunCompleter {
public:
    RunCompleter(const Shared& shared, Progress& progress, PageDelivery& delivery)
        : shared_(shared),
          progress_(progress),
          delivery_(delivery),
          page_size_(shared.page_size()) {}

    // Completes the pages of a run. Adds those behind an error to `retries`, or all pages if none
    // arrived.
    void finish(const ReadRun& run, const transfer::Outcome& outcome, std::vector<PageOf>* retries);
    // Refuses the pages of a run of a closed file.
    void refuse(const ReadRun& run);

private:
    void complete(const PageOf& page, uint64_t bytes, int error);
    void log(const ReadRun& run, int error);

    const Shared& shared_;
    Progress& progress_;
    PageDelivery& delivery_;
    const uint64_t page_size_;
};

}  // namespace penstock::service
