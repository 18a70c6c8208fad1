// A plot of accesses, filled stream by stream. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "access/program.h"
#include "penstock/access.h"

namespace penstock::file {

class SignaturePlotter {
public:
    SignaturePlotter(size_t columns, size_t rows);

    // First all streams are measured, then all are drawn. `times_ns`: empty for plots over access
    // numbers, else one for each access.
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
