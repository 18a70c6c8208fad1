// Windows that a server leaves to storage from one call to the next: begun when they are asked for,
// completed by whoever waits. So storage has something to do while blocks copy, and who waits goes
// on with the first that arrives. Threads as server.h says.
#include <algorithm>

#include "base/clock.h"
#include "penstock/device/atomic.cuh"
#include "service/server.h"

namespace penstock::service {
namespace {

using device::DeviceWords;

// Smaller ones mostly come in batches, which are planned and read together.
constexpr uint64_t kWindowSizeMin = 32 << 10;

constexpr uint64_t bits(size_t first, size_t count) {
    return (count < 64 ? (uint64_t{1} << count) - 1 : ~uint64_t{0}) << first;
}

}  // namespace

// Whether a run is looked at before it is read, and may be left to storage.
bool Server::may_be_left(const Run& run) const {
    return direct_ && run.background && run.pages * page_size_ >= kWindowSizeMin;
}

// A run of windows goes to places of its own and is left to storage. False: it is of none, or there
// are not so many places.
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

// They have arrived; their places are free behind read_failed().
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

// Tells the file of a window whether the OS page cache has what was asked for.
void Server::note_missing(const Run& run) {
    const Request& request = requests_[run.first];
    if (!run.source->is_looked_at())
        run.source->look({(request.page + run.from) * page_size_, run.pages * page_size_});
    missing_ = !run.source->hot() && !run.source->probe.in_memory();
    if (is_missing(request) != missing_)
        DeviceWords::store(shared_.state->files[request.file_slot].missing, missing_ ? 1 : 0,
                           site::kRelaxed);
}

// Whether storage was waited for when windows of that file were last asked for. On a device that
// the host can address.
bool Server::is_missing(const Request& request) const {
    return DeviceWords::load(shared_.state->files[request.file_slot].missing, site::kRelaxed) != 0;
}

}  // namespace penstock::service
