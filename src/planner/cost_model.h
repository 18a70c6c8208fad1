// What moving bytes costs by each route: the few numbers that plans are made from, how they are
// fitted to measured times, and how they follow a machine that changes.
//
// One model holds for one device memory and one file system, at the depth of queue that is in use
// and the number of threads that copy. A direct transfer costs a constant up to a cutoff and grows
// by the bandwidth beyond (Bergman et al., SPIN, USENIX ATC 2017, equation 1).
//
// Pure: times are arguments. Values may be used by any thread; a LiveModel by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace penstock::planner {

// Nothing longer is moved by one transfer.
inline constexpr uint64_t kTransferSizeMax = 256 * base::kMiB;

// Times in nanoseconds. Two resources work at the same time: the thread that copies out of the OS
// page cache and submits, and the storage that direct transfers come from.
//
// The defaults are what a virtual NVMe disk under ext4 and one thread showed at depth 32 in
// November 2026 (bench plan); LiveModel goes on from there.
struct CostModel {
    // Storage, one direct transfer: what it adds to the end of a full queue of such transfers.
    double direct_ns = 6e3;           // C: up to cutoff_size
    double direct_ns_per_byte = 0.3;  // 1/BW: for each byte beyond cutoff_size
    uint64_t cutoff_size = 4096;      // S_cutoff
    double direct_start_ns = 55e3;    // once a plan: what no depth of queue hides
    // The copying thread.
    double direct_submit_ns = 2.4e3;   // one direct transfer: to submit and to reap it
    double cached_ns = 500;            // one run of bytes that goes through the page cache
    double cached_ns_per_byte = 0.15;  // pages that are there
    // Pages that are not there but go through the page cache all the same: the thread waits.
    double buffered_ns = 60e3;  // one run of them, on top of cached_ns
    double buffered_ns_per_byte = 1.2;
    // Direct transfers take so many times as long while that thread copies as while it waits: both
    // move bytes through the same memory, and a processor that waits has to be woken. By it plans
    // are predicted, not made.
    double direct_beside_copies = 1;

    uint64_t transfer_size_max = base::kMiB;  // of a direct transfer, in bytes

    // Time of one direct transfer on the storage; `size` in bytes.
    [[nodiscard]] double direct_time(uint64_t size) const {
        const double beyond = size > cutoff_size ? static_cast<double>(size - cutoff_size) : 0;
        return direct_ns + beyond * direct_ns_per_byte;
    }

    friend bool operator==(const CostModel&, const CostModel&) = default;
};

// The model with every number finite and in reach, and direct_ns at least
// cutoff_size * direct_ns_per_byte: below that, two transfers would be cheaper than the one that
// they make up, and plans would fall to pieces. What is no number becomes the default.
[[nodiscard]] CostModel sane(const CostModel& model);

// One measured time.
struct Sample {
    enum class Kind : uint8_t {
        kDirect,    // what a direct transfer adds to a full queue: time of many / their number
        kCached,    // one call for bytes that are in the page cache
        kBuffered,  // one call for bytes that are not
    };
    Kind kind = Kind::kDirect;
    uint64_t size = 0;  // bytes of one transfer or call
    double ns = 0;
};

// A model and how well it agrees with its samples. R² is the share of the variance of times that
// the model explains; error_mean the mean relative error. Of several samples of one kind and size
// the median counts.
struct Fit {
    struct Quality {
        double r_squared = 0;
        double error_mean = 0;
        size_t sizes = 0;  // distinct; a kind with fewer than two keeps `start`'s numbers
    };
    CostModel model;
    Quality direct, cached, buffered;
};

// Least squares of relative errors, so that short transfers count as much as long ones. What the
// samples say nothing about comes from `start`. Samples with size 0 or a time that is not positive
// and finite are passed over.
[[nodiscard]] Fit fit(std::span<const Sample> samples, const CostModel& start = {});

// What one execution saw of one kind: `count` transfers or runs of `size` bytes together took `ns`
// (direct: from the first submission to the last completion).
struct Observation {
    Sample::Kind kind = Sample::Kind::kDirect;
    uint32_t count = 1;
    uint64_t size = 0;
    double ns = 0;
    double beside_copies = 0;  // direct: as their plan says
};

// A model that follows what executions see: exponentially, at most a few per cent an observation
// however far off it is, and never further than a factor of kDriftMax from what was calibrated.
//
// Missing pages come from the same storage by either route: what direct transfers show of its speed
// holds for those that come through the page cache too. Where it gives bytes to direct transfers no
// faster than that, those wait as long.
class LiveModel {
public:
    static constexpr double kDriftMax = 8;
    // Of storage that nobody has measured: a network disk against the NVMe disk of the defaults.
    static constexpr double kUnmeasuredDriftMax = 64;

    explicit LiveModel(const CostModel& calibrated)
        : calibrated_(sane(calibrated)), learned_(calibrated_), model_(calibrated_) {}

    // Starts from the defaults, and learns one thing from direct transfers: how much slower than
    // they say storage is, by all of the last tenths of a second. No more: what is seen of one kind
    // would set it apart from the others, which nobody has measured.
    [[nodiscard]] static LiveModel unmeasured();

    [[nodiscard]] const CostModel& model() const { return model_; }
    void refine(const Observation& observation);

private:
    void refine_kind(const Observation& observation);
    void refine_slowness(const Observation& observation);

    CostModel calibrated_;
    CostModel learned_;
    CostModel model_;  // that, with what one kind says of another
    // Of unmeasured storage: what direct transfers took and should have, forgotten slowly.
    double seen_ns_ = 0, expected_ns_ = 0;  // 0: it is measured
};

}  // namespace penstock::planner
