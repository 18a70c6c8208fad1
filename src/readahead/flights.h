// The ranges that are being fetched. So no byte is fetched twice at once, and demand goes before
// prefetch.
//
//      FREE --[claim]--> QUEUED --[start]--> UNDER_WAY --[finish]--> FREE
//                          '----[withdraw]----------------------------^
//      prefetch --[a demand claims bytes of it]--> demand (promoted), in QUEUED and UNDER_WAY
//
// Invariants: 1. no two flights of a file share a byte; 2. start() never takes a prefetch while a
// demand is queued; 3. among equals, the older one comes first. All streams of a cache share the
// object, and their owner serialises the calls. The constructor takes all memory; each call is
// O(capacity). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "extent/extent.h"

namespace penstock::readahead {

using extent::Extent;

enum class Priority : uint8_t { kDemand, kPrefetch };

// Identifies a flight until it is finished. An id is never reused.
using FlightId = uint64_t;

struct Flight {
    FlightId id = 0;
    uint64_t file = 0;
    Extent extent;
    Priority priority = Priority::kPrefetch;
    bool promoted = false;
    bool under_way = false;
    uint64_t claimed_ns = 0;              // time of the claim, or of the promotion
    std::optional<uint64_t> stream = {};  // that predicted it; set by assign()
};

// The result for the front part of a claim. Further calls claim the rest.
struct Claim {
    enum class Outcome : uint8_t {
        kTaken,     // a new flight: the caller must have it fetched
        kUnderWay,  // being fetched already: wait for that flight
        kFull,      // no place: fetch a demand without the table, skip a prefetch
    };
    Outcome outcome = Outcome::kFull;
    FlightId flight = 0;
    Extent extent;
};

class Flights {
public:
    explicit Flights(size_t capacity);

    // Claims the front part of `wanted`, which must not be empty. A demand promotes a prefetch of
    // the same bytes. One place in eight is reserved for demands.
    Claim claim(uint64_t file, const Extent& wanted, Priority priority, uint64_t now_ns);
    // Records the stream that predicted a flight.
    void assign(FlightId flight, uint64_t stream);
    // Returns the next flight to submit to the storage, or nothing if none is queued. Takes no
    // prefetch while `prefetches_max` of them are in flight.
    std::optional<Flight> start(size_t prefetches_max = SIZE_MAX);
    // Removes a flight that has succeeded or failed. Returns false if there is none with this id in
    // flight.
    bool finish(FlightId flight);
    // Removes a prefetch that is still queued and not promoted. Returns false if it is too late.
    bool withdraw(FlightId flight);

    [[nodiscard]] std::optional<Flight> find(FlightId flight) const;
    [[nodiscard]] size_t count() const { return flights_.size(); }
    [[nodiscard]] size_t capacity() const { return capacity_; }
    [[nodiscard]] uint64_t promotions() const { return promotions_; }
    // Returns whether invariant 1 holds and there are at most capacity() flights.
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
