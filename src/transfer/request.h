// What an executor is asked to move, and its answers.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "extent/extent.h"
#include "penstock/options.h"
#include "penstock/report.h"
#include "transfer/source.h"

namespace penstock::transfer {

using planner::kPlanSizeMin;
// The largest request. Longer reads are cut into windows (job.h).
inline constexpr uint64_t kRequestSizeMax = 8 << 20;

// Collects what a request reads through the cache, until it goes to the device together with
// others.
struct StagedPart {
    std::byte* memory = nullptr;          // for the request's first byte
    uint64_t offset = 0;                  // of the request
    std::vector<extent::Extent> extents;  // ranges that have arrived in `memory`
    Report report;                        // for these ranges only
};

// Bytes [offset, offset + size) of a file, to be read into or written from `pieces` in order.
struct Request {
    Source* source = nullptr;
    uint64_t offset = 0;
    uint64_t size = 0;
    std::span<const iovec> pieces;  // `size` bytes in total; must stay until the outcome
    // The memory is device memory that the host cannot address. A read then has one piece.
    bool device_memory = false;
    // Null, or set for a read into device memory: cached reads end there, and are then done.
    StagedPart* staged_part = nullptr;
    // More requests will follow this one. Then even a small one is worth a plan, because a read
    // through the page cache makes the kernel read ahead too.
    bool looks = false;
    // The pieces are sources, which must not change before the outcome. Writes that overlap other
    // requests in flight happen in any order.
    bool write = false;
    ReadOptions options;
    Report* report = nullptr;  // null, or added to; used only by the executor's thread
    uint64_t cookie = 0;
};

// `bytes` were moved from the start without a gap. If there are fewer than requested, a read
// reached the end of the file, or `error` (an errno) occurred at `offset + bytes`. Bytes behind
// that may have moved all the same. A write begins nothing more after an error.
struct Outcome {
    uint64_t cookie = 0;
    uint64_t bytes = 0;
    int error = 0;
    uint32_t operations = 0;  // of the storage
};

}  // namespace penstock::transfer
