// The interface by which a front drives readahead: report each access, ask what to fetch, and tell
// what became of it.
//
// A driver serves one cache. Its streams share one budget, one table of flights and one model of
// the storage. For each access the front calls, in this order:
//
//   observe()  the stream requests these bytes now
//   demand()   for each range that the cache lacks, if the front fetches it through the driver
//   plan()     queues what the stream reads next
//   start()    until it returns nothing: the fetches to begin
//   served()   the stream has its bytes
//
// A front that sees only the begin of each access calls served() right after observe(). The time of
// the access then counts as the stream's own.
//
// It calls ended() when a fetch is over. A cache that evicts also calls evicted(), displaced() and
// used(). A front whose cache reports no arrivals, such as the OS page cache, ends each fetch as
// kAnnounced at once. Pure: time is an argument. One thread at a time. Allocates only when a stream
// begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "readahead/readahead.h"

namespace penstock::readahead {

class Driver {
public:
    struct Settings {
        Options options;
        uint64_t cache_size = 64 << 20;
        // What is assumed of the storage until fetches have arrived.
        uint64_t latency_ns = 1'000'000;
        double bandwidth = 1e9;  // bytes/s
        size_t flights_max = 256;
    };
    enum class End : uint8_t {
        kArrived,
        kAnnounced,  // another cache fetches it, and does not say when it arrives
        kFailed,
    };

    // `presence` may be null and must outlive the driver.
    Driver(const Settings& settings, Presence* presence);
    Driver(const Driver&) = delete;  // its streams refer to its members
    Driver& operator=(const Driver&) = delete;

    // Begins a stream of reads of `file`. finish() ends it.
    void begin(uint64_t stream, uint64_t file, uint64_t file_size,
               std::unique_ptr<Predictor> predictor);
    // Withdraws what the stream has queued. Fetches that have begun still end in ended().
    void finish(uint64_t stream) { streams_.erase(stream); }

    // Reports that `stream` requests `access`.
    void observe(uint64_t stream, const access::Access& access, uint64_t now_ns);
    // Claims the front part of `range`, which the stream requests and the cache lacks.
    Claim demand(uint64_t stream, const Extent& range, uint64_t now_ns);
    // Queues what the stream reads next. Writes the ranges and returns how many.
    size_t plan(uint64_t stream, uint64_t now_ns, std::span<Target> out);
    // Returns the next fetch to begin, or nothing if none is queued. Demands go first. Begins no
    // prefetch while `prefetches_max` of them are in flight.
    std::optional<Flight> start(uint64_t now_ns, size_t prefetches_max = SIZE_MAX);
    // Reports the end of a fetch that start() returned at `started_ns`.
    void ended(const Flight& flight, End end, uint64_t started_ns, uint64_t now_ns);
    // Reports that the stream has the bytes of its last access.
    void served(uint64_t stream, uint64_t now_ns);

    // Reports that `range`, prefetched by `stream`, was used by another stream.
    void used(uint64_t stream, const Extent& range);
    // Reports that the cache has evicted `range`, prefetched by `stream` and never used.
    void evicted(uint64_t stream, const Extent& range);
    // Reports that used bytes were evicted to make room for a prefetch of `stream`.
    void displaced(uint64_t stream, const Extent& range);

    // Returns the readahead of a stream, or null if the stream has ended or never began.
    [[nodiscard]] const Readahead* find(uint64_t stream) const;
    // The table of flights, for a front that also fetches on its own.
    [[nodiscard]] Flights& flights() { return flights_; }
    [[nodiscard]] const Budget& budget() const { return budget_; }

private:
    struct Stream {
        uint64_t file = 0;
        std::unique_ptr<Predictor> predictor;
        std::unique_ptr<Readahead> readahead;
    };

    [[nodiscard]] Readahead* readahead_of(uint64_t stream) const;

    const Options options_;
    Presence* const presence_;
    FetchModel model_;
    Budget budget_;
    Flights flights_;
    std::unordered_map<uint64_t, Stream> streams_;
};

}  // namespace penstock::readahead
