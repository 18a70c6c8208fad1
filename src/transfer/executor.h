// Plans requests and executes the plans: residency, planner, storage, staging, completion.
//
// Only executors call Queue::submit. One thread at a time; each transferring thread has its own
// executor. The constructor takes the memory, with two exceptions: lists grow to the longest
// request so far, and the first request that needs pinned memory takes it.
//
// A request is cut into transfers. Direct ones go to the storage first and need no CPU. Cached ones
// follow one at a time; each is a copy on this thread. If the storage cannot move bytes between the
// file and their place, they pass through staging: after the storage in a read, before it in a
// write. Cached ends of a write wait until its direct middle is done (planner.h says why).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bounded.h"
#include "penstock/options.h"
#include "penstock/report.h"
#include "planner/planner.h"
#include "storage/storage.h"
#include "transfer/source.h"
#include "transfer/staging.h"

namespace penstock::transfer {

// A smaller request is not planned: a question about residency costs at least half a microsecond,
// and a read of this size some tens. It goes through the page cache. From RouteTrial::kSizeMin on,
// the cache is asked first if such reads were slow lately or are to leave nothing in it
// (executor_small.cc).
inline constexpr uint64_t kPlanSizeMin = 256 << 10;
// The largest request. Longer reads are cut into windows (window_cutter.h).
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
// Returns whether a read of host memory is one for Executor::read_small.
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

class Executor {
public:
    struct Limits {
        uint32_t depth = 16;    // storage operations in flight
        uint32_t requests = 4;  // requests in progress
    };

    // Makes an executor. `device` serves requests in device memory that the host cannot address;
    // null: there are no such requests. `storage` and `device` must outlive it.
    static Result<std::unique_ptr<Executor>> create(storage::Storage& storage,
                                                    backend::Device* device, const Limits& limits);
    // Requires that all requests have been reaped.
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    // Takes the pinned memory now, so that a measurement does not include it.
    Status prepare() { return staging_->prepare(); }

    // Takes a request, plans it, and starts its direct transfers. Returns false if there is no
    // room; the caller must reap first.
    [[nodiscard]] bool submit(const Request& request);
    // Continues the work, stores at most out.size() outcomes, and returns how many. With `wait`,
    // blocks until there is at least one, unless nothing is outstanding.
    [[nodiscard]] size_t reap(std::span<Outcome> out, bool wait);
    [[nodiscard]] size_t outstanding() const { return in_work_ + finished_.size(); }
    [[nodiscard]] bool has_room() const { return outstanding() < limits_.requests; }
    // Returns whether some transfers taken have not started. A thread that shares work with others
    // takes no more until they have.
    [[nodiscard]] bool has_unstarted() const { return !unstarted_.empty(); }
    // Returns whether some of those are copies, which this thread must make.
    [[nodiscard]] bool has_copies() const;

    // Makes one read or write that is_small(), at the least cost. Requires that nothing else is
    // outstanding.
    [[nodiscard]] SmallOutcome read_small(Source& source, uint64_t offset, const iovec& to,
                                          const ReadOptions& options);
    [[nodiscard]] SmallOutcome write_small(Source& source, uint64_t offset, const iovec& from,
                                           const ReadOptions& options);

private:
    struct Slot;
    struct Operation;
    // A file system on which this executor has direct operations in flight.
    struct Lane {
        Costs* costs = nullptr;
        DirectTraffic::Reader reader;
        uint64_t cached_calls = 0;  // the executor's cached_calls_ at the last tell()
    };

    Executor(std::unique_ptr<storage::Queue> queue, std::unique_ptr<Staging> staging,
             const Limits& limits);

    void move_cached(const Source& source, const storage::Operation& operation,
                     const ReadOptions& options, SmallOutcome* outcome);
    storage::Completion read_direct(Source& source, storage::Operation operation);
    SmallOutcome look_at_small(Source& source, uint64_t offset, uint64_t size);
    SmallOutcome read_missing(Source& source, const storage::Operation& operation,
                              const ReadOptions& options, SmallOutcome outcome);
    SmallOutcome read_probing(Source& source, const storage::Operation& operation,
                              const ReadOptions& options);
    void plan(Slot& slot);
    Result<planner::Plan> make_plan(Slot& slot);
    void look_at_residency(Slot& slot, const planner::CostModel& model);
    [[nodiscard]] uint64_t missing_in(const extent::Extent& range) const;
    void cut(Slot& slot, std::span<const planner::Transfer> transfers);
    void plan_write(Slot& slot);
    static void stop_at(Slot& slot, uint64_t offset, int error, Route route);
    bool pump(bool copies);
    bool prepare(Slot& slot, bool direct);
    bool may_start(const Slot& slot, uint64_t size) const;
    Lane& lane_of(const Slot& slot);
    void tell_lanes();
    bool enlist(Slot& slot, size_t first, size_t count);
    bool place(Operation& operation);
    void put_into_batch(Operation& operation);
    void gather(Operation& operation);
    void fetch(Operation& operation);
    void end_fetch(Operation& operation);
    bool put_fetched_into_batch(bool copies);
    void give_up(Slot& slot);
    void count_direct(Slot& slot);
    void settle(const storage::Completion& completion);
    void go_again(Operation& operation);
    void read_behind_error(Operation& operation);
    void send(Operation& operation, size_t from);
    void arrive(Operation& operation);
    void end_operation(Operation& operation);
    void collect_copies(bool wait);
    void finish_if_done(Slot& slot);
    void observe_direct(const Slot& slot);
    void observe_cached(const Operation& operation, uint64_t bytes);

    const Limits limits_;
    const std::unique_ptr<storage::Queue> queue_;
    const std::unique_ptr<Staging> staging_;
    planner::Planner planner_;
    std::vector<Slot> slots_;
    std::vector<Slot*> free_slots_;
    std::vector<Slot*> unstarted_;  // in progress, with transfers not started; oldest first
    std::vector<Operation> operations_;
    std::vector<uint32_t> free_operations_;
    std::vector<storage::Operation> batch_;
    std::vector<storage::Completion> completions_;
    std::vector<extent::ResidencyRun> runs_;
    size_t run_count_ = 0;
    std::vector<int32_t> copied_;
    std::vector<Operation*> copying_;  // by slot of staging
    std::vector<Operation*> fetched_;  // writes from device memory that have arrived in staging
    std::vector<iovec> parts_;         // of one fetch
    std::vector<Lane> lanes_;          // at most one per file system
    size_t in_work_ = 0;
    uint64_t staged_size_ = 0;    // bytes in staging of calls for a device
    bool lacks_staging_ = false;  // something could not start for lack of staging
    // For the live model.
    uint64_t cached_calls_ = 0;
    uint64_t direct_end_ns_ = 0;    // end of the last request with direct transfers
    bool direct_end_seen_ = false;  // that end was noticed at once
    // All completions behind the last cached call have been seen. A completion that is seen now is
    // noticed when it happens.
    bool caught_up_ = true;
    uint64_t call_ns_ = 0;  // submission time, if the last batch was one timed cached call; else 0
    uint64_t call_index_ = 0;  // index of that call's operation
    base::BoundedQueue<Outcome> finished_;
};

}  // namespace penstock::transfer
