// Goal: a report says of each byte what the page cache held of it, not what the plan said of the
// transfer that brought it, and no byte is lost between two pieces. Of several errors it keeps the
// one at the lowest offset.
#include "transfer/reasons.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <numeric>

namespace penstock::transfer {
namespace {

using extent::ResidencyRun;

constexpr std::array<ResidencyRun, 4> kRuns = {{
    {{1000, 1000}, Residency::kMissing, 0},
    {{2000, 1000}, Residency::kCached, 1000},
    {{3000, 1000}, Residency::kMixed, 333},
    {{4000, 1000}, Residency::kUnknown, 0},
}};

using Counts = std::array<uint64_t, kRouteReasonCount>;

Counts counted(RouteReason reason, const extent::Extent& arrived) {
    Report report;
    count_reasons(kRuns, arrived, reason, &report);
    return report.reason_bytes;
}

uint64_t of(const Counts& counts, RouteReason reason) {
    return counts[static_cast<size_t>(reason)];
}

TEST(Reasons, ADirectTransferTellsWhatItSwallowedAndWhatNobodyKnew) {
    for (const RouteReason reason : {RouteReason::kMissing, RouteReason::kSwallowed}) {
        const Counts all = counted(reason, {1000, 4000});
        EXPECT_EQ(of(all, RouteReason::kMissing), 1000u + 667);
        EXPECT_EQ(of(all, RouteReason::kSwallowed), 1000u + 333);
        EXPECT_EQ(of(all, RouteReason::kUnknown), 1000u);
    }
    EXPECT_EQ(of(counted(RouteReason::kMissing, {2500, 300}), RouteReason::kSwallowed), 300u);
}

TEST(Reasons, ACopyTellsWhatItHadToBringInFirst) {
    const Counts all = counted(RouteReason::kCheaperBuffered, {1000, 4000});
    EXPECT_EQ(of(all, RouteReason::kCheaperBuffered), 1000u + 667);
    EXPECT_EQ(of(all, RouteReason::kResident), 1000u + 333);
    EXPECT_EQ(of(all, RouteReason::kUnknown), 1000u);
}

TEST(Reasons, WhatCostsDidNotDecideStaysAsItIs) {
    for (const RouteReason reason : {RouteReason::kAsked, RouteReason::kTimed, RouteReason::kDirty,
                                     RouteReason::kNoDrop, RouteReason::kSmall}) {
        EXPECT_EQ(of(counted(reason, {1000, 4000}), reason), 4000u);
    }
    // Nobody looked at what lies outside the runs.
    EXPECT_EQ(of(counted(RouteReason::kMissing, {0, 1000}), RouteReason::kMissing), 1000u);
}

TEST(Reasons, PiecesOfARunAddUpToTheRun) {
    for (const uint64_t step : {1ull, 7ull, 64ull, 999ull}) {
        Counts sum{};
        for (uint64_t at = 900; at < 5100; at += step) {
            const uint64_t size = std::min<uint64_t>(step, 5100 - at);
            const Counts part = counted(RouteReason::kMissing, {at, size});
            EXPECT_EQ(std::accumulate(part.begin(), part.end(), uint64_t{0}), size);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
        }
        EXPECT_EQ(sum, counted(RouteReason::kMissing, {900, 4200})) << step;
    }
}

TEST(Reasons, AReportKeepsTheErrorAtTheLowestOffset) {
    Report report;
    const auto add = [&](int error, uint64_t offset, Route route) {
        add_error(&report, error, offset, route);
        return report.error_number;
    };
    EXPECT_EQ(add(EIO, 200, Route::kCached), EIO);
    EXPECT_EQ(add(ENODATA, 300, Route::kDirect), EIO);
    EXPECT_EQ(add(ENODATA, 200, Route::kDirect), EIO) << "the first of two at one offset";
    EXPECT_EQ(report.error_route, Route::kCached);
    EXPECT_EQ(add(EINVAL, 100, Route::kDirect), EINVAL);
    EXPECT_EQ(report.error_offset, 100u);
    EXPECT_EQ(report.error_route, Route::kDirect);
}

}  // namespace
}  // namespace penstock::transfer
