// Which reason a report gives for each byte that a read brought.
//
// A plan decides whole transfers; a direct one passes over cached bytes between missing ones, and a
// range of which nobody could tell is planned as if nothing of it were cached. A report tells bytes
// apart by what the OS page cache held of each. Pure.
#pragma once

#include <span>

#include "extent/residency.h"
#include "penstock/report.h"

namespace penstock::transfer {

// Adds `arrived` to `report` by reason. `reason` is the transfer's; `runs` are what the OS page
// cache held before, by offset, without overlap. Bytes that no run covers have the transfer's
// reason. Of a run that was cached in part, whose pages are not known, each piece counts in
// proportion, so that the counts of a whole run are exact.
void count_reasons(std::span<const extent::ResidencyRun> runs, const extent::Extent& arrived,
                   RouteReason reason, Report* report);

}  // namespace penstock::transfer
