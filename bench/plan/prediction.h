// Whether plans take the time they predict, and how well anybody could have known.
//
// Random vectors made real: 8 requests lie side by side in a file, the cache state is checked
// before each round, and penstock::File reads them on one thread. What the report says its plan
// expected against the time that it says reading took, less that of looking and planning: each
// request against the median of 3 runs, 1 - mean relative error. Each prediction is made before its
// request is run, by a model that follows what the reads before it took.
//
// The limit is the same metric for somebody who predicts nothing: of further requests, run more
// often, the median of 3 runs is compared with that of the other runs of the very same request, as
// many before as behind them. What they differ by is the machine's: a model cannot do much better.
#pragma once

#include "bench/harness/report.h"
#include "penstock/options.h"

namespace penstock::bench {

// Adds `predicted-time` and `predicted-time-limit`. `options`: one thread.
void measure_prediction(Report& report, const Arguments& arguments, const FileOptions& options);

}  // namespace penstock::bench
