// Plans requests and executes the plans: residency, planner, storage, staging, completion.
//
// The one caller of Queue::submit. One thread at a time; every thread that transfers has its own.
// Memory is taken at construction, but for lists that grow to the longest request so far and for
// pinned memory, which the first request that needs it takes.
//
// A request is cut into transfers. Direct ones go to storage first and move by themselves; cached
// ones follow one at a time, each a copy on this thread. What storage cannot move between the file
// and its place passes through staging: behind storage when it is read, before when it is written.
// Cached ends of a write wait until its direct middle is over (planner.h says why).
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

// Below this a request is not planned: a probe costs from half a microsecond up, a read of so
// little a few tens. It goes through the page cache; of SmallReads::kSizeMin or more, where reads
// like it were slow lately or it is to leave nothing there, only after a look (executor_small.cc).
inline constexpr uint64_t kPlanSizeMin = 256 << 10;
// The most that one request may ask for; longer reads are cut into windows (job.h).
inline constexpr uint64_t kRequestSizeMax = 8 << 20;

// Whether reads are to bypass the page cache whatever that costs. Nothing here reads by kPeer yet:
// who asks for it without `strict` gets what `cache` says, and kNoPeer as its reason.
[[nodiscard]] inline bool asks_direct(const ReadOptions& options) {
    if (options.route == Route::kCached || options.route == Route::kDirect)
        return options.route == Route::kDirect;
    return options.cache == CachePolicy::kBypass;
}
// Why all of a read is to go through the page cache; none: nobody asked for that.
[[nodiscard]] inline std::optional<RouteReason> asks_cached(const ReadOptions& options) {
    if (options.route == Route::kCached) return RouteReason::kAsked;
    if (!asks_direct(options) && options.cache == CachePolicy::kKeep) return RouteReason::kKeep;
    return std::nullopt;
}
// The route that `strict` insists on; none: there is nothing to insist on.
[[nodiscard]] inline std::optional<Route> asked_route(const ReadOptions& options) {
    if (options.route.has_value() || options.cache != CachePolicy::kBypass) return options.route;
    return Route::kDirect;
}
// Whether nothing that was not in the page cache may stay there: it goes past it, or by calls that
// leave nothing, or is an error.
[[nodiscard]] inline bool insists_on_drop(const ReadOptions& options) {
    return options.strict && options.cache == CachePolicy::kDrop;
}
// Whether what goes through the page cache for `reason` was not seen there before, and is not to
// stay.
[[nodiscard]] inline bool drops(const ReadOptions& options, RouteReason reason) {
    return options.cache == CachePolicy::kDrop && reason != RouteReason::kResident &&
           reason != RouteReason::kDirty;
}
// Whether it stays all the same, as is known when it has gone there. What lives in memory was there
// before.
[[nodiscard]] inline bool stays(const Source& source, const ReadOptions& options,
                                RouteReason reason) {
    return drops(options, reason) && source.file->drop_refused() && !source.probe.in_memory();
}
// Whether a read of host memory is one for Executor::read_small.
[[nodiscard]] inline bool is_small(uint64_t size, const ReadOptions& options) {
    return size < kPlanSizeMin && !asks_direct(options) && options.route != Route::kPeer &&
           !insists_on_drop(options);
}

// Whether such reads go through the page cache whatever it holds, so that the kernel had better
// read ahead of them.
[[nodiscard]] inline bool is_never_direct(uint64_t size, const ReadOptions& options) {
    return asks_cached(options).has_value() ||
           (size < SmallReads::kSizeMin && is_small(size, options));
}

// Whether a small read of `source` is worth a plan if others go with it: it most likely misses, and
// by direct reads several are in flight.
[[nodiscard]] inline bool plans_small(Source& source, uint64_t size, const ReadOptions& options) {
    return size >= SmallReads::kSizeMin && source.small.doubtful() &&
           source.file->direct_alignment().offset != 0 && !asks_cached(options) &&
           !source.direct_refused.load(std::memory_order_relaxed) &&
           source.small.way() == Route::kDirect;
}

// Where what a request reads through the cache waits for others that go to the device with it.
struct Landing {
    std::byte* memory = nullptr;          // of the request's first byte
    uint64_t offset = 0;                  // the request's
    std::vector<extent::Extent> extents;  // that arrived there
    Report report;                        // of them alone
};

// Bytes [offset, offset + size) of a file, over `pieces` in order, to be read or written.
struct Request {
    Source* source = nullptr;
    uint64_t offset = 0;
    uint64_t size = 0;
    std::span<const iovec> pieces;  // as long as `size`; must stay until the outcome
    // In memory that the host cannot address; what is read, in one piece.
    bool device_memory = false;
    // Null, or of a request in device memory: cached reads end there, and are over when they do.
    Landing* landing = nullptr;
    // More will be asked for behind it: worth a plan even where it is small, as what goes through
    // the page cache unasked has the kernel read ahead too.
    bool looks = false;
    // The pieces are sources, which must not change before the outcome. What overlaps with other
    // requests under way is written in any order.
    bool write = false;
    ReadOptions options;
    Report* report = nullptr;  // null, or is added to; the executor's thread only
    uint64_t cookie = 0;
};

// `bytes` moved from the start without a gap. Fewer than asked: the end of a file that is read, or
// `error`, an errno, struck at `offset + bytes`; what lies behind may have moved all the same. Of a
// write nothing more is begun behind an error.
struct Outcome {
    uint64_t cookie = 0;
    uint64_t bytes = 0;
    int error = 0;
    uint32_t operations = 0;  // of storage
};

// How a small read went: all of it one way.
struct SmallOutcome {
    storage::Completion completion;
    Route route = Route::kCached;
    RouteReason reason = RouteReason::kSmall;
    Residency residency = Residency::kUnknown;
    uint64_t resident_size = 0;  // how much of it the OS page cache held, where that was looked at
};
void add_to(Report* report, uint64_t offset, const SmallOutcome& outcome);

class Executor {
public:
    struct Limits {
        uint32_t depth = 16;    // storage operations at a time
        uint32_t requests = 4;  // at a time
    };

    // `device`: of requests in device memory that the host cannot address; null: there are none.
    // Both must outlive it.
    static Result<std::unique_ptr<Executor>> create(storage::Storage& storage,
                                                    backend::Device* device, const Limits& limits);
    // Everything taken must have been reaped.
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    // Takes the pinned memory now, for who measures.
    Status prepare() { return staging_->prepare(); }

    // Takes a request, plans it, and starts what moves by itself. False: no room; reap first.
    [[nodiscard]] bool submit(const Request& request);
    // Works on, and stores at most out.size() outcomes; returns how many. With `wait` and
    // something outstanding it blocks until there is at least one.
    [[nodiscard]] size_t reap(std::span<Outcome> out, bool wait);
    [[nodiscard]] size_t outstanding() const { return in_work_ + finished_.size(); }
    [[nodiscard]] bool has_room() const { return outstanding() < limits_.requests; }
    // Part of what has been taken has not started: who shares work with others takes no more until
    // it has.
    [[nodiscard]] bool has_unstarted() const { return !unstarted_.empty(); }
    // Some of that are copies, which this thread has to make.
    [[nodiscard]] bool has_copies() const;

    // One read or write that is_small(), with nothing else outstanding, at the least cost.
    [[nodiscard]] SmallOutcome read_small(Source& source, uint64_t offset, const iovec& to,
                                          const ReadOptions& options);
    [[nodiscard]] SmallOutcome write_small(Source& source, uint64_t offset, const iovec& from,
                                           const ReadOptions& options);

private:
    struct Slot;
    struct Operation;
    // A device with direct operations of this executor.
    struct Lane {
        Costs* costs = nullptr;
        DirectTraffic::Reader reader;
        uint64_t cached_calls = 0;  // of the executor, when it was last told of what ended
    };

    Executor(std::unique_ptr<storage::Queue> queue, std::unique_ptr<Staging> staging,
             const Limits& limits);

    void move_cached(const Source& source, const storage::Operation& operation,
                     const ReadOptions& options, SmallOutcome* outcome);
    storage::Completion read_direct(Source& source, storage::Operation operation);
    SmallOutcome look_at_small(Source& source, uint64_t offset, uint64_t size);
    SmallOutcome read_missing(Source& source, const storage::Operation& operation,
                              const ReadOptions& options, SmallOutcome outcome);
    SmallOutcome read_doubtful(Source& source, const storage::Operation& operation,
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
    std::vector<Slot*> unstarted_;  // in work, with transfers that have not started; oldest first
    std::vector<Operation> operations_;
    std::vector<uint32_t> free_operations_;
    std::vector<storage::Operation> batch_;
    std::vector<storage::Completion> completions_;
    std::vector<extent::ResidencyRun> runs_;
    size_t run_count_ = 0;
    std::vector<int32_t> copied_;
    std::vector<Operation*> copying_;  // by slot of staging
    std::vector<Operation*> fetched_;  // what is written from a device, when it is in staging
    std::vector<iovec> parts_;         // of one that is fetched
    std::vector<Lane> lanes_;          // a device at most once
    size_t in_work_ = 0;
    uint64_t staged_size_ = 0;    // that calls for a device have in staging
    bool lacks_staging_ = false;  // something could not start for want of it
    // For the live model.
    uint64_t cached_calls_ = 0;
    uint64_t direct_end_ns_ = 0;    // when a request with direct transfers was done last, and
    bool direct_end_seen_ = false;  // whether that was seen at once
    // All that was over right behind the last cached call has been seen: what ends now was seen
    // when it did.
    bool caught_up_ = true;
    uint64_t call_ns_ = 0;     // what submitting the last batch took, if it was one cached call; 0:
    uint64_t call_index_ = 0;  // it was not, or was not timed
    base::BoundedQueue<Outcome> finished_;
};

}  // namespace penstock::transfer
