// Says which routes the bytes of a read or write may take, as far as its options and the file
// decide it. All code that depends on a route asks here.
//
// Where more than one route is left, the planner chooses by residency and costs (planner.h), and
// small reads choose by the times of earlier ones (transfer/route_trial.h). Pure; a value, computed
// once for each request.
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/options.h"
#include "planner/planner.h"

namespace penstock::planner {

// A smaller request is not planned: a question about residency costs at least half a microsecond,
// and a read of this size some tens. It goes through the page cache. From kDirectSizeMin on, the
// cache is asked first if such reads were slow lately or are to leave nothing in it.
inline constexpr uint64_t kPlanSizeMin = 256 << 10;
// A smaller direct read cannot pay off.
inline constexpr uint64_t kDirectSizeMin = 32 << 10;

// What is known of a file without a question about its bytes.
struct FileFacts {
    DirectOffer direct;           // of its file system
    bool direct_refused = false;  // direct I/O was refused, although the file system offers it
    bool in_memory = false;       // its file system lives in the OS page cache
};

class RoutePolicy {
public:
    RoutePolicy() = default;
    RoutePolicy(const ReadOptions& options, const FileFacts& file)
        : file_(file), route_(options.route), cache_(options.cache), strict_(options.strict) {}

    // Returns whether bytes bypass the page cache at any cost. No code reads by kPeer yet: a read
    // that asks for it without `strict` gets what `cache` says, and kNoPeer as its reason.
    [[nodiscard]] bool asks_direct() const {
        if (route_ == Route::kCached || route_ == Route::kDirect) return route_ == Route::kDirect;
        return cache_ == CachePolicy::kBypass;
    }
    // Returns why all bytes go through the page cache, or nothing if the options do not ask for
    // that.
    [[nodiscard]] std::optional<RouteReason> asks_cached() const {
        if (route_ == Route::kCached) return RouteReason::kAsked;
        if (!asks_direct() && cache_ == CachePolicy::kKeep) return RouteReason::kKeep;
        return std::nullopt;
    }
    // Returns whether the options leave everything to the library.
    [[nodiscard]] bool asks_nothing() const {
        return cache_ == CachePolicy::kAuto && !route_.has_value();
    }
    // Returns the route that all bytes must take, or nothing. A request that cannot take it fails.
    [[nodiscard]] std::optional<Route> required() const {
        if (!strict_) return std::nullopt;
        if (route_.has_value() || cache_ != CachePolicy::kBypass) return route_;
        return Route::kDirect;
    }

    // Returns whether bytes can bypass the page cache.
    [[nodiscard]] bool can_be_direct() const {
        return file_.direct.offset_alignment != 0 && !file_.direct_refused;
    }
    // Returns whether a small read of `size` bytes may bypass the page cache if it misses.
    [[nodiscard]] bool may_be_direct(uint64_t size) const {
        return size >= kDirectSizeMin && can_be_direct() && !asks_cached();
    }
    // Returns whether a request of host memory takes one storage operation, without a plan.
    [[nodiscard]] bool is_small(uint64_t size) const {
        return size < kPlanSizeMin && !asks_direct() && route_ != Route::kPeer &&
               !(strict_ && wants_drop());
    }
    // Returns whether reads of `size` bytes go through the page cache in any case.
    [[nodiscard]] bool goes_through_cache(uint64_t size) const {
        return asks_cached() || !can_be_direct() || (size < kDirectSizeMin && is_small(size));
    }
    // Returns whether the plan of such a read begins with a question about the page cache.
    [[nodiscard]] bool asks_residency(uint64_t size) const {
        return can_be_direct() && !asks_cached() && (!asks_direct() || size >= kPlanSizeMin);
    }
    // Bytes that come through the cache stay there, which kDrop forbids.
    [[nodiscard]] Buffered buffered() const {
        return wants_drop() ? Buffered::kNever : Buffered::kGaining;
    }
    // Returns why a write goes through the page cache, as far as it does.
    [[nodiscard]] RouteReason cached_write_reason() const {
        if (asks_direct() && file_.direct_refused) return RouteReason::kRefused;
        return asks_cached().value_or(RouteReason::kDeferred);
    }
    // Returns why an append goes through the page cache. Where it begins is known only when it is
    // written, so no part of it is known to be aligned.
    [[nodiscard]] RouteReason append_reason() const {
        return asks_direct() ? RouteReason::kUnaligned : cached_write_reason();
    }

    // Returns whether bytes that were not in the page cache should not stay there.
    [[nodiscard]] bool wants_drop() const { return cache_ == CachePolicy::kDrop; }
    // Returns whether bytes that go through the cache for `reason` should not stay there. They were
    // not seen there before.
    [[nodiscard]] bool drops(RouteReason reason) const {
        return wants_drop() && reason != RouteReason::kResident && reason != RouteReason::kDirty;
    }
    // Returns whether they go by calls that leave nothing in the cache. Part of a dirty range may
    // be missing.
    [[nodiscard]] bool leaves_nothing(RouteReason reason) const {
        return drops(reason) || (wants_drop() && reason == RouteReason::kDirty);
    }
    // Returns whether the request fails if they stay.
    [[nodiscard]] bool must_drop(RouteReason reason) const {
        return strict_ && drops(reason) && !file_.in_memory;
    }
    // Returns the reason for a report, once bytes that were to take `route` for `reason` have taken
    // it. `drop_refused`: the kernel has no calls for this file that leave nothing. On file systems
    // in memory the bytes were in the cache before.
    [[nodiscard]] RouteReason reported(Route route, RouteReason reason, bool drop_refused) const {
        if (route_ == Route::kPeer && route != Route::kPeer) return RouteReason::kNoPeer;
        const bool stays = route == Route::kCached && drops(reason) && drop_refused;
        return stays && !file_.in_memory ? RouteReason::kNoDrop : reason;
    }

    // Sets the fields of a planner's request that follow from the policy.
    void fill(Request* request) const {
        request->direct = file_.direct;
        request->direct_asked = asks_direct() && can_be_direct();
        request->cached_because = asks_cached();
        // Where direct I/O is not offered, the planner says so.
        if (!asks_cached() && file_.direct.offset_alignment != 0 && file_.direct_refused)
            request->cached_because = RouteReason::kRefused;
        request->buffered = buffered();
    }
    void fill(WriteRequest* request) const {
        request->direct = file_.direct;
        request->direct_asked = asks_direct() && !file_.direct_refused;
        request->cached_because = cached_write_reason();
    }

private:
    FileFacts file_;
    std::optional<Route> route_;
    CachePolicy cache_ = CachePolicy::kAuto;
    bool strict_ = false;
};

}  // namespace penstock::planner
