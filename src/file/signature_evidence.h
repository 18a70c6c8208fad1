// Summarises the online detector's results for a stream: its class, and how many accesses it did
// not predict and why. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "access/detector.h"
#include "penstock/access.h"

namespace penstock::file {

class SignatureEvidence {
public:
    // Feeds one stream to a new detector. `times_ns` may be empty.
    void watch(std::span<const access::Access> accesses, std::span<const uint64_t> times_ns);
    // Adds the results of another stream to these.
    void add(const SignatureEvidence& other);
    [[nodiscard]] uint64_t accesses() const { return statistics_.observed; }
    // Stores the class, the confidence, the count of accesses, and the accesses not predicted.
    void describe(SignatureStream* out) const;

private:
    static constexpr size_t kAlgorithms = static_cast<size_t>(access::Algorithm::kRandom) + 1;

    std::array<uint64_t, kAlgorithms> right_{};  // accesses that each algorithm predicted
    access::Statistics statistics_;
    uint64_t streams_ = 0;
    uint64_t random_ = 0;  // accesses not predicted in streams classed as random
};

}  // namespace penstock::file
