#include "planner/buffered.h"

#include <algorithm>
#include <cmath>

namespace penstock::planner {
namespace {

// More than direct transfers cost on any storage, so a way uses it only where there is no other.
constexpr double kForbiddenNs = 1e9;
constexpr double kForbiddenNsPerByte = 1e6;

}  // namespace

CostModel searched_model(const CostModel& model, Buffered buffered) {
    CostModel out = model;
    const double more = 1 + model.error, less = 1 - model.error;
    for (double* const ns : {&out.direct_ns, &out.direct_ns_per_byte, &out.direct_start_ns,
                             &out.direct_submit_ns, &out.buffered_ns, &out.buffered_ns_per_byte})
        *ns *= more;
    for (double* const ns : {&out.cached_ns, &out.cached_ns_per_byte}) *ns *= less;
    const bool gains = model.direct_ns_per_byte >= kBufferedGainMin * model.buffered_ns_per_byte;
    if (buffered == Buffered::kCheaper || (buffered == Buffered::kGaining && gains)) return out;
    out.buffered_ns = kForbiddenNs;
    out.buffered_ns_per_byte = kForbiddenNsPerByte;
    return out;
}

// Decides about each run alone, then about all together. A read of missing pages queues behind the
// direct transfers in flight, and nothing is copied until it is over. So the copies that the
// transfers would have hidden are added to the time.
void settle_mixed(std::span<extent::ResidencyRun> runs, uint64_t grain, const CostModel& model,
                  Buffered buffered) {
    double copies_ns = 0, storage_ns = 0;  // of bytes that are copied, or direct, in any case
    double as_direct_ns = 0, as_buffered_ns = 0;  // of mixed runs that alone would be copied
    const auto is_cheaper_buffered = [&](const extent::ResidencyRun& run, bool count) {
        const auto size = static_cast<double>(run.range.size);
        const double missing = size - static_cast<double>(run.resident_size);
        const double reads = std::ceil(size / static_cast<double>(grain));
        // A direct transfer would bypass pages that are cached, so the error counts against it.
        const double buffered_ns = (1 - model.error) * (missing * model.buffered_ns_per_byte +
                                                        reads * model.buffered_ns);
        const double direct_ns = (1 + model.error) * size * model.direct_ns_per_byte;
        const bool cheaper = buffered != Buffered::kNever && buffered_ns <= direct_ns;
        if (!count) return cheaper;
        if (cheaper) {
            copies_ns += (size - missing) * model.cached_ns_per_byte;
            as_direct_ns += direct_ns;
            as_buffered_ns += buffered_ns;
        } else {
            storage_ns += direct_ns;
        }
        return cheaper;
    };
    for (const extent::ResidencyRun& run : runs) {
        const auto size = static_cast<double>(run.range.size);
        if (run.state == extent::Residency::kMixed) {
            (void)is_cheaper_buffered(run, true);
        } else if (run.state == extent::Residency::kMissing) {
            storage_ns += size * model.direct_ns_per_byte;
        } else {
            copies_ns += size * model.cached_ns_per_byte;
        }
    }
    const bool may_wait = as_buffered_ns + std::min(copies_ns, storage_ns) <= as_direct_ns;
    for (extent::ResidencyRun& run : runs) {
        if (run.state != extent::Residency::kMixed) continue;
        const bool copied = may_wait && is_cheaper_buffered(run, false);
        run.state = copied ? extent::Residency::kCached : extent::Residency::kMissing;
    }
}

}  // namespace penstock::planner
