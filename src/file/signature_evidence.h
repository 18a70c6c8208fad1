// What the online detector makes of a stream: the class, and what it did not tell ahead and why.
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "access/detector.h"
#include "penstock/access.h"

namespace penstock::file {

class SignatureEvidence {
public:
    // Lets a new detector see one stream. `times_ns` may be empty.
    void watch(std::span<const access::Access> accesses, std::span<const uint64_t> times_ns);
    // What another stream gave, to be told together with this one.
    void add(const SignatureEvidence& other);
    [[nodiscard]] uint64_t accesses() const { return statistics_.observed; }
    // Class, confidence, accesses, and what was not predicted.
    void describe(SignatureStream* out) const;

private:
    static constexpr size_t kAlgorithms = static_cast<size_t>(access::Algorithm::kRandom) + 1;

    std::array<uint64_t, kAlgorithms> right_{};  // accesses that each algorithm told
    access::Statistics statistics_;
    uint64_t streams_ = 0;
    uint64_t random_ = 0;  // accesses untold in streams that were given up as random
};

}  // namespace penstock::file
