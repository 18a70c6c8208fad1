// Windows that a server leaves to storage from one call to the next: begun when they are asked for,
// completed by whoever waits. So storage has something to do while blocks copy, and who waits goes
// on with the first that arrives. Threads as server.h says.
#include <bit>

#include "base/clock.h"
#include "penstock/device/atomic.cuh"
#include "service/server.h"

namespace penstock::service {
namespace {

using device::DeviceWords;

// Smaller ones mostly come in batches, which are planned and read together.
constexpr uint64_t kWindowSizeMin = 32 << 10;

}  // namespace

// Whether a run is looked at before it is read, and may be left to storage.
bool Server::may_be_left(const Run& run) const {
    return direct_ && run.background && run.pages * page_size_ >= kWindowSizeMin;
}

// A window goes to a place of its own and is left to storage. False: it is none, it is of several
// requests, or all places are taken.
bool Server::begin_window(const Run& run) {
    const uint32_t busy = windows_.load(std::memory_order_relaxed);
    const auto index = static_cast<size_t>(std::countr_one(busy));
    if (!may_be_left(run) || run.count != 1 || index >= kWindowsMax) return false;
    const size_t place = limits::kDrainMax + index;
    requests_[place] = requests_[run.first];
    pieces_[place] = pieces_[run.first];
    runs_[place] = run;
    runs_[place].first = place;
    for (const std::shared_ptr<transfer::Source>& source : sources_) {
        if (source.get() == run.source) held_[index] = source;
    }
    windows_.store(busy | 1u << index, std::memory_order_relaxed);
    submit(runs_[place], {pieces_ + place, 1}, place);
    return true;
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
    missing_ = !run.source->hot();
    uint64_t& word = shared_.state->files[requests_[run.first].file_slot].missing;
    if ((DeviceWords::load(word, site::kRelaxed) != 0) != missing_)
        DeviceWords::store(word, missing_ ? 1 : 0, site::kRelaxed);
}

}  // namespace penstock::service
