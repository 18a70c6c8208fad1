#include "bench/harness/routes.h"

#include <algorithm>
#include <numeric>

namespace penstock::bench {
namespace {

template <class Parts>
uint64_t sum(const Parts& parts) {
    return std::accumulate(parts.begin(), parts.end(), uint64_t{0});
}

}  // namespace

bool adds_up(const penstock::Report& report, uint64_t size) {
    return report.bytes == size && report.bytes_asked == size && report.error_number == 0 &&
           sum(report.route_bytes) == size && sum(report.reason_bytes) == size &&
           sum(report.residency_bytes) == size;
}

void ReasonBytes::add(const penstock::Report& report) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] += report.reason_bytes[i];
}

void ReasonBytes::add(const ReasonBytes& other) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] += other.bytes_[i];
}

std::string ReasonBytes::in_words() const {
    const uint64_t all = std::max<uint64_t>(sum(bytes_), 1);
    std::string text;
    for (size_t i = 0; i < bytes_.size(); ++i) {
        const uint64_t percent = (100 * bytes_[i] + all / 2) / all;
        if (percent == 0) continue;
        text += (text.empty() ? "" : ", ") + std::to_string(percent) + " % " +
                name(static_cast<RouteReason>(i));
    }
    return text;
}

}  // namespace penstock::bench
