#include "service/request_worker.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "penstock/device/atomic.cuh"
#include "request_queue/ring.h"

namespace penstock::service {
namespace {

using device::DeviceWords;
using device::SystemWords;

// A worker takes at least this much of what is ready, because neighbours merge into one read.
constexpr uint64_t kShareSizeMin = 256 << 10;
// Storage operations in flight per worker: enough direct reads to keep a disk busy.
constexpr uint32_t kOperationsMax = 16;

}  // namespace

RequestWorker::RequestWorker(Shared& shared, std::unique_ptr<transfer::Executor> executor)
    : shared_(shared),
      progress_(shared.abort),
      executor_(std::move(executor)),
      delivery_(PageDelivery::create(shared, progress_)),
      reader_(shared, progress_, *executor_, *delivery_),
      writes_(shared, progress_, *executor_, reader_),
      miss_log_(shared.prefetcher == nullptr ? nullptr : &shared.prefetcher->add_miss_log()) {}

Result<std::unique_ptr<RequestWorker>> RequestWorker::create(Shared& shared,
                                                             storage::Storage& storage) {
    // Pages for the device lie in the worker's own staging, so the executor sees only host memory.
    auto executor = transfer::Executor::create(
        storage, nullptr, {.depth = kOperationsMax, .requests = PageReader::kRunsMax});
    if (!executor.ok()) return executor.status();
    return std::unique_ptr<RequestWorker>(new RequestWorker(shared, std::move(executor.value())));
}

Status RequestWorker::take_staging() {
    if (Status status = delivery_->take_staging(); !status.ok()) return status;
    return writes_.take_staging();
}

bool RequestWorker::has_ready(uint32_t ring) const {
    const RingState& state = shared_.ring(ring);
    return request_queue::has_ready<SystemWords, DeviceWords>(shared_.heads[ring].ticket,
                                                              state.slots, state.shift);
}

// Takes some of the ready requests.
std::span<Request> RequestWorker::drain(uint32_t ring, size_t pages_max) {
    const RingState& state = shared_.ring(ring);
    const bool background = ring == Shared::kBackground;
    unsigned share = shared_.workers;
    // If pages lack in the OS page cache, the storage has all windows that are wanted at once.
    if (background) share = reader_.lacks_pages() ? 1 : shared_.window_workers;
    const uint64_t least = background ? 1 : kShareSizeMin >> shared_.state->page_shift;
    const size_t count = request_queue::drain<SystemWords, DeviceWords>(
        shared_.heads[ring].ticket, state.slots, state.shift, requests_,
        std::min<size_t>(limits::kDrainMax, pages_max), share, std::max<uint64_t>(1, least),
        pages_max);
    return {requests_, count};
}

// Counts the pages of the reads, and returns how many they are.
size_t RequestWorker::count_requests(std::span<const Request> requests, bool background) {
    size_t pages = 0, of_windows = 0;
    for (const Request& request : requests) {
        pages += request.page_count;
        if (is_window(request.kind)) of_windows += request.page_count;
    }
    progress_.counters.requests.add(pages);
    if (!background) progress_.counters.demanded.add(pages - of_windows);
    return pages;
}

void RequestWorker::count_time(uint64_t started_ns, uint64_t storage_before_ns) {
    const uint64_t storage_ns = progress_.counters.storage_ns.load() - storage_before_ns;
    progress_.counters.serving_ns.add(base::monotonic_ns() - started_ns - storage_ns);
}

bool RequestWorker::serve_requests(uint32_t ring, bool waits) {
    const bool background = ring == Shared::kBackground;
    const size_t pages_max = delivery_->begin(ring);
    // A waiting block mostly finds nothing, and reading the clock would cost more than this look.
    if (pages_max == 0 || !has_ready(ring) || !delivery_->may_claim()) return false;
    const uint64_t started = base::monotonic_ns();
    const std::span<Request> requests = drain(ring, pages_max);
    if (requests.empty()) {
        delivery_->end(0);
        return false;
    }
    if (stop_.load(std::memory_order_relaxed)) {
        progress_.stop_with_requests();
        return false;
    }
    const Progress::During during(progress_, Activity::kServing);
    progress_.beat();
    // The doorbell wakes one worker. A worker that leaves requests for others wakes the next one.
    if (shared_.workers > 1 && has_ready(ring))
        shared_.device->ring(&shared_.state->rings[background ? 0 : ring].doorbell);
    if (miss_log_ != nullptr && !background) shared_.prefetcher->add_misses(*miss_log_, requests);
    const uint64_t storage_before_ns = progress_.counters.storage_ns.load();
    const std::span<Request> reads = background ? writes_.set_aside(requests) : requests;
    // Counted before the first request is answered, so that the counts are complete for a reader
    // after a kernel has ended.
    const size_t pages = count_requests(reads, background);
    if (!reads.empty()) reader_.read(reads, {background, started});
    // This thread copies what the OS page cache has, so leaving it to storage gains nothing.
    while (background && waits && reader_.has_hot_windows()) reader_.reap_windows();
    writes_.write();
    count_time(started, storage_before_ns);
    delivery_->end(pages);
    progress_.beat();
    return true;
}

bool RequestWorker::finish_windows() {
    if (!has_windows() || stopped()) return false;
    const uint64_t started = base::monotonic_ns();
    const uint64_t storage_before_ns = progress_.counters.storage_ns.load();
    const Progress::During during(progress_, Activity::kServing);
    reader_.reap_windows();
    count_time(started, storage_before_ns);
    return true;
}

}  // namespace penstock::service
