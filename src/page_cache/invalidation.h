// The host's operations on the page table: it drops the pages of a file that has changed, and pins
// that kernels have left.
//
// They follow the same protocol as GPU threads (include/penstock/device), on memory that the host
// can address. Any thread; kernels may run, except where noted.
#pragma once

#include <cstdint>

#include "penstock/abi/file_system.h"

namespace penstock::page_cache {

// Evicts all pages of a closed file and frees its leaves. Returns false if a page is held; call
// again later.
bool drop_file(FileSystemState& system, uint32_t slot);

// Drops all pins and gives up all asynchronous calls, whose handles become invalid. Returns the
// count of calls. Requires that no kernel runs. The pins are then of views that were never
// unmapped, of calls that were never waited for, and of blocks that were stopped inside a call.
uint64_t drop_held(FileSystemState& system);

// What must hold whenever no kernel runs. Returns the number of the first broken invariant, or 0:
//   1. an entry in FETCHING, VALID or FAILED names a frame whose owner word names that page;
//   2. no two entries name one frame;
//   3. a leaf with an owner is named by that directory word, and only by it;
//   4. pins are exactly those of views and asynchronous calls;
//   5. a frame is an entry's (its owner word then names that page), a window's (kFrameTaken, and
//      its bit in the `left` of one window set), or free;
//   6. window_frames counts the places of all windows, and `left` has bits for no others;
//   7. each slab is in one ring, which its owner word names, or fresh; rings_in_use counts rings;
//   8. no place is locked;
//   9. marks are of dirty pages only, dirty_pages counts those, and a write-back is under way of
//      none but those: as many as write_backs_begun says;
//  10. a file that is not open has no dirty page.
int check_invariants(FileSystemState& system);

}  // namespace penstock::page_cache
