#include "planner/buffered.h"

#include <cmath>

namespace penstock::planner {
namespace {

// More than direct transfers cost on any storage, so that ways go by it only where they must.
constexpr double kForbiddenNs = 1e9;
constexpr double kForbiddenNsPerByte = 1e6;

}  // namespace

CostModel searched_model(const CostModel& model, Buffered buffered) {
    const bool gains = model.direct_ns_per_byte >= kBufferedGainMin * model.buffered_ns_per_byte;
    if (buffered == Buffered::kCheaper || (buffered == Buffered::kGaining && gains)) return model;
    CostModel out = model;
    out.buffered_ns = kForbiddenNs;
    out.buffered_ns_per_byte = kForbiddenNsPerByte;
    return out;
}

void settle_mixed(std::span<extent::ResidencyRun> runs, uint64_t grain, const CostModel& model,
                  Buffered buffered) {
    for (extent::ResidencyRun& run : runs) {
        if (run.state != extent::Residency::kMixed) continue;
        const auto size = static_cast<double>(run.range.size);
        const double missing = size - static_cast<double>(run.resident_size);
        const double reads = std::ceil(size / static_cast<double>(grain));
        const double buffered_ns = missing * model.buffered_ns_per_byte + reads * model.buffered_ns;
        const bool direct = buffered == Buffered::kNever ||
                            size * model.direct_ns_per_byte < buffered_ns;
        run.state = direct ? extent::Residency::kMissing : extent::Residency::kCached;
    }
}

}  // namespace penstock::planner
