#include "planner/cost_model.h"

#include <algorithm>
#include <cmath>

namespace penstock::planner {
namespace {

// Bounds of the numbers of a model. Sums over 2^16 cells stay far from infinity, and no cost is 0.
constexpr double kNsMax = 1e12;
constexpr double kNsPerByteMin = 1e-6;
constexpr double kNsPerByteMax = 1e6;
constexpr double kBesideCopiesMax = 4;

double in_reach(double value, double otherwise, double least, double most) {
    return std::isnan(value) ? otherwise : std::clamp(value, least, most);
}

}  // namespace

CostModel sane(const CostModel& model) {
    const CostModel otherwise;
    const auto ns = [](double value, double instead) {
        return in_reach(value, instead, 0, kNsMax);
    };
    const auto rate = [](double value, double instead) {
        return in_reach(value, instead, kNsPerByteMin, kNsPerByteMax);
    };
    CostModel out;
    out.direct_ns = ns(model.direct_ns, otherwise.direct_ns);
    out.direct_ns_per_byte = rate(model.direct_ns_per_byte, otherwise.direct_ns_per_byte);
    out.cutoff_size = std::min(model.cutoff_size, kTransferSizeMax);
    out.direct_start_ns = ns(model.direct_start_ns, otherwise.direct_start_ns);
    out.direct_submit_ns = ns(model.direct_submit_ns, otherwise.direct_submit_ns);
    out.cached_ns = ns(model.cached_ns, otherwise.cached_ns);
    out.cached_ns_per_byte = rate(model.cached_ns_per_byte, otherwise.cached_ns_per_byte);
    out.buffered_ns = ns(model.buffered_ns, otherwise.buffered_ns);
    out.buffered_ns_per_byte = rate(model.buffered_ns_per_byte, otherwise.buffered_ns_per_byte);
    out.direct_beside_copies = in_reach(model.direct_beside_copies, otherwise.direct_beside_copies,
                                        1 / kBesideCopiesMax, kBesideCopiesMax);
    out.error = in_reach(model.error, kModelErrorUnknown, 0, kModelErrorMax);
    out.transfer_size_max = std::clamp(model.transfer_size_max, uint64_t{1}, kTransferSizeMax);
    out.direct_ns = std::max(out.direct_ns,
                             static_cast<double>(out.cutoff_size) * out.direct_ns_per_byte);
    return out;
}

}  // namespace penstock::planner
