#include "service/pending_windows.h"

#include <algorithm>
#include <utility>

namespace penstock::service {

PendingWindows::PendingWindows() {
    for (Runs* runs : {&in_flight_, &ended_, &free_}) runs->reserve(kWindowsMax);
    for (size_t i = 0; i < kWindowsMax; ++i) free_.push_back(std::make_unique<Pending>());
}

bool PendingWindows::has_hot() const {
    return std::ranges::any_of(in_flight_, [](const auto& pending) { return pending->run.hot; });
}

ReadRun* PendingWindows::add(const ReadRun& run, std::shared_ptr<transfer::Source> source) {
    const size_t count = count_.load(std::memory_order_relaxed) + run.requests.size();
    if (count > kWindowsMax) return nullptr;
    count_.store(count, std::memory_order_relaxed);
    Pending& pending = *in_flight_.emplace_back(std::move(free_.back()));
    free_.pop_back();
    // The lists grow to the longest run so far.
    pending.requests.assign(run.requests.begin(), run.requests.end());
    pending.pieces.assign(run.pieces.begin(), run.pieces.end());
    pending.source = std::move(source);
    pending.run = run;
    pending.run.requests = pending.requests;
    pending.run.pieces = pending.pieces;
    pending.run.first.request = pending.requests.data();
    pending.run.pending = true;
    return &pending.run;
}

void PendingWindows::end(const ReadRun& run) {
    const auto at = std::ranges::find(in_flight_, &run,
                                      [](const auto& pending) { return &pending->run; });
    ended_.push_back(std::move(*at));
    in_flight_.erase(at);
}

void PendingWindows::release_ended() {
    size_t count = count_.load(std::memory_order_relaxed);
    for (auto& pending : ended_) {
        count -= pending->requests.size();
        pending->source.reset();
        free_.push_back(std::move(pending));
    }
    ended_.clear();
    count_.store(count, std::memory_order_relaxed);
}

}  // namespace penstock::service
