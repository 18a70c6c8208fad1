// What an executor is asked to move, and its answers.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "penstock/options.h"
#include "penstock/report.h"
#include "storage/storage.h"
#include "transfer/source.h"

namespace penstock::transfer {

// A smaller request is not planned: a question about residency costs at least half a microsecond,
// and a read of this size some tens. It goes through the page cache. From RouteTrial::kSizeMin on,
// the cache is asked first if such reads were slow lately or are to leave nothing in it
// (small_transfers.h).
inline constexpr uint64_t kPlanSizeMin = 256 << 10;
// The largest request. Longer reads are cut into windows (job.h).
inline constexpr uint64_t kRequestSizeMax = 8 << 20;

// Returns whether reads bypass the page cache at any cost. Nothing here reads by kPeer yet: a read
// that asks for it without `strict` gets what `cache` says, and kNoPeer as its reason.
[[nodiscard]] inline bool asks_direct(const ReadOptions& options) {
    if (options.route == Route::kCached || options.route == Route::kDirect)
        return options.route == Route::kDirect;
    return options.cache == CachePolicy::kBypass;
}
// Returns why a whole read goes through the page cache, or nothing if the options do not ask for
// that.
[[nodiscard]] inline std::optional<RouteReason> asks_cached(const ReadOptions& options) {
    if (options.route == Route::kCached) return RouteReason::kAsked;
    if (!asks_direct(options) && options.cache == CachePolicy::kKeep) return RouteReason::kKeep;
    return std::nullopt;
}
// Returns the route that `strict` insists on, or nothing if the options name none.
[[nodiscard]] inline std::optional<Route> asked_route(const ReadOptions& options) {
    if (options.route.has_value() || options.cache != CachePolicy::kBypass) return options.route;
    return Route::kDirect;
}
// Returns whether bytes that were not in the page cache must not stay there. Such bytes bypass the
// cache, or go by calls that leave nothing, or the read fails.
[[nodiscard]] inline bool insists_on_drop(const ReadOptions& options) {
    return options.strict && options.cache == CachePolicy::kDrop;
}
// Returns whether bytes that go through the page cache for `reason` should not stay there. They
// were not seen there before.
[[nodiscard]] inline bool drops(const ReadOptions& options, RouteReason reason) {
    return options.cache == CachePolicy::kDrop && reason != RouteReason::kResident &&
           reason != RouteReason::kDirty;
}
// Returns whether such bytes stay all the same, which is known after the read. On file systems in
// memory they were there before.
[[nodiscard]] inline bool stays(const Source& source, const ReadOptions& options,
                                RouteReason reason) {
    return drops(options, reason) && source.file->drop_refused() && !source.probe.in_memory();
}
// Returns whether a read of host memory is small: it takes one storage operation, without a plan.
[[nodiscard]] inline bool is_small(uint64_t size, const ReadOptions& options) {
    return size < kPlanSizeMin && !asks_direct(options) && options.route != Route::kPeer &&
           !insists_on_drop(options);
}

// Returns whether such reads go through the page cache in any case. Then the kernel should read
// ahead of them.
[[nodiscard]] inline bool is_never_direct(uint64_t size, const ReadOptions& options) {
    return asks_cached(options).has_value() ||
           (size < RouteTrial::kSizeMin && is_small(size, options));
}

// Returns whether a small read of `source` should be planned if there are others with it. It most
// likely misses, and direct reads can overlap.
[[nodiscard]] inline bool plans_small(Source& source, uint64_t size, const ReadOptions& options) {
    return size >= RouteTrial::kSizeMin && source.trial.probing() &&
           source.file->direct_alignment().offset != 0 && !asks_cached(options) &&
           !source.direct_refused.load(std::memory_order_relaxed) &&
           source.trial.route() == Route::kDirect;
}

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

// The result of a small read, all of which took one route.
struct SmallOutcome {
    storage::Completion completion;
    Route route = Route::kCached;
    RouteReason reason = RouteReason::kSmall;
    Residency residency = Residency::kUnknown;
    uint64_t resident_size = 0;  // bytes of it in the OS page cache, if that was asked
};
void add_to(Report* report, uint64_t offset, const SmallOutcome& outcome);

}  // namespace penstock::transfer
