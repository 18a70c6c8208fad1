// Predicts what a stream reads next. This is the interface between prediction and readahead.
//
// Readahead knows no patterns. Tests implement the interface with a scripted stream, the product
// with the online detector. Pure. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "access/program.h"

namespace penstock::readahead {

class Predictor {
public:
    virtual ~Predictor() = default;
    // Reports the stream's next access, at `time_ns`.
    virtual void observe(const access::Access& access, uint64_t time_ns) = 0;
    // Writes the next accesses in order, from the `skip`-th on (0: the next one). Returns how many;
    // 0 if the prediction should not be used. Allocates nothing.
    virtual size_t predict_from(size_t skip, std::span<access::Access> out) const = 0;
};

}  // namespace penstock::readahead
