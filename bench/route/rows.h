// From the cells' pairs to the rows of the report. Pure but for what it prints.
#pragma once

#include <span>

#include "bench/harness/report.h"
#include "bench/route/measure.h"

namespace penstock::bench {

// A row of several cells: which belong to it.
struct Aggregate {
    const char* name;
    const char* against;
    bool (*holds)(const Cell& cell);
    bool worst;  // the pairs of its worst cell; else the geometric means of all, round by round
};

[[nodiscard]] std::span<const Aggregate> aggregates();

// A row for the cell against each mode (first half) and against the best one (the other half).
void add_rows(Report& report, const CellResult& result);
// The rows of all cells together, and the worst cells in words.
void add_aggregates(Report& report, const Arguments& arguments,
                    const std::vector<CellResult>& results);

}  // namespace penstock::bench
