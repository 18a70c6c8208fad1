// Windows that a server leaves to storage from one call to the next. They begin when they are
// requested, and a thread that waits completes them. So the storage works while blocks copy, and a
// waiting thread continues with the first window that arrives. server.h states the threads.
#include <algorithm>

#include "base/clock.h"
#include "penstock/device/atomic.cuh"
#include "service/server.h"

namespace penstock::service {
namespace {

using device::DeviceWords;

// Smaller windows mostly come in batches, which are planned and read together.
constexpr uint64_t kWindowSizeMin = 32 << 10;

constexpr uint64_t bits(size_t first, size_t count) {
    return (count < 64 ? (uint64_t{1} << count) - 1 : ~uint64_t{0}) << first;
}

}  // namespace

// Returns whether the cache is asked before the run is read, and the run may be left to storage.
bool Server::may_be_left(const Run& run) const {
    return direct_ && run.background && run.pages * page_size_ >= kWindowSizeMin;
}

// Moves a run of windows to its own places and leaves it to storage. Returns false if it has no
// windows or there are not enough places.
bool Server::begin_windows(const Run& run) {
    if (!may_be_left(run) || run.count > kWindowsMax) return false;
    const uint64_t busy = windows_.load(std::memory_order_relaxed);
    size_t index = 0;
    while (index + run.count <= kWindowsMax && (busy & bits(index, run.count)) != 0) ++index;
    if (index + run.count > kWindowsMax) return false;
    const size_t place = limits::kDrainMax + index;
    std::copy_n(requests_ + run.first, run.count, requests_ + place);
    std::copy_n(pieces_ + run.first, run.count, pieces_ + place);
    runs_[place] = run;
    runs_[place].first = place;
    for (const std::shared_ptr<transfer::Source>& source : sources_) {
        if (source.get() == run.source) held_[index] = source;
    }
    windows_.store(busy | bits(index, run.count), std::memory_order_relaxed);
    submit(runs_[place], {pieces_ + place, run.count}, place);
    if (!missing_) hot_ |= bits(index, run.count);
    return true;
}

// Records that windows have arrived. read_failed() frees their places.
void Server::end_windows(const Run& run) {
    ended_ |= bits(run.first - limits::kDrainMax, run.count);
}

bool Server::finish_windows() {
    if (!has_windows() || stopped()) return false;
    const uint64_t started = base::monotonic_ns();
    activity_.store(Activity::kServing, std::memory_order_release);
    storage_ns_ = 0;
    reap_windows();
    count_time(started);
    activity_.store(Activity::kIdle, std::memory_order_release);
    return true;
}

void Server::reap_windows() {
    (void)reap_runs(base::monotonic_ns(), true);
    read_failed();
}

// Stores in the window's file whether the OS page cache lacks what was requested.
void Server::note_missing(const Run& run) {
    const Request& request = requests_[run.first];
    if (!run.source->is_looked_at())
        run.source->look({(request.page + run.from) * page_size_, run.pages * page_size_});
    missing_ = !run.source->hot() && !run.source->probe.in_memory();
    if (is_missing(request) != missing_)
        DeviceWords::store(shared_.state->files[request.file_slot].missing, missing_ ? 1 : 0,
                           site::kRelaxed);
}

// Returns whether windows of that file had to wait for storage the last time. Requires a device
// that the host can address.
bool Server::is_missing(const Request& request) const {
    return DeviceWords::load(shared_.state->files[request.file_slot].missing, site::kRelaxed) != 0;
}

}  // namespace penstock::service
