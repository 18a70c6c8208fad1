// Single flight: the ranges that are being fetched, so that no byte is fetched twice at once, and
// demand goes before prefetch.
//
//      FREE --[claim]--> QUEUED --[start]--> UNDER_WAY --[finish]--> FREE
//                          '----[withdraw]----------------------------^
//      prefetch --[a demand claims bytes of it]--> demand (promoted), in QUEUED and UNDER_WAY
//
// Invariants: 1. no two flights of a file share a byte; 2. start() never takes a prefetch while a
// demand is queued; 3. among equals, the older first. Shared by all streams of a cache: their owner
// lets one in at a time. All memory is taken at construction; every call is O(capacity). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "extent/extent.h"

namespace penstock::readahead {

using extent::Extent;

enum class Priority : uint8_t { kDemand, kPrefetch };

// Names a flight until it is finished; never given out twice.
using FlightId = uint64_t;

struct Flight {
    FlightId id = 0;
    uint64_t file = 0;
    Extent extent;
    Priority priority = Priority::kPrefetch;
    bool promoted = false;
    bool under_way = false;
    uint64_t claimed_ns = 0;  // when; for a promoted one, when it was promoted
};

// What became of the front part of a claim; the rest is claimed by further calls.
struct Claim {
    enum class Outcome : uint8_t {
        kTaken,     // a new flight: the claimer sees to it that it is fetched
        kUnderWay,  // somebody fetches it: wait for that flight
        kFull,      // no place: a demand is fetched without the table, a prefetch is left
    };
    Outcome outcome = Outcome::kFull;
    FlightId flight = 0;
    Extent extent;
};

class Flights {
public:
    explicit Flights(size_t capacity);

    // Claims the front part of `wanted` (not empty). A demand promotes the prefetch it meets. One
    // place in eight is kept for demands.
    Claim claim(uint64_t file, const Extent& wanted, Priority priority, uint64_t now_ns);
    // The flight to hand to the storage next; none: nothing is queued. A prefetch is not taken
    // while `prefetches_max` of them are under way.
    std::optional<Flight> start(size_t prefetches_max = SIZE_MAX);
    // It is over, by success or error. False: there is no such flight.
    bool finish(FlightId flight);
    // Takes back a prefetch that is still queued and not promoted; false: too late.
    bool withdraw(FlightId flight);

    [[nodiscard]] std::optional<Flight> find(FlightId flight) const;
    [[nodiscard]] size_t count() const { return flights_.size(); }
    [[nodiscard]] size_t capacity() const { return capacity_; }
    [[nodiscard]] uint64_t promotions() const { return promotions_; }
    // Whether invariant 1 holds, and there are no more flights than places.
    [[nodiscard]] bool check_invariants() const;

private:
    void remove(size_t index);

    std::vector<Flight> flights_;  // in no order
    size_t capacity_;
    FlightId next_id_ = 1;
    uint64_t promotions_ = 0;
    size_t prefetches_under_way_ = 0;
};

}  // namespace penstock::readahead
