// Summarises what can be predicted of a stream: its class, which share of its bytes, and why the
// others were not predicted. One thread.
//
// The online detector predicts accesses exactly. What it does not predict may be told by the
// trackers of sequences and of repeated orders, which look at recorded streams only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "access/detector.h"
#include "penstock/access.h"

namespace penstock::file {

class SignatureEvidence {
public:
    // Feeds one stream to a new detector and new trackers. `times_ns` may be empty. `threads`: how
    // many threads made the accesses.
    void watch(std::span<const access::Access> accesses, std::span<const uint64_t> times_ns,
               size_t threads = 1);
    // Adds the results of another stream to these.
    void add(const SignatureEvidence& other);
    [[nodiscard]] uint64_t accesses() const { return accesses_; }
    [[nodiscard]] uint64_t bytes() const { return bytes_; }
    [[nodiscard]] uint64_t told_bytes() const;
    [[nodiscard]] uint64_t size_max() const { return size_max_; }
    [[nodiscard]] access::Algorithm algorithm() const;
    // Returns the share of the bytes that were predicted, 0 to 1.
    [[nodiscard]] double confidence() const;
    // Stores all of it.
    void describe(SignatureStream* out) const;

private:
    static constexpr size_t kAlgorithms = static_cast<size_t>(access::Algorithm::kRandom) + 1;
    // Why bytes were not predicted, in the order of kCauses.
    enum Cause : uint8_t { kEarly, kIsolated, kChanged, kLonger, kCauseCount };
    struct Untold {
        uint64_t accesses = 0, bytes = 0;
    };
    class Watch;

    [[nodiscard]] double share(uint64_t bytes) const;
    [[nodiscard]] bool random() const { return 2 * random_bytes_ > bytes_; }
    [[nodiscard]] Untold untold_sum() const;
    void measure(std::span<const access::Access> accesses, std::span<const uint64_t> times_ns);

    uint64_t accesses_ = 0, bytes_ = 0;
    uint64_t size_min_ = UINT64_MAX, size_max_ = 0;
    uint64_t first_ns_ = UINT64_MAX, last_ns_ = 0;
    uint64_t streams_ = 0;
    std::array<uint64_t, kAlgorithms> told_by_{};  // bytes that each algorithm predicted
    std::array<Untold, kCauseCount> untold_{};
    uint64_t random_bytes_ = 0;   // not predicted, of streams classed as random
    uint64_t sequences_ = 0;      // most sequences in turn of a stream
    uint64_t repeat_period_ = 0;  // accesses of a repeated order; 0: none
};

}  // namespace penstock::file
