// Fills a plot of accesses, one stream after another. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "access/program.h"
#include "penstock/access.h"

namespace penstock::file {

class SignaturePlotter {
public:
    SignaturePlotter(size_t columns, size_t rows);

    // The caller first measures all streams, then draws all of them. If `times_ns` is empty the
    // plot is over access numbers, else it has one time for each access.
    void measure(std::span<const access::Access> accesses, std::span<const uint64_t> times_ns);
    void draw(size_t stream, std::span<const access::Access> accesses,
              std::span<const uint64_t> times_ns);

    [[nodiscard]] SignaturePlot take();

private:
    SignaturePlot plot_;
    bool measured_ = false;
    uint64_t time_first_ = UINT64_MAX;
};

}  // namespace penstock::file
