// Forwards each event to the stream that it concerns, and to what all streams share.
#include "readahead/driver.h"

#include <utility>

#include "base/check.h"

namespace penstock::readahead {

Driver::Driver(const Settings& settings, Presence* presence)
    : options_(settings.options),
      presence_(presence),
      model_(settings.latency_ns, settings.bandwidth),
      budget_(settings.cache_size),
      flights_(settings.flights_max) {}

Readahead* Driver::readahead_of(uint64_t stream) const {
    const auto found = streams_.find(stream);
    return found == streams_.end() ? nullptr : found->second.readahead.get();
}

const Readahead* Driver::find(uint64_t stream) const { return readahead_of(stream); }

void Driver::begin(uint64_t stream, uint64_t file, uint64_t file_size,
                   std::unique_ptr<Predictor> predictor) {
    Stream& its = streams_[stream];
    PENSTOCK_CHECK(its.readahead == nullptr, "a stream begins once");
    its.file = file;
    its.predictor = std::move(predictor);
    its.readahead = std::make_unique<Readahead>(
        options_, file, file_size, Shared{model_, budget_, flights_, presence_}, *its.predictor);
}

void Driver::observe(uint64_t stream, const access::Access& access, uint64_t now_ns) {
    if (Readahead* const its = readahead_of(stream)) its->demand(access, now_ns);
}

Claim Driver::demand(uint64_t stream, const Extent& range, uint64_t now_ns) {
    const Stream& its = streams_.at(stream);
    const Claim claim = flights_.claim(its.file, range, Priority::kDemand, now_ns);
    if (claim.outcome == Claim::Outcome::kTaken) its.readahead->missed(claim.extent);
    return claim;
}

size_t Driver::plan(uint64_t stream, uint64_t now_ns, std::span<Target> out) {
    Readahead* const its = readahead_of(stream);
    if (its == nullptr) return 0;
    const size_t count = its->next(now_ns, out);
    for (const Target& target : out.first(count)) flights_.assign(target.flight, stream);
    return count;
}

std::optional<Flight> Driver::start(uint64_t now_ns, size_t prefetches_max) {
    const auto flight = flights_.start(prefetches_max);
    if (!flight.has_value()) return flight;
    model_.started(now_ns);
    if (flight->priority == Priority::kDemand) budget_.demand_waited(now_ns - flight->claimed_ns);
    return flight;
}

void Driver::ended(const Flight& flight, End end, uint64_t started_ns, uint64_t now_ns) {
    flights_.finish(flight.id);
    if (end == End::kArrived) {
        model_.finished(now_ns, started_ns, flight.extent.size);
    } else {
        model_.failed(now_ns);  // its time says nothing about the storage
    }
    if (!flight.stream.has_value()) return;
    if (Readahead* const its = readahead_of(*flight.stream))
        its->completed(flight.id, end == End::kFailed ? Outcome::kFailed : Outcome::kArrived);
}

void Driver::served(uint64_t stream, uint64_t now_ns) {
    if (Readahead* const its = readahead_of(stream)) its->served(now_ns);
}

void Driver::used(uint64_t stream, const Extent& range) {
    if (Readahead* const its = readahead_of(stream)) its->used_by_other(range);
}

void Driver::evicted(uint64_t stream, const Extent& range) {
    if (Readahead* const its = readahead_of(stream)) its->evicted(range);
}

void Driver::displaced(uint64_t stream, const Extent& range) {
    if (Readahead* const its = readahead_of(stream)) its->displaced(range);
}

}  // namespace penstock::readahead
