// The table of flights: a flat array, searched from end to end.
#include "readahead/flights.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::readahead {

Flights::Flights(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {
    flights_.reserve(capacity_);
}

Claim Flights::claim(uint64_t file, const Extent& wanted, Priority priority, uint64_t now_ns) {
    PENSTOCK_CHECK(!wanted.empty(), "a claim has bytes");
    uint64_t end = wanted.end();  // of the part that is not in flight
    for (Flight& flight : flights_) {
        if (flight.file != file || !overlap(flight.extent, wanted)) continue;
        if (flight.extent.offset > wanted.offset) {
            end = std::min(end, flight.extent.offset);
            continue;
        }
        if (priority == Priority::kDemand && flight.priority == Priority::kPrefetch) {
            flight.priority = Priority::kDemand;
            flight.promoted = true;
            flight.claimed_ns = now_ns;
            ++promotions_;
            if (flight.under_way) --prefetches_under_way_;
        }
        return {Claim::Outcome::kUnderWay, flight.id, intersect(flight.extent, wanted)};
    }
    const Extent part{wanted.offset, end - wanted.offset};
    const size_t kept = priority == Priority::kPrefetch ? capacity_ / 8 : 0;
    if (flights_.size() + kept >= capacity_) return {Claim::Outcome::kFull, 0, part};
    flights_.push_back({next_id_, file, part, priority, false, false, now_ns, {}});
    return {Claim::Outcome::kTaken, next_id_++, part};
}

void Flights::assign(FlightId flight, uint64_t stream) {
    for (Flight& one : flights_) {
        if (one.id == flight) one.stream = stream;
    }
}

std::optional<Flight> Flights::start(size_t prefetches_max) {
    Flight* best = nullptr;
    for (Flight& flight : flights_) {
        if (flight.under_way) continue;
        if (best == nullptr || flight.priority < best->priority ||
            (flight.priority == best->priority && flight.id < best->id)) {
            best = &flight;
        }
    }
    if (best == nullptr) return std::nullopt;
    if (best->priority == Priority::kPrefetch) {
        if (prefetches_under_way_ >= prefetches_max) return std::nullopt;
        ++prefetches_under_way_;
    }
    best->under_way = true;
    return *best;
}

void Flights::remove(size_t index) {
    flights_[index] = flights_.back();
    flights_.pop_back();
}

bool Flights::finish(FlightId flight) {
    for (size_t i = 0; i < flights_.size(); ++i) {
        if (flights_[i].id != flight || !flights_[i].under_way) continue;
        if (flights_[i].priority == Priority::kPrefetch) --prefetches_under_way_;
        remove(i);
        return true;
    }
    return false;
}

bool Flights::withdraw(FlightId flight) {
    for (size_t i = 0; i < flights_.size(); ++i) {
        const Flight& one = flights_[i];
        if (one.id != flight || one.under_way || one.priority == Priority::kDemand) continue;
        remove(i);
        return true;
    }
    return false;
}

std::optional<Flight> Flights::find(FlightId flight) const {
    for (const Flight& one : flights_) {
        if (one.id == flight) return one;
    }
    return std::nullopt;
}

bool Flights::check_invariants() const {
    for (size_t i = 0; i < flights_.size(); ++i) {
        for (size_t k = i + 1; k < flights_.size(); ++k) {
            const bool shared = overlap(flights_[i].extent, flights_[k].extent);
            if (shared && flights_[i].file == flights_[k].file) return false;
        }
    }
    return flights_.size() <= capacity_;
}

}  // namespace penstock::readahead
