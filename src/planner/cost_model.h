// Describes what it costs to move bytes by each route, in a few numbers. Plans are made from them.
// They are fitted to measured times, and follow a machine that changes.
//
// A model holds for one device memory and one file system, at the queue depth in use and with the
// number of threads that copy. A direct transfer costs a constant up to a cutoff, and grows with
// the bandwidth beyond (Bergman et al., SPIN, USENIX ATC 2017, equation 1).
//
// Pure: times are arguments. Any thread may use values; one thread at a time may use a LiveModel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace penstock::planner {

// The largest size of one transfer, in bytes.
inline constexpr uint64_t kTransferSizeMax = 256 * base::kMiB;

// The largest relative error that a model may have, and the one that it counts as having where it
// is not known.
inline constexpr double kModelErrorMax = 0.9, kModelErrorUnknown = 0.25;

// Times are in nanoseconds. Two resources work at the same time. One is the thread that copies out
// of the OS page cache and submits. The other is the storage that serves direct transfers.
//
// The defaults were measured on a virtual NVMe disk under ext4, with one thread at depth 32, in
// November 2026 (bench plan). LiveModel adapts them.
struct CostModel {
    // Storage: the time that one direct transfer adds to a full queue of such transfers.
    double direct_ns = 6e3;           // C: up to cutoff_size
    double direct_ns_per_byte = 0.3;  // 1/BW: for each byte beyond cutoff_size
    uint64_t cutoff_size = 4096;      // S_cutoff
    double direct_start_ns = 55e3;    // once per plan: latency that no queue depth hides
    // The copying thread.
    double direct_submit_ns = 2.4e3;   // to submit and reap one direct transfer
    double cached_ns = 500;            // one run of bytes through the page cache
    double cached_ns_per_byte = 0.15;  // for pages that are in the page cache
    // Pages that are not in the page cache but go through it: the thread waits for them.
    double buffered_ns = 60e3;  // one run of them, in addition to cached_ns
    double buffered_ns_per_byte = 1.2;
    // Factor by which direct transfers take longer while the thread copies than while it waits.
    // Copies and transfers move bytes through the same memory, and a waiting processor must be
    // woken. It serves to predict the time of plans, not to choose them.
    double direct_beside_copies = 1;

    // Relative error of these times, as the calibration found it; 0 for the defaults, which follow
    // the machine. Bytes that are in the page cache are read past it only if that gains more
    // (searched_model).
    double error = 0;

    uint64_t transfer_size_max = base::kMiB;  // of a direct transfer, in bytes

    // Returns the storage's time for one direct transfer of `size` bytes.
    [[nodiscard]] double direct_time(uint64_t size) const {
        const double beyond = size > cutoff_size ? static_cast<double>(size - cutoff_size) : 0;
        return direct_ns + beyond * direct_ns_per_byte;
    }

    friend bool operator==(const CostModel&, const CostModel&) = default;
};

// Returns the model with every number finite and in range. direct_ns becomes at least cutoff_size *
// direct_ns_per_byte. Below that, two transfers would be cheaper than the one that they add up to,
// and plans would split into tiny transfers. NaN becomes the default.
[[nodiscard]] CostModel sane(const CostModel& model);

// One measured time.
struct Sample {
    enum class Kind : uint8_t {
        kDirect,    // added time in a full queue: time of many / their number
        kCached,    // one call for bytes that are in the page cache
        kBuffered,  // one call for bytes that are not in it
    };
    Kind kind = Kind::kDirect;
    uint64_t size = 0;  // bytes of one transfer or call
    double ns = 0;
};

// A model and how well it agrees with its samples. R² is the share of the variance of times that
// the model explains; error_mean is the mean relative error. Several samples of one kind and size
// count as their median.
struct Fit {
    // What a fit must reach to be used.
    static constexpr double kRSquaredMin = 0.8, kErrorMax = 0.25, kSpreadMax = 0.25;
    static constexpr size_t kSizesMin = 4, kRepeatsMin = 3;

    struct Quality {
        double r_squared = 0;
        double error_mean = 0;
        double spread = 0;  // relative distance from the median of their size that three quarters
                            // of the samples keep, for half of the sizes
        size_t sizes = 0;   // distinct sizes; with fewer than two, `start`'s numbers stay

        size_t repeats = 0;  // samples of the size that has the fewest

        // Returns how far one measured time is from the model, relative: CostModel::error.
        [[nodiscard]] double error() const { return error_mean + spread; }
    };
    CostModel model;
    Quality direct, cached, buffered;
};

// Returns why a fit of this quality is not to be used, or null.
[[nodiscard]] const char* refusal_of(const Fit::Quality& quality);

// Fits a model by least squares of relative errors, so that short transfers count as much as long
// ones. Numbers that the samples do not determine come from `start`. Samples of size 0, or with a
// time that is not positive and finite, are ignored.
[[nodiscard]] Fit fit(std::span<const Sample> samples, const CostModel& start = {});

// Measurements of one kind in one execution: `count` transfers or runs of `size` bytes took `ns`
// together. For direct transfers that is from the first submission to the last completion.
struct Observation {
    Sample::Kind kind = Sample::Kind::kDirect;
    uint32_t count = 1;
    uint64_t size = 0;
    double ns = 0;
    double beside_copies = 0;  // direct: the plan's beside_copies
};

// A model that follows what executions measure. It moves exponentially, by at most a few per cent
// per observation, however large the error is. It never moves further than a factor of kDriftMax
// from the calibrated numbers.
//
// Missing pages come from the same storage by either route. So the speed that direct transfers show
// also changes the cost of missing pages through the page cache. If direct transfers prove to be no
// faster than that, they wait as long.
class LiveModel {
public:
    static constexpr double kDriftMax = 8;
    // For unmeasured storage: the factor between a network disk and the NVMe disk of the defaults.
    static constexpr double kUnmeasuredDriftMax = 64;

    explicit LiveModel(const CostModel& calibrated)
        : calibrated_(sane(calibrated)), learned_(calibrated_), model_(calibrated_) {}

    // Returns a model that starts from the defaults and learns one thing from direct transfers: how
    // much slower the storage is than the defaults say, over the last tenths of a second. It learns
    // no more, because what it sees of one kind would set that apart from the others, which are not
    // measured.
    [[nodiscard]] static LiveModel unmeasured();

    [[nodiscard]] const CostModel& model() const { return model_; }
    void refine(const Observation& observation);

private:
    void refine_kind(const Observation& observation);
    void refine_slowness(const Observation& observation);

    CostModel calibrated_;
    CostModel learned_;
    CostModel model_;  // learned_, with what one kind says of another
    // For unmeasured storage: the time that direct transfers took and should have taken. It decays
    // slowly.
    double seen_ns_ = 0, expected_ns_ = 0;  // 0: the storage is measured
};

}  // namespace penstock::planner
