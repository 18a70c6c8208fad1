// Decides for every page of a request whether it is copied out of the OS page cache or comes by a
// direct transfer, which may swallow cached pages.
//
// A plan is made over cells: pages of max(page size, alignment of direct I/O), the head and the
// tail that no aligned transfer covers, and in long runs of one state several pages at once. Three
// algorithms: the exact one (linear time), the greedy rule of SPIN (USENIX ATC 2017, section
// 4.3.1), and the overlapped one, which takes copies and direct reads to run at the same time.
//
// Pure. One thread at a time; every thread that plans has its own Planner. Nothing is allocated for
// a request that is no longer than another before it, or than reserve() was told.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/units.h"
#include "extent/residency.h"
#include "penstock/status.h"
#include "planner/cost_model.h"
#include "planner/plan.h"

namespace penstock::planner {

// A longer read is planned piece by piece: its residency would be out of date by its end, and this
// bounds a Planner's memory (about 250 bytes a page of the longest request).
inline constexpr uint64_t kRequestSizeMax = kTransferSizeMax;

enum class Algorithm : uint8_t {
    kOverlapped,  // least time with copies and direct transfers at once; near the best, see
                  // bound_ns
    kExact,       // least sum of all times; the best there is
    kGreedy,      // SPIN's rule over whole runs, for comparison
};

struct Options {
    Algorithm algorithm = Algorithm::kOverlapped;
    // What kUnknown is taken for: kMissing or kCached.
    extent::Residency unknown_as = extent::Residency::kMissing;
    uint64_t page_size = 4096;  // of the OS page cache; a power of two
    // Cut long runs of one state into cells of several pages (at most an eighth of the cutoff).
    // Plans are then best among those that change route at cells' ends.
    bool coarse = true;
};

// How the storage reads past the OS page cache, if it does.
struct DirectOffer {
    Route route = Route::kDirect;  // or kPeer
    // Powers of two; 0: not offered, and what is no power of two counts as 0.
    uint32_t offset_alignment = 0;  // of offset and length
    uint32_t memory_alignment = 0;  // of the address
};

// Whether what is not in the OS page cache may be brought through it.
enum class Buffered : uint8_t {
    kCheaper,  // wherever a plan is cheaper for it
    // Only at kBufferedGainMin times the speed of direct transfers: it stays there, with what the
    // kernel reads ahead of it, and pushes out what others had.
    kGaining,
    kNever,  // but for what no direct transfer can bring
};
inline constexpr double kBufferedGainMin = 1.25;

struct Request {
    // What is wanted: at most kRequestSizeMax bytes, cut at the end of the file by the caller.
    extent::Extent range;
    // By offset. What no run covers is kUnknown; bytes outside `range` do not matter.
    std::span<const extent::ResidencyRun> residency;
    DirectOffer direct;
    // Address that range.offset goes to; only its remainder by memory_alignment counts. Where
    // direct transfers go to staging first, give range.offset itself.
    uint64_t memory = 0;
    // Bytes before and behind the destination that a direct transfer may overwrite: without them,
    // an unaligned head or tail is cached, also where the tail is the end of the file. Who carries
    // such ends through a buffer of its own may give any number.
    uint64_t room_before = 0;
    uint64_t room_behind = 0;
    // All of it through the page cache, for this reason: kSmall, kRefused, kAsked, kKeep ...
    std::optional<RouteReason> cached_because;
    // All of it direct, as far as it can be: somebody asked. Dirty pages stay cached.
    bool direct_asked = false;
    Buffered buffered = Buffered::kCheaper;
};

// Plans know bytes that are cached and bytes that are not: decides which of them each kMixed run is
// to be. Its missing bytes come through the cache by small reads, at least one for each `grain`
// bytes, which residency was asked by, or all of it comes by a direct transfer, whichever costs
// less.
void settle_mixed(std::span<extent::ResidencyRun> runs, uint64_t grain, const CostModel& model,
                  Buffered buffered);

// What is to be written. Nothing of it is looked up: copying into the OS page cache is cheaper than
// anything else, whatever that holds.
struct WriteRequest {
    extent::Extent range;
    DirectOffer direct;
    uint64_t page_size = 4096;  // of the OS page cache; a power of two
    bool direct_asked = false;  // all of it direct, as far as it can be
    // Why it goes through the page cache if nobody asks: kDeferred, kKeep, kRefused ...
    RouteReason cached_because = RouteReason::kDeferred;
};
// Through the cache, or a direct middle of whole pages between a head and a tail that are not: no
// page is written by two routes, since what the cache holds of one that is written past it would be
// stale, or be written back over it.
struct WritePlan {
    std::array<Transfer, 3> transfers;  // by offset
    size_t count = 0;
};
[[nodiscard]] WritePlan plan_write(const WriteRequest& request);

class Planner {
public:
    explicit Planner(const Options& options = {});
    ~Planner();
    Planner(Planner&&) noexcept;
    Planner& operator=(Planner&&) noexcept;

    // Takes the memory for requests of up to `size` bytes.
    void reserve(uint64_t size);

    // EINVAL: the range is longer than kRequestSizeMax or ends beyond 2^63 - 1. An empty request
    // has an empty plan. Some nanoseconds a cell and pass over them; the overlapped algorithm makes
    // as many passes as can gain more than they take.
    [[nodiscard]] Result<Plan> plan(const Request& request, const CostModel& model);

    [[nodiscard]] const Options& options() const { return options_; }

private:
    struct Scratch;
    Options options_;
    std::unique_ptr<Scratch> scratch_;
    uint64_t reserved_size_ = 0;
};

}  // namespace penstock::planner
