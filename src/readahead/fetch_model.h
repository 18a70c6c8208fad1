// What a fetch from one storage costs, measured while it runs: quantiles of its latency, and the
// bandwidth that was seen.
//
// Pure: time is an argument. One thread at a time; nothing is allocated after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::readahead {

// Quantiles of a stream of values, by a histogram with four buckets an octave: what at() says is at
// most a quarter above the true value. Old values lose half their weight with every 256 new ones,
// so that it follows a storage that changes.
class Quantiles {
public:
    void add(uint64_t value);
    // The upper edge of the bucket in which the share (0 to 1) is reached; 0 without values.
    [[nodiscard]] uint64_t at(double share) const;
    [[nodiscard]] uint64_t weight() const { return weight_; }

private:
    static constexpr size_t kBuckets = 252;  // of 64-bit values
    static constexpr uint64_t kWeightMax = 512;

    std::array<uint16_t, kBuckets> counts_{};
    uint64_t weight_ = 0;
};

class FetchModel {
public:
    // What is assumed until 8 fetches were seen. `bandwidth` in bytes a second.
    FetchModel(uint64_t latency_ns, double bandwidth);

    // A fetch was handed to the storage.
    void started(uint64_t now_ns);
    // One of them is over; `started_ns` is when it was handed over.
    void finished(uint64_t now_ns, uint64_t started_ns, uint64_t size);
    // One of them ended in an error: says nothing about speed.
    void failed(uint64_t now_ns);

    [[nodiscard]] uint64_t latency_p95_ns() const { return latency_p95_ns_; }
    [[nodiscard]] double bandwidth() const { return bandwidth_; }
    // Bytes that move in the time of a round trip: a gap up to this is cheaper to read through than
    // to go round, when nothing else is under way.
    [[nodiscard]] uint64_t gap_size() const;

private:
    static constexpr uint64_t kSamplesMin = 8;

    void measure_bandwidth(uint64_t now_ns);

    Quantiles latencies_;
    uint64_t latency_p95_ns_;
    uint64_t latency_median_ns_;
    double bandwidth_;
    uint64_t samples_ = 0;
    // The busy period: something has been under way since it began.
    uint64_t under_way_ = 0;
    uint64_t busy_since_ns_ = 0;
    uint64_t busy_size_ = 0;
    uint64_t busy_count_ = 0;
};

}  // namespace penstock::readahead
