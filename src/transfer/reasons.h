// Adds to reports: bytes with their reasons, and errors.
//
// A plan decides about whole transfers. A direct transfer reads over cached bytes between missing
// ones, and a range of unknown residency is planned as if it were not cached. A report tells bytes
// apart by what the OS page cache held of each. Pure.
#pragma once

#include <span>

#include "extent/residency.h"
#include "penstock/report.h"

namespace penstock::transfer {

// Adds `arrived` to `report` by reason. `reason` is the transfer's. `runs` say what the OS page
// cache held before, by offset and without overlap. Bytes that no run covers get the transfer's
// reason. A partly cached run does not say which pages are cached; each piece of it counts in
// proportion, so that the sums over the whole run are exact.
void count_reasons(std::span<const extent::ResidencyRun> runs, const extent::Extent& arrived,
                   RouteReason reason, Report* report);

// Adds the counts of bytes, but no times and errors.
void add_bytes(Report* to, const Report& from);

// Adds that a transfer by `route` failed with `error` (an errno) at `offset`. A report keeps the
// error at the lowest offset, and of several there the first.
void add_error(Report* report, int error, uint64_t offset, Route route);

}  // namespace penstock::transfer
