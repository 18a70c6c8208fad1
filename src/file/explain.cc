#include "file/explain.h"

#include <array>
#include <cstdio>
#include <cstring>

namespace penstock {
namespace {

std::string milliseconds(uint64_t ns) {
    std::array<char, 40> text;
    std::snprintf(text.data(), text.size(), "%.3f ms", static_cast<double>(ns) / 1e6);
    return text.data();
}

}  // namespace

std::string explain(const Report& report) {
    std::string routes, reasons;
    for (size_t i = 0; i < kRouteCount; ++i) {
        if (report.route_bytes[i] == 0) continue;
        routes += (routes.empty() ? "" : ", ") + std::to_string(report.route_bytes[i]) + " " +
                  name(static_cast<Route>(i));
    }
    for (size_t i = 0; i < kRouteReasonCount; ++i) {
        if (report.reason_bytes[i] == 0) continue;
        reasons += (reasons.empty() ? "; because " : ", ") +
                   std::string(name(static_cast<RouteReason>(i))) + " " +
                   std::to_string(report.reason_bytes[i]);
    }
    std::string line = std::to_string(report.bytes) + " of " + std::to_string(report.bytes_asked) +
                       " bytes: " + (routes.empty() ? "none" : routes) + reasons + "; " +
                       std::to_string(report.transfers) + " transfers";
    if (report.direct_depth != 0) line += " at depth " + std::to_string(report.direct_depth);
    line += ", queue " + milliseconds(report.queue_ns) + ", plan " + milliseconds(report.plan_ns) +
            ", read " + milliseconds(report.read_ns) + ", copy " + milliseconds(report.copy_ns);
    if (report.error_number != 0) {
        line += std::string("; ") + std::strerror(report.error_number) + " at offset " +
                std::to_string(report.error_offset) + " (" + name(report.error_route) + ")";
    }
    return line;
}

void file::print_explanation(const std::string& path, const char* operation, const Report& report) {
    const std::string line = "penstock: " + path + ": " + operation + " " +
                             std::to_string(report.bytes_asked) + " bytes at " +
                             std::to_string(report.offset) + ": " + explain(report) + "\n";
    (void)std::fputs(line.c_str(), stderr);
}

}  // namespace penstock
