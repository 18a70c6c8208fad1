// The histogram of latencies, and the bandwidth over busy periods.
#include "readahead/fetch_model.h"

#include <algorithm>
#include <bit>

namespace penstock::readahead {
namespace {

// Values below 4 have a bucket each. Above, the two bits below the leading one choose among four.
size_t bucket_of(uint64_t value) {
    if (value < 4) return value;
    const auto exponent = static_cast<size_t>(std::bit_width(value)) - 1;
    return (exponent - 1) * 4 + ((value >> (exponent - 2)) & 3);
}

uint64_t upper_edge(size_t bucket) {
    if (bucket < 4) return bucket;
    const size_t exponent = bucket / 4 + 1;
    return ((5 + bucket % 4) << (exponent - 2)) - 1;  // the last one wraps to UINT64_MAX
}

}  // namespace

void Quantiles::add(uint64_t value) {
    if (weight_ >= kWeightMax) {
        weight_ = 0;
        for (uint16_t& count : counts_) {
            count = static_cast<uint16_t>(count / 2);
            weight_ += count;
        }
    }
    ++counts_[bucket_of(value)];
    ++weight_;
}

uint64_t Quantiles::at(double share) const {
    if (weight_ == 0) return 0;
    const double wanted = std::clamp(share, 0.0, 1.0) * static_cast<double>(weight_);
    uint64_t below = 0;
    size_t last = 0;
    for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
        if (counts_[bucket] == 0) continue;
        below += counts_[bucket];
        last = bucket;
        if (static_cast<double>(below) >= wanted) break;
    }
    return upper_edge(last);
}

FetchModel::FetchModel(uint64_t latency_ns, double bandwidth)
    : latency_p95_ns_(latency_ns),
      latency_median_ns_(latency_ns),
      bandwidth_(std::max(bandwidth, 1.0)) {}

void FetchModel::started(uint64_t now_ns) {
    if (under_way_++ == 0) {
        busy_since_ns_ = now_ns;
        busy_size_ = busy_count_ = 0;
    }
}

void FetchModel::finished(uint64_t now_ns, uint64_t started_ns, uint64_t size) {
    latencies_.add(now_ns > started_ns ? now_ns - started_ns : 0);
    busy_size_ += size;
    ++busy_count_;
    // Not at each fetch, because a quantile walks the whole histogram.
    if (++samples_ == kSamplesMin || (samples_ > kSamplesMin && samples_ % 8 == 0)) {
        latency_p95_ns_ = latencies_.at(0.95);
        latency_median_ns_ = latencies_.at(0.5);
    }
    failed(now_ns);
}

void FetchModel::failed(uint64_t now_ns) {
    if (under_way_ > 0) --under_way_;
    if (under_way_ == 0 || busy_count_ >= 16) measure_bandwidth(now_ns);
}

void FetchModel::measure_bandwidth(uint64_t now_ns) {
    if (now_ns > busy_since_ns_ && busy_size_ > 0) {
        const double rate = static_cast<double>(busy_size_) * 1e9 /
                            static_cast<double>(now_ns - busy_since_ns_);
        // A rate that was reached is possible. A lower rate means little, because perhaps no more
        // was requested.
        if (rate > bandwidth_) {
            bandwidth_ = rate;
        } else if (busy_count_ >= kSamplesMin) {
            bandwidth_ -= (bandwidth_ - rate) / 16;
        }
    }
    busy_since_ns_ = now_ns;
    busy_size_ = busy_count_ = 0;
}

uint64_t FetchModel::gap_size() const {
    return static_cast<uint64_t>(
        std::min(static_cast<double>(latency_median_ns_) * bandwidth_ * 1e-9, 1e15));
}

}  // namespace penstock::readahead
