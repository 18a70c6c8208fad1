// Measures what direct and cached transfers of all sizes take, executed by MixedReads, and fits the
// planner's model to it.
#pragma once

#include <string>

#include "bench/harness/cache_state.h"
#include "bench/plan/mixed_reads.h"
#include "planner/cost_model.h"

namespace penstock::bench {

// `rounds`: times that each size is measured. Changes the cache state.
planner::Fit calibrate(const TestFile& file, CacheState& cache, MixedReads& reads,
                       HugeBuffer& buffer, unsigned rounds);

}  // namespace penstock::bench
