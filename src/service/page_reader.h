// Reads the pages that kernels request, and completes them.
//
// Each worker has one; one thread at a time, except for has_windows().
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "penstock/abi/limits.h"
#include "service/drain_runs.h"
#include "service/page_delivery.h"
#include "service/pending_windows.h"
#include "service/progress.h"
#include "service/run_completer.h"
#include "service/shared.h"
#include "transfer/executor.h"

namespace penstock::service {

class PageReader {
public:
    // The most runs in progress.
    static constexpr size_t kRunsMax = limits::kDrainMax + PendingWindows::kWindowsMax;

    PageReader(const Shared& shared, Progress& progress, transfer::Executor& executor,
               PageDelivery& delivery);
    // Waits for the windows.
    ~PageReader();
    PageReader(const PageReader&) = delete;
    PageReader& operator=(const PageReader&) = delete;

    // Reads the pages of a drain, and sorts its requests. Windows that wait for the storage stay in
    // flight. If a run fails, the pages behind the error are read again one by one. So an error
    // reaches only readers of the page that it struck.
    void read(std::span<Request> requests, const Drain& drain);

    // Returns whether windows are in flight. Any thread.
    [[nodiscard]] bool has_windows() const { return !windows_.empty(); }
    // Returns whether some of them were in the OS page cache, so this thread copies them.
    [[nodiscard]] bool has_hot_windows() const { return windows_.has_hot(); }
    // Waits for windows, and completes those that have arrived.
    void reap_windows();
    // Returns whether the OS page cache lacked some of what was last looked at for windows.
    [[nodiscard]] bool lacks_pages() const { return lacks_pages_; }

    // finish() completes a run whose outcome another user of the executor has reaped.
    // read_failed() must follow.
    void finish(const transfer::Outcome& outcome);
    // Reads the pages of failed runs again, also those of windows.
    void read_failed();

private:
    void execute(std::span<ReadRun> runs);
    bool announce_to_storage(std::span<const ReadRun> runs);
    void submit(const ReadRun& run);
    size_t reap(uint64_t since, bool waits);
    [[nodiscard]] bool may_stay_pending(const ReadRun& run) const;
    bool begin_windows(const ReadRun& run);
    void record_residency(const ReadRun& run);

    const Shared& shared_;
    Progress& progress_;
    transfer::Executor& executor_;
    PageDelivery& delivery_;
    const uint64_t page_size_;
    const bool direct_;
    RunCompleter completer_;
    DrainRuns drain_;
    PendingWindows windows_;
    std::vector<PageOf> retries_;  // with room for the pages of a drain
    transfer::Outcome outcomes_[kRunsMax];
    bool lacks_pages_ = false;
};

}  // namespace penstock::service
