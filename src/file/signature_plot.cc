// Maps accesses to cells of the plot. Each access is as high as its bytes, but at least one cell.
#include "file/signature_plot.h"

#include <algorithm>

namespace penstock::file {
namespace {

// Returns the index of the cell, of `cells` equal ones over [0, end), in which `at` lies.
size_t cell_of(uint64_t at, uint64_t end, size_t cells) {
    if (end <= 1) return 0;
    const auto wide = static_cast<unsigned __int128>(at) * cells / end;
    return std::min(static_cast<size_t>(wide), cells - 1);
}

uint64_t end_of(const access::Access& access) {
    return static_cast<uint64_t>(access.offset) + static_cast<uint64_t>(access.size);
}

}  // namespace

SignaturePlotter::SignaturePlotter(size_t columns, size_t rows) {
    plot_.columns = columns;
    plot_.rows = rows;
    plot_.cells.assign(columns * rows, 0);
}

void SignaturePlotter::measure(std::span<const access::Access> accesses,
                               std::span<const uint64_t> times_ns) {
    for (const access::Access& access : accesses) {
        const auto begin = static_cast<uint64_t>(access.offset);
        plot_.offset_begin = measured_ ? std::min(plot_.offset_begin, begin) : begin;
        plot_.offset_end = std::max(plot_.offset_end, end_of(access));
        measured_ = true;
    }
    if (times_ns.empty()) {
        plot_.x_end = std::max<uint64_t>(plot_.x_end, accesses.size());
        return;
    }
    // Until all streams are measured, x_end is a point in time. draw() then subtracts the first
    // time.
    time_first_ = std::min(time_first_, times_ns.front());
    plot_.x_end = std::max(plot_.x_end, times_ns.back());
}

void SignaturePlotter::draw(size_t stream, std::span<const access::Access> accesses,
                            std::span<const uint64_t> times_ns) {
    const uint64_t height = plot_.offset_end - plot_.offset_begin;
    const uint64_t width = times_ns.empty() ? plot_.x_end : plot_.x_end - time_first_ + 1;
    const auto colour = static_cast<uint8_t>(1 + stream % SignaturePlot::kColours);
    for (size_t i = 0; i < accesses.size(); ++i) {
        const uint64_t x = times_ns.empty() ? i : times_ns[i] - time_first_;
        const size_t column = cell_of(x, width, plot_.columns);
        const uint64_t begin = static_cast<uint64_t>(accesses[i].offset) - plot_.offset_begin;
        const uint64_t last = begin +
                              static_cast<uint64_t>(std::max<int64_t>(accesses[i].size, 1)) - 1;
        const size_t low = cell_of(begin, height, plot_.rows);
        const size_t high = std::max(low, cell_of(last, height, plot_.rows));
        for (size_t up = low; up <= high; ++up)
            plot_.cells[(plot_.rows - 1 - up) * plot_.columns + column] = colour;
    }
}

SignaturePlot SignaturePlotter::take() {
    if (time_first_ != UINT64_MAX) plot_.x_end -= time_first_;
    return std::move(plot_);
}

}  // namespace penstock::file
