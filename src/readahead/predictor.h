// Who tells what a stream reads next: the seam between prediction and readahead.
//
// Readahead knows no pattern; tests put a scripted stream here, the product the online detector.
// Pure. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "access/program.h"

namespace penstock::readahead {

class Predictor {
public:
    virtual ~Predictor() = default;
    // The stream's next access, at `time_ns`.
    virtual void observe(const access::Access& access, uint64_t time_ns) = 0;
    // Writes the accesses that come, from the `skip`-th on (0: the next one), in order. Returns how
    // many; 0 where none may be acted upon. Allocates nothing.
    virtual size_t predict_from(size_t skip, std::span<access::Access> out) const = 0;
};

}  // namespace penstock::readahead
