// The cases of bench readahead that want files or states of their own.
#pragma once

#include "bench/harness/report.h"
#include "bench/harness/walk_rig.h"

namespace penstock::bench {

// Files that the OS has nothing of: in order, and at equal distances over a throttle.
void measure_cold(WalkDevice& device, Report& report, const Arguments& arguments);
// A picture from start to end, and for each of its pages a tile at random (seed 000, section 3.1).
void measure_mosaic(WalkDevice& device, Report& report, const Arguments& arguments);
// What a launch learns for the next one of its kernel.
void measure_second_launch(WalkDevice& device, Report& report, const Arguments& arguments);

// Options with the page size, bytes of frames and readahead given, and all else as it comes.
FileSystemOptions with_pages(uint32_t page_size, uint64_t cache_size, Readahead readahead);

}  // namespace penstock::bench
