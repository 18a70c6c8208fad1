// Serves requests: takes a run of them from a ring, reads or writes, and completes them.
//
// Each worker thread has its own; blocks that help borrow one. One thread at a time. The
// constructor and take_staging() take the memory; lists grow to the longest run of windows so far.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "penstock/abi/file_system.h"
#include "penstock/abi/limits.h"
#include "service/control_calls.h"
#include "service/launch_prefetcher.h"
#include "service/page_delivery.h"
#include "service/page_reader.h"
#include "service/progress.h"
#include "service/shared.h"
#include "service/write_backs.h"
#include "storage/storage.h"
#include "transfer/executor.h"

namespace penstock::service {

class RequestWorker {
public:
    static Result<std::unique_ptr<RequestWorker>> create(Shared& shared, storage::Storage& storage);
    // Takes the memory that pages pass through. Call it before anything else. Several workers may
    // call it at the same time.
    Status take_staging();

    // Serves the ready requests of ring `ring`. Returns false if there were none. It may block for
    // as long as the storage does, but leaves windows that wait for the storage in flight. Without
    // `waits`, it leaves all windows.
    bool serve_requests(uint32_t ring, bool waits = true);
    // Waits for the windows that were left to storage, and completes those that have arrived.
    // Returns false if there were none. Any thread that has the worker may call it. If another
    // thread began them, it may learn of their end a tick of the kernel's clock later.
    bool finish_windows();
    // Returns whether windows were left to storage. Any thread.
    [[nodiscard]] bool has_windows() const { return reader_.has_windows(); }
    // Answers control calls. Returns false if there were none.
    bool serve_calls(ControlCalls& calls) { return calls.serve(progress_, writes_); }

    [[nodiscard]] Activity activity() const { return progress_.activity(); }
    // Increases each time the worker makes progress.
    [[nodiscard]] uint64_t beats() const { return progress_.beats(); }
    void beat() { progress_.beat(); }  // called by the worker's user
    // Any thread may call it.
    [[nodiscard]] const Counters& counters() const { return progress_.counters; }

    // For blocks that borrow a worker:
    bool try_borrow() { return !borrowed_.test_and_set(std::memory_order_acquire); }
    void give_back() { borrowed_.clear(std::memory_order_release); }

    // A fault for tests: the worker stops for good the next time it holds requests.
    void stop_with_requests() { stop_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] bool stopped() const { return progress_.stopped(); }

private:
    RequestWorker(Shared& shared, std::unique_ptr<transfer::Executor> executor);
    [[nodiscard]] bool has_ready(uint32_t ring) const;
    std::span<Request> drain(uint32_t ring, size_t pages_max);
    size_t count_requests(std::span<const Request> requests, bool background);
    void count_time(uint64_t started_ns, uint64_t storage_before_ns);

    Shared& shared_;
    Progress progress_;
    const std::unique_ptr<transfer::Executor> executor_;
    const std::unique_ptr<PageDelivery> delivery_;
    PageReader reader_;
    WriteBacks writes_;
    LaunchPrefetcher::MissLog* const miss_log_;  // null: no learning
    Request requests_[limits::kDrainMax];

    std::atomic<bool> stop_{false};
    std::atomic_flag borrowed_;
};

}  // namespace penstock::service
