// Decides for each page of a request whether it is copied out of the OS page cache, or comes by a
// direct transfer, which may swallow cached pages.
//
// A plan is made over cells. A cell is a page of max(page size, alignment of direct I/O), or the
// head or tail that no aligned transfer covers. In long runs of one state a cell holds several
// pages. There are three algorithms: the exact one (linear time), the greedy rule of SPIN (USENIX
// ATC 2017, section 4.3.1), and the overlapped one, which assumes that copies and direct reads run
// at the same time.
//
// Pure. One thread at a time; each planning thread has its own Planner. A request allocates nothing
// unless it is longer than all earlier ones and than the size given to reserve().
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

// The caller plans a longer read piece by piece, because its residency would be out of date by its
// end. This also bounds a Planner's memory (about 250 bytes per page of the longest request).
inline constexpr uint64_t kRequestSizeMax = kTransferSizeMax;

enum class Algorithm : uint8_t {
    kOverlapped,  // least time with both at once; bound_ns: how near
    kExact,       // least sum of all times; the best there is
    kGreedy,      // SPIN's rule over whole runs, for comparison
};

struct Options {
    Algorithm algorithm = Algorithm::kOverlapped;
    // What kUnknown is treated as: kMissing or kCached.
    extent::Residency unknown_as = extent::Residency::kMissing;
    uint64_t page_size = 4096;  // of the OS page cache; a power of two
    // Cuts long runs of one state into cells of several pages (at most an eighth of the cutoff).
    // Plans are then best among those that change the route only where cells end.
    bool coarse = true;
};

// How the storage can read past the OS page cache, if it can.
struct DirectOffer {
    Route route = Route::kDirect;  // or kPeer
    // Powers of two. 0 means not offered; a number that is no power of two counts as 0.
    uint32_t offset_alignment = 0;  // of offset and length
    uint32_t memory_alignment = 0;  // of the address
};

// Whether bytes that are not in the OS page cache may be brought through it.
enum class Buffered : uint8_t {
    kCheaper,  // wherever that makes a plan cheaper
    // Only if that is kBufferedGainMin times as fast as direct transfers: the bytes, and what the
    // kernel reads ahead of them, stay in the cache and displace other programs' pages.
    kGaining,
    kNever,  // except for bytes that no direct transfer can bring
};
inline constexpr double kBufferedGainMin = 1.25;

struct Request {
    // The bytes to read: at most kRequestSizeMax. The caller cuts them at the end of the file.
    extent::Extent range;
    // Sorted by offset. Bytes that no run covers are kUnknown; bytes outside `range` are ignored.
    std::span<const extent::ResidencyRun> residency;
    DirectOffer direct;
    // The destination address of range.offset. Only its remainder by memory_alignment matters. If
    // direct transfers go to staging first, pass range.offset itself.
    uint64_t memory = 0;
    // Bytes before and behind the destination that a direct transfer may overwrite. Without them an
    // unaligned head or tail is cached, also if the tail is the end of the file. A caller that
    // moves such ends through its own buffer may pass any number.
    uint64_t room_before = 0;
    uint64_t room_behind = 0;
    // If set, all bytes go through the page cache, for this reason: kSmall, kRefused, kAsked,
    // kKeep ...
    std::optional<RouteReason> cached_because;
    // All bytes that can be direct are direct, because the caller asked for it. Dirty pages stay
    // cached.
    bool direct_asked = false;
    Buffered buffered = Buffered::kCheaper;
};

// Decides for each kMixed run whether it becomes kCached or kMissing, because plans know no other
// states. As kCached, its missing bytes come through the cache by small reads, at least one per
// `grain` bytes (the grain of the residency question). As kMissing, all of it comes by a direct
// transfer. The cheaper one is chosen.
void settle_mixed(std::span<extent::ResidencyRun> runs, uint64_t grain, const CostModel& model,
                  Buffered buffered);

// A request to write. Residency does not matter, because copying into the OS page cache is the
// cheapest route in any state.
struct WriteRequest {
    extent::Extent range;
    DirectOffer direct;
    uint64_t page_size = 4096;  // of the OS page cache; a power of two
    bool direct_asked = false;  // make direct all that can be
    // Why bytes go through the page cache unless the caller asks for direct: kDeferred, kKeep,
    // kRefused ...
    RouteReason cached_because = RouteReason::kDeferred;
};
// Everything goes through the cache, or a direct middle of whole pages lies between a cached head
// and tail. No page is written by two routes: what the cache holds of a page that is written past
// it would be stale, or would be written back over it.
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

    // Makes a plan. EINVAL: the range is longer than kRequestSizeMax or ends beyond 2^63 - 1. An
    // empty request has an empty plan. A pass over the cells takes some nanoseconds per cell. The
    // overlapped algorithm makes as many passes as can gain more than they take.
    [[nodiscard]] Result<Plan> plan(const Request& request, const CostModel& model);

    [[nodiscard]] const Options& options() const { return options_; }

private:
    struct Scratch;
    Options options_;
    std::unique_ptr<Scratch> scratch_;
    uint64_t reserved_size_ = 0;
};

}  // namespace penstock::planner
