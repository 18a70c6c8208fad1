// Measures the cost of a fetch from one storage while it runs: quantiles of the latency, and the
// bandwidth.
//
// Pure: time is an argument. One thread at a time. Nothing is allocated after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::readahead {

// Quantiles of a stream of values, from a histogram with four buckets per octave. The result of
// at() is at most a quarter above the true value. Old values lose half their weight with every 256
// new ones, so that the quantiles follow a storage that changes.
class Quantiles {
public:
    void add(uint64_t value);
    // Returns the upper edge of the bucket that reaches `share` (0 to 1) of the values; 0 if there
    // are none.
    [[nodiscard]] uint64_t at(double share) const;
    [[nodiscard]] uint64_t weight() const { return weight_; }

private:
    static constexpr size_t kBuckets = 252;  // enough for 64-bit values
    static constexpr uint64_t kWeightMax = 512;

    std::array<uint16_t, kBuckets> counts_{};
    uint64_t weight_ = 0;
};

class FetchModel {
public:
    // The values that hold until 8 fetches were seen. `bandwidth` is in bytes per second.
    FetchModel(uint64_t latency_ns, double bandwidth);

    // Records that a fetch was submitted.
    void started(uint64_t now_ns);
    // Records that a fetch has ended. `started_ns` is when it was submitted.
    void finished(uint64_t now_ns, uint64_t started_ns, uint64_t size);
    // Records that a fetch failed, which says nothing about speed.
    void failed(uint64_t now_ns);

    [[nodiscard]] uint64_t latency_p95_ns() const { return latency_p95_ns_; }
    [[nodiscard]] double bandwidth() const { return bandwidth_; }
    // Returns the bytes that move in the time of a round trip. If nothing else is in flight, to
    // read through a gap of at most this size is cheaper than to make another request.
    [[nodiscard]] uint64_t gap_size() const;

private:
    static constexpr uint64_t kSamplesMin = 8;

    void measure_bandwidth(uint64_t now_ns);

    Quantiles latencies_;
    uint64_t latency_p95_ns_;
    uint64_t latency_median_ns_;
    double bandwidth_;
    uint64_t samples_ = 0;
    // The busy period, in which there was always a fetch in flight.
    uint64_t under_way_ = 0;
    uint64_t busy_since_ns_ = 0;
    uint64_t busy_size_ = 0;
    uint64_t busy_count_ = 0;
};

}  // namespace penstock::readahead
