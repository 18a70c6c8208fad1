// Requests of a kernel that host threads take from slots and answer, with no page cache between:
// what the kernel and those threads share.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/handle.h"
#include "penstock/kernel.h"

namespace penstock::bench {

inline constexpr uint64_t kSlotWords = 8;  // a cache line for each

// Block b, of one GPU thread, asks for requests b * count to b * count + count - 1, one after the
// other, each by its number plus 1 in the slot of its block, and waits until the host has taken it
// out again.
struct PostJob {
    DeviceFileSystem fs;  // whose host words end a wait when the program is told to stop
    uint64_t* slots;      // pinned; kSlotWords for each; 0: empty. Written by both sides in turn
    uint64_t slot_count;  // at least as many as blocks
    uint64_t count;
    // Where the host puts each block's bytes, and bytes of a request, for the kernel to look at; 0:
    // it puts them nowhere.
    const unsigned char* buffers;
    uint64_t request_size;
    unsigned long long* result;  // += wrong words, += requests
};
PENSTOCK_GLOBAL void post_requests(PostJob job);

}  // namespace penstock::bench
