// What the reports of this library's reads say to a benchmark. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "penstock/report.h"

namespace penstock::bench {

// Returns whether the report is of a whole read of `size` bytes, and its bytes by route, by reason
// and by residency each add up to that.
[[nodiscard]] bool adds_up(const penstock::Report& report, uint64_t size);

// Sums of the bytes by reason, over reads.
class ReasonBytes {
public:
    void add(const penstock::Report& report);
    void add(const ReasonBytes& other);
    // Returns "62 % resident, 38 % missing".
    [[nodiscard]] std::string in_words() const;

private:
    std::array<uint64_t, kRouteReasonCount> bytes_{};
};

}  // namespace penstock::bench
