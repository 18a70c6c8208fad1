// Fits a CostModel to measured times: a flat part and a line for direct transfers, and lines for
// the other kinds.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "planner/cost_model.h"

namespace penstock::planner {
namespace {

struct Point {
    double size = 0;  // bytes
    double ns = 0;
    double spread = 0;
    size_t repeats = 0;
};

// Returns the number that so many quarters of `numbers` do not exceed. There is one at least.
double quartile(std::vector<double> numbers, size_t quarters) {
    const auto it = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() * quarters / 4);
    std::nth_element(numbers.begin(), it, numbers.end());
    return *it;
}

// Returns how far three quarters of the times of one size are from `middle` at most, relative.
double spread_of(std::span<const Point> times, double middle) {
    std::vector<double> distances;
    for (const Point& time : times) distances.push_back(std::abs(time.ns / middle - 1));
    return quartile(std::move(distances), 3);
}

// Returns one point per size, in order of size: the median of its times.
std::vector<Point> points_of(std::span<const Sample> samples, Sample::Kind kind) {
    std::vector<Point> all;
    for (const Sample& sample : samples) {
        if (sample.kind == kind && sample.size > 0 && std::isfinite(sample.ns) && sample.ns > 0)
            all.push_back({static_cast<double>(sample.size), sample.ns});
    }
    std::sort(all.begin(), all.end(), [](const Point& a, const Point& b) {
        return a.size != b.size ? a.size < b.size : a.ns < b.ns;
    });
    std::vector<Point> points;
    for (size_t first = 0, last = 0; first < all.size(); first = last) {
        while (last < all.size() && all[last].size == all[first].size) ++last;
        const size_t middle = first + (last - first) / 2;
        const double ns = (last - first) % 2 == 1 ? all[middle].ns
                                                  : (all[middle - 1].ns + all[middle].ns) / 2;
        const std::span<const Point> same = std::span(all).subspan(first, last - first);
        points.push_back({all[first].size, ns, spread_of(same, ns), same.size()});
    }
    return points;
}

// The line constant + slope * max(0, size - cutoff), with its error: the sum of squared relative
// errors.
struct Line {
    double constant = 0, slope = 0, cutoff = 0;
    double lacks = HUGE_VAL;

    [[nodiscard]] double at(double size) const {
        return constant + slope * std::max(0.0, size - cutoff);
    }
};

double lack_of(const Line& line, std::span<const Point> points) {
    double sum = 0;
    for (const Point& point : points) {
        const double error = line.at(point.size) / point.ns - 1;
        sum += error * error;
    }
    return sum;
}

// Returns the best line with this cutoff, slope >= 0 and constant >= cutoff * slope.
Line line_with(double cutoff, std::span<const Point> points) {
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0, edge_xx = 0, edge_xy = 0;
    for (const Point& point : points) {
        const double weight = 1 / (point.ns * point.ns);
        const double x = std::max(0.0, point.size - cutoff);
        w += weight;
        wx += weight * x;
        wxx += weight * x * x;
        wy += weight * point.ns;
        wxy += weight * x * point.ns;
        // On the boundary of what is allowed, the line is slope * (cutoff + x).
        const double edge = cutoff + x;
        edge_xx += weight * edge * edge;
        edge_xy += weight * edge * point.ns;
    }
    Line line;
    line.cutoff = cutoff;
    const double determinant = w * wxx - wx * wx;
    if (determinant > 1e-12 * w * wxx) {
        line.slope = (w * wxy - wx * wy) / determinant;
        line.constant = (wy - line.slope * wx) / w;
    }
    if (determinant <= 1e-12 * w * wxx || line.slope < 0) {
        line.slope = 0;
        line.constant = wy / w;
    }
    if (line.constant < cutoff * line.slope) {
        line.slope = edge_xx > 0 ? edge_xy / edge_xx : 0;
        line.constant = cutoff * line.slope;
    }
    line.lacks = lack_of(line, points);
    return line;
}

// Tries cutoffs at 0, at each size, and in geometric steps between sizes.
Line flat_then_linear(std::span<const Point> points) {
    constexpr int kSteps = 16;
    Line best = line_with(0, points);
    const auto attempt = [&](double cutoff) {
        const Line line = line_with(cutoff, points);
        if (line.lacks < best.lacks) best = line;
    };
    for (size_t i = 0; i + 1 < points.size(); ++i) {
        const double ratio = points[i + 1].size / points[i].size;
        for (int step = 0; step < kSteps; ++step)
            attempt(points[i].size * std::pow(ratio, static_cast<double>(step) / kSteps));
    }
    return best;
}

Fit::Quality quality_of(const Line& line, std::span<const Point> points) {
    Fit::Quality quality;
    quality.sizes = points.size();
    double mean = 0, errors = 0;
    std::vector<double> spreads;
    quality.repeats = points.empty() ? 0 : points.front().repeats;
    for (const Point& point : points) {
        quality.repeats = std::min(quality.repeats, point.repeats);
        spreads.push_back(point.spread);
        mean += point.ns / static_cast<double>(points.size());
        errors += std::abs(line.at(point.size) / point.ns - 1);
    }
    double left = 0, all = 0;
    for (const Point& point : points) {
        left += (point.ns - line.at(point.size)) * (point.ns - line.at(point.size));
        all += (point.ns - mean) * (point.ns - mean);
    }
    quality.r_squared = all > 0 ? 1 - left / all : left == 0 ? 1 : 0;
    quality.spread = points.empty() ? 0 : quartile(std::move(spreads), 2);
    quality.error_mean = points.empty() ? 0 : errors / static_cast<double>(points.size());
    return quality;
}

}  // namespace

// Each comparison also refuses NaN.
const char* refusal_of(const Fit::Quality& quality) {
    if (quality.sizes < Fit::kSizesMin) return "too few sizes were measured";
    if (quality.repeats < Fit::kRepeatsMin) return "too little time to measure often enough";
    if (!(quality.spread <= Fit::kSpreadMax)) return "times of the same size differ too much";
    if (!(quality.error_mean <= Fit::kErrorMax)) return "the times follow no costs";
    if (!(quality.r_squared >= Fit::kRSquaredMin)) return "the times hardly follow the sizes";
    return nullptr;
}

Fit fit(std::span<const Sample> samples, const CostModel& start) {
    Fit result;
    result.model = sane(start);
    CostModel& model = result.model;
    const auto fitted = [&](Sample::Kind kind, Line (*shape)(std::span<const Point>), Line* line,
                            Fit::Quality* quality) {
        const std::vector<Point> points = points_of(samples, kind);
        quality->sizes = points.size();
        if (points.size() < 2) return false;
        *line = shape(points);
        *quality = quality_of(*line, points);
        return true;
    };
    const auto straight = [](std::span<const Point> points) { return line_with(0, points); };
    Line line;
    if (fitted(Sample::Kind::kDirect, flat_then_linear, &line, &result.direct)) {
        model.direct_ns = line.constant;
        model.direct_ns_per_byte = line.slope;
        model.cutoff_size = static_cast<uint64_t>(line.cutoff);
    }
    if (fitted(Sample::Kind::kCached, straight, &line, &result.cached)) {
        model.cached_ns = line.constant;
        model.cached_ns_per_byte = line.slope;
    }
    if (fitted(Sample::Kind::kBuffered, straight, &line, &result.buffered)) {
        // A call that waits for pages also pays the cost of a cached call.
        model.buffered_ns = std::max(0.0, line.constant - model.cached_ns);
        model.buffered_ns_per_byte = line.slope;
    }
    model = sane(model);
    return result;
}

}  // namespace penstock::planner
