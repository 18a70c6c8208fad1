// From the pairs of the tio benchmark's cells to the rows of the report. Pure but for what it
// prints.
#pragma once

#include <span>

#include "bench/harness/report.h"
#include "bench/tio/measure.h"

namespace penstock::bench {

// A row of several cells: the geometric means of their times, round by round.
struct TioAggregate {
    const char* name;
    bool (*holds)(const TioCell& cell);
};

[[nodiscard]] std::span<const TioAggregate> tio_aggregates();

// Adds a row for `auto` against each mechanism (first half) and against the best (other half).
void add_rows(Report& report, const TioResult& result, bool simulated);
// Adds the rows of several cells, with the worst cells in words.
void add_aggregates(Report& report, const Arguments& arguments,
                    const std::vector<TioResult>& results, bool simulated);

}  // namespace penstock::bench
