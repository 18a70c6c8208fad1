#include "service/page_reader.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::DeviceWords;

// Smaller windows mostly come in batches, which are planned and read together.
constexpr uint64_t kWindowSizeMin = 32 << 10;

}  // namespace

PageReader::PageReader(const Shared& shared, Progress& progress, transfer::Executor& executor,
                       PageDelivery& delivery)
    : shared_(shared),
      progress_(progress),
      executor_(executor),
      delivery_(delivery),
      page_size_(shared.page_size()),
      direct_(shared.direct()),
      completer_(shared, progress, delivery),
      drain_(shared, delivery) {
    retries_.reserve(kRunsMax * limits::kWindowPagesMax);
}

PageReader::~PageReader() {
    while (has_windows()) reap_windows();
}

void PageReader::read(std::span<Request> requests, const Drain& drain) {
    std::sort(requests.begin(), requests.end(), is_before);
    std::span<ReadRun> runs;
    {
        const Progress::During during(progress_, Activity::kStorage);
        runs = drain_.divide(requests, drain);
    }
    execute(runs);
    read_failed();
}

void PageReader::read_failed() {
    // Windows that end meanwhile may add pages.
    for (size_t done = 0; done < retries_.size();) {
        const size_t count = std::min(retries_.size() - done, size_t{limits::kDrainMax});
        std::span<ReadRun> runs;
        {
            const Progress::During during(progress_, Activity::kStorage);
            runs = drain_.divide_again(std::span(retries_).subspan(done, count));
        }
        execute(runs);
        done += count;
    }
    retries_.clear();
    drain_.release_sources();
    windows_.release_ended();
}

void PageReader::reap_windows() {
    (void)reap(base::monotonic_ns(), true);
    read_failed();
}

// Announces small runs of one file to the kernel before the first is read, while such reads are
// slow. Each is one call through the page cache, so missing pages would otherwise arrive one by
// one. Returns whether all runs are small and of one file.
bool PageReader::announce_to_storage(std::span<const ReadRun> runs) {
    if (runs.size() < 2) return false;
    for (const ReadRun& run : runs) {
        if (run.source == nullptr || run.source != runs[0].source ||
            !run.source->policy({}).is_small(run.pages * page_size_)) {
            return false;
        }
    }
    const transfer::Source& source = *runs[0].source;
    if (!source.trial.slow_batches()) return true;
    const Progress::During during(progress_, Activity::kStorage);
    for (const ReadRun& run : runs)
        source.file->announce(run.first.index() * page_size_, run.pages * page_size_);
    return true;
}

// Plans each run, and completes each one when it returns.
void PageReader::execute(std::span<ReadRun> runs) {
    const uint64_t storage_before_ns = progress_.counters.storage_ns.load();
    const bool small = announce_to_storage(runs);
    size_t in_flight = 0;
    uint64_t since = 0;
    for (const ReadRun& run : runs) {
        if (run.source == nullptr) {  // closed by a kernel that still had requests for it
            completer_.refuse(run);
            continue;
        }
        if (!small && begin_windows(run)) continue;
        // submit() may already read what the page cache has.
        if (in_flight++ == 0) since = base::monotonic_ns();
        submit(run);
        if (run.again || run.requests[0].kind != RequestKind::kPullWindow) continue;
        // A window is given to its waiting team before the next one is read.
        in_flight -= reap(since, false);
        since = base::monotonic_ns();
        delivery_.send_answers();
    }
    while (in_flight > 0) {
        in_flight -= reap(since, true);
        if (in_flight > 0) since = base::monotonic_ns();
    }
    delivery_.send();
    if (small) {
        uint64_t pages = 0;
        for (const ReadRun& run : runs) pages += run.pages;
        runs[0].source->trial.record_batch(
            runs.size(), pages * page_size_,
            progress_.counters.storage_ns.load() - storage_before_ns);
    }
}

void PageReader::submit(const ReadRun& run) {
    transfer::Request request;
    request.source = run.source;
    request.offset = run.first.index() * page_size_;
    request.size = run.pages * page_size_;
    request.pieces = run.pieces;
    request.cookie = reinterpret_cast<uint64_t>(&run);
    request.looks = may_stay_pending(run) || run.requests[0].kind == RequestKind::kPullWindow;
    {
        // submit() may read through the page cache, which takes as long as the storage takes.
        const Progress::During during(progress_, Activity::kStorage);
        PENSTOCK_CHECK(executor_.submit(request), "an executor has room for a drain and windows");
    }
    progress_.beat();
    if (may_stay_pending(run)) record_residency(run);
}

// Returns how many runs of the drain have ended. `since` is when the storage was given work. With
// `waits`, waits for at least one outcome.
size_t PageReader::reap(uint64_t since, bool waits) {
    size_t count = 0;
    {
        const Progress::During during(progress_, Activity::kStorage);
        count = executor_.reap(outcomes_, waits);
    }
    progress_.beat();
    const uint64_t now = base::monotonic_ns();
    progress_.counters.storage_ns.add(now - since);
    size_t of_drain = 0;
    for (const transfer::Outcome& outcome : std::span(outcomes_).first(count)) {
        of_drain += !reinterpret_cast<const ReadRun*>(outcome.cookie)->pending;
        finish(outcome);
    }
    delivery_.send_due(now);
    return of_drain;
}

void PageReader::finish(const transfer::Outcome& outcome) {
    const ReadRun& run = *reinterpret_cast<const ReadRun*>(outcome.cookie);
    // Counted before the run is answered, so that the counts that are read after a kernel has
    // ended contain all that it waited for.
    progress_.counters.reads.add(outcome.operations);
    progress_.counters.bytes.add(outcome.bytes);
    completer_.finish(run, outcome, &retries_);
    if (run.pending) windows_.end(run);
}

// Returns whether the cache is asked before the run is read, and the run may be left to storage.
bool PageReader::may_stay_pending(const ReadRun& run) const {
    return direct_ && run.background && run.pages * page_size_ >= kWindowSizeMin;
}

// Leaves a run of windows to storage. Returns false if it has no windows or there is no room.
bool PageReader::begin_windows(const ReadRun& run) {
    if (!may_stay_pending(run)) return false;
    ReadRun* pending = windows_.add(run, drain_.hold(run));
    if (pending == nullptr) return false;
    submit(*pending);
    pending->hot = !lacks_pages_;
    return true;
}

// Stores in the window's file whether the OS page cache lacks what was requested.
void PageReader::record_residency(const ReadRun& run) {
    if (!run.source->policy({}).asks_residency(run.pages * page_size_))
        run.source->look({run.first.index() * page_size_, run.pages * page_size_});
    lacks_pages_ = !run.source->hot() && !run.source->probe.in_memory();
    const Request& request = run.requests[0];
    if (is_missing(*shared_.state, request) != lacks_pages_)
        DeviceWords::store(shared_.state->files[request.file_slot].missing, lacks_pages_ ? 1 : 0,
                           site::kRelaxed);
}

}  // namespace penstock::service
