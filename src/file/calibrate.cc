// The public calibration: fills a scratch file, times three kinds of reads over all sizes in
// rounds, fits the costs, and stores them as an entry.
#include "penstock/calibrate.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/prng.h"
#include "base/units.h"
#include "file/calibration.h"
#include "file/file_service.h"
#include "file/route_timing.h"
#include "file/scratch_file.h"
#include "file/system.h"

namespace penstock {
namespace {

using base::kKiB;
using base::kMiB;
using file::RouteTiming;
using file::ScratchFile;
using file::ScratchState;
using planner::Sample;

constexpr int kWarmingsMax = 3;
constexpr char kNotKept[] = "the OS page cache does not keep the scratch file";
constexpr const char* kOrigin = "calibrate";
constexpr uint64_t kSizes[] = {4 * kKiB,   8 * kKiB,   16 * kKiB,  32 * kKiB, 64 * kKiB,
                               128 * kKiB, 256 * kKiB, 512 * kKiB, kMiB};
static_assert(kSizes[std::size(kSizes) - 1] == RouteTiming::kSizeMax);
constexpr int kRounds = 8;  // the first round is dropped
// A sample takes about this long if the storage allows. It takes less if the time limit is below
// ten seconds.
constexpr double kSampleNsMin = 1e6, kSampleNsMax = 25e6;
constexpr uint64_t kScratchMin = 16 * kMiB, kScratch = 128 * kMiB, kScratchMax = 512 * kMiB;
constexpr uint64_t kScratchOfThread = 8 * kMiB;
constexpr uint64_t kShareOfFree = 8;
// Bytes between cold reads. It exceeds what the kernel reads ahead.
constexpr uint64_t kColdGap = 512 * kKiB;
// Threads that read may wait for a CPU for this share of their time, as they do on a machine that
// nothing else uses.
constexpr double kWaitedShareMax = 0.1;

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// Returns, in random order, the multiples of `stride` that leave room for `size` bytes.
std::vector<uint64_t> shuffled(uint64_t file_size, uint64_t size, uint64_t stride,
                               base::Prng* prng) {
    std::vector<uint64_t> offsets;
    for (uint64_t at = 0; at + size <= file_size; at += stride) offsets.push_back(at);
    for (size_t i = offsets.size(); i > 1; --i) std::swap(offsets[i - 1], offsets[prng->below(i)]);
    return offsets;
}

// The state of one call of calibrate().
class Calibrating {
public:
    Calibrating(ScratchFile* scratch, RouteTiming* timing, const CalibrateOptions& options)
        : scratch_(*scratch),
          timing_(*timing),
          options_(options),
          begin_ns_(base::monotonic_ns()) {}

    Status fill();
    Status measure_direct();
    Status measure_buffered();
    Status measure_cached();
    void fit(Calibration* result, file::CalibrationEntry* entry) const;

private:
    struct Kind {
        Sample::Kind kind;
        const char* name;
        Route route;
        uint32_t in_flight;
        double until;  // share of the time limit after which no round begins
        uint64_t least_count;
        bool cold;  // the file is dropped from the OS page cache before each sample
    };

    Status measure(const Kind& kind);
    Status measure_round(const Kind& kind, int round, std::vector<double>* guesses);
    Status sample(const Kind& kind, uint64_t size, uint64_t count, RouteTiming::Timing* timing);
    Status measure_latency(const Kind& kind);
    bool go_on(const char* name);
    std::string& reason(Sample::Kind kind) { return reasons_[static_cast<size_t>(kind)]; }
    [[nodiscard]] uint64_t count_of(double guess_ns) const {
        const double ns = std::clamp(options_.seconds_max * 2.5e6, kSampleNsMin, kSampleNsMax);
        return guess_ns > 0 ? static_cast<uint64_t>(ns / guess_ns) : 0;
    }
    [[nodiscard]] double elapsed() const {
        return static_cast<double>(base::monotonic_ns() - begin_ns_) * 1e-9;
    }
    static std::string refusal_of(const planner::Fit& fitted, const Calibration& result);
    void describe(Sample::Kind kind, const planner::Fit::Quality& quality,
                  CalibratedRoute* out) const;

    ScratchFile& scratch_;
    RouteTiming& timing_;
    const CalibrateOptions& options_;
    const uint64_t begin_ns_;
    base::Prng prng_{1};
    std::vector<Sample> samples_;
    std::vector<double> waited_shares_;              // of cached reads
    std::vector<double> latencies_ns_, submits_ns_;  // of the smallest direct transfers
    std::string reasons_[3];                         // why a kind was not measured, by Sample::Kind
    double done_ = 0;                                // steps done, of kStepsMax
    static constexpr double kStepsMax = 3.0 * kRounds * std::size(kSizes);
};

bool Calibrating::go_on(const char* name) {
    return !options_.on_progress || options_.on_progress(name, std::min(done_ / kStepsMax, 1.0));
}

constexpr Status kCancelled{ECANCELED, kOrigin, "the caller did not want to go on"};
// Marks a kind that is skipped. It is not an error: the reason is stored, and the calibration goes
// on.
constexpr Status kSkip{ENODATA, kOrigin, ""};

bool is_skip(const Status& status) {
    return status.error_number() == ENODATA && *status.text() == '\0';
}

Status Calibrating::fill() {
    for (uint64_t at = 0; at < scratch_.size(); at += 8 * kMiB) {
        if (!go_on("writing the scratch file")) return kCancelled;
        const uint64_t size = std::min(8 * kMiB, scratch_.size() - at);
        if (Status status = scratch_.fill(at, size); !status.ok()) return status;
    }
    return scratch_.sync();
}

Status Calibrating::sample(const Kind& kind, uint64_t size, uint64_t count,
                           RouteTiming::Timing* timing) {
    if (!go_on(kind.name)) return kCancelled;
    const std::vector<uint64_t> offsets = shuffled(scratch_.size(), size,
                                                   kind.cold ? size + kColdGap : size, &prng_);
    // A byte is cold for one read only, so a sample reads no offset twice.
    if (kind.cold) count = std::min<uint64_t>(count, offsets.size() / timing_.threads());
    if (kind.cold && scratch_.make_cold() != ScratchState::kCold) {
        reason(kind.kind) = "the OS page cache does not let go of the scratch file";
        return kSkip;
    }
    auto told = timing_.run(scratch_.source(), {kind.route, size, kind.in_flight,
                                                std::max<uint64_t>(count, 1), offsets});
    if (told.ok()) {
        *timing = told.value();
        return {};
    }
    if (kind.route == Route::kCached || told.status().error_number() != EOPNOTSUPP)
        return told.status();
    reason(kind.kind) = "direct I/O was refused";
    return kSkip;
}

Status Calibrating::measure_round(const Kind& kind, int round, std::vector<double>* guesses) {
    for (size_t i = 0; i < std::size(kSizes); ++i) {
        const uint64_t size = kSizes[i];
        if (kind.route == Route::kDirect && size % scratch_.file().direct_alignment().offset != 0)
            continue;
        double& guess = (*guesses)[i];
        RouteTiming::Timing timing;
        Status status = sample(
            kind, size, std::clamp<uint64_t>(count_of(guess), kind.least_count, 1 << 18), &timing);
        if (!status.ok()) return status;
        guess = timing.ns;
        done_ += 1;
        if (round == 0) continue;
        samples_.push_back({kind.kind, size, timing.ns});
        if (kind.kind == Sample::Kind::kDirect && i == 0) submits_ns_.push_back(timing.cpu_ns);
        if (kind.kind == Sample::Kind::kCached) waited_shares_.push_back(timing.waited_share);
    }
    return {};
}

Status Calibrating::measure(const Kind& kind) {
    const double done = done_;
    std::vector<double> guesses(std::size(kSizes), 0);
    for (int round = 0; round < kRounds; ++round) {
        if (round > 1 && elapsed() > kind.until * options_.seconds_max) break;
        if (Status status = measure_round(kind, round, &guesses); !status.ok()) return status;
    }
    done_ = done + kStepsMax / 3;
    return {};
}

// Measures the time of a transfer that is alone in the queue.
Status Calibrating::measure_latency(const Kind& kind) {
    Kind alone = kind;
    alone.in_flight = 1;
    RouteTiming::Timing timing;
    for (int i = 0; i < 4; ++i) {
        const uint64_t size = std::max<uint64_t>(kSizes[0],
                                                 scratch_.file().direct_alignment().offset);
        Status status = sample(alone, size, std::clamp<uint64_t>(count_of(timing.ns), 4, 1 << 16),
                               &timing);
        if (!status.ok()) return status;
        if (i > 0) latencies_ns_.push_back(timing.ns);
    }
    return {};
}

Status Calibrating::measure_direct() {
    const Kind kind{
        Sample::Kind::kDirect,         "direct reads", Route::kDirect, timing_.depth(), 0.4,
        uint64_t{2} * timing_.depth(), false};
    std::string& why = reason(kind.kind);
    if (scratch_.source().probe.in_memory()) {
        why = "the file system keeps its bytes in memory: there is nothing to bypass";
        return {};
    }
    if (scratch_.file().direct_alignment().offset == 0) {
        why = "the file system offers no direct I/O";
        return {};
    }
    if (scratch_.make_cold() != ScratchState::kCold) {
        why = "the OS page cache does not let go of the scratch file";
        return {};
    }
    Status status = measure(kind);
    if (status.ok()) status = measure_latency(kind);
    if (status.ok() && scratch_.state() != ScratchState::kCold)
        why = "direct reads filled the OS page cache";
    return is_skip(status) ? Status() : status;
}

Status Calibrating::measure_buffered() {
    const Kind kind{
        Sample::Kind::kBuffered, "cold reads through the cache", Route::kCached, 1, 0.8, 4, true};
    if (scratch_.source().probe.in_memory()) {
        reason(kind.kind) = "the file system keeps its bytes in memory: they are never missing";
        return {};
    }
    const Status status = measure(kind);
    return is_skip(status) ? Status() : status;
}

Status Calibrating::measure_cached() {
    // Several transfers are in flight, because copies to a device overlap with reads in normal use
    // too.
    const Kind kind{Sample::Kind::kCached,
                    "cached reads",
                    Route::kCached,
                    timing_.device_memory() ? transfer::Executor::Limits{}.requests : 1,
                    1.0,
                    8,
                    false};
    std::vector<uint64_t> offsets;
    for (uint64_t at = 0; at < scratch_.size(); at += kMiB) offsets.push_back(at);
    const uint64_t count = (offsets.size() + timing_.threads() - 1) / timing_.threads();
    // Another program may drop the whole machine's page cache meanwhile, or memory may be short. So
    // the measurement is repeated, a limited number of times.
    std::string& why = reason(kind.kind);
    why = kNotKept;
    Status status;
    for (int attempt = 0; attempt < kWarmingsMax && status.ok() && !why.empty(); ++attempt) {
        if (scratch_.state() != ScratchState::kHot) {
            auto warmed = timing_.run(scratch_.source(), {kind.route, kMiB, 1, count, offsets});
            if (!warmed.ok()) return warmed.status();
        }
        if (scratch_.state() != ScratchState::kHot) continue;
        std::erase_if(samples_, [&kind](const Sample& one) { return one.kind == kind.kind; });
        waited_shares_.clear();
        status = measure(kind);
        if (scratch_.state() == ScratchState::kHot) why.clear();
    }
    return is_skip(status) ? Status() : status;
}

void Calibrating::describe(Sample::Kind kind, const planner::Fit::Quality& quality,
                           CalibratedRoute* out) const {
    out->reason = reasons_[static_cast<size_t>(kind)];
    out->measured = out->reason.empty() && quality.sizes >= 2;
    if (!out->measured) return;
    out->r_squared = quality.r_squared;
    out->error_mean = quality.error_mean;
    out->spread = quality.spread;
    for (const uint64_t size : kSizes) {
        std::vector<double> times;
        for (const Sample& one : samples_) {
            if (one.kind == kind && one.size == size) times.push_back(one.ns);
        }
        if (!times.empty()) out->points.push_back({size, median(std::move(times))});
    }
}

void Calibrating::fit(Calibration* result, file::CalibrationEntry* entry) const {
    std::vector<Sample> good = samples_;
    std::erase_if(good, [this](const Sample& one) {
        return !reasons_[static_cast<size_t>(one.kind)].empty();
    });
    const planner::Fit fitted = planner::fit(good);
    planner::CostModel model = fitted.model;
    describe(Sample::Kind::kDirect, fitted.direct, &result->direct);
    describe(Sample::Kind::kCached, fitted.cached, &result->cached);
    describe(Sample::Kind::kBuffered, fitted.buffered, &result->buffered);
    if (result->direct.measured) {
        model.direct_submit_ns = median(submits_ns_);
        model.direct_start_ns = std::max(
            0.0, median(latencies_ns_) - model.direct_time(result->direct.points.front().size));
        model = sane(model);
        result->direct.ns_once = model.direct_ns;
        result->direct.ns_per_byte = model.direct_ns_per_byte;
        result->direct_cutoff = model.cutoff_size;
        result->direct_start_ns = model.direct_start_ns;
        result->direct_submit_ns = model.direct_submit_ns;
    }
    if (result->cached.measured) {
        result->cached.ns_once = model.cached_ns;
        result->cached.ns_per_byte = model.cached_ns_per_byte;
    }
    if (result->buffered.measured) {
        result->buffered.ns_once = model.buffered_ns;
        result->buffered.ns_per_byte = model.buffered_ns_per_byte;
    }
    entry->direct = result->direct.measured;
    entry->cached = result->cached.measured;
    entry->buffered = result->buffered.measured;
    entry->direct_error = fitted.direct.error();
    entry->cached_error = fitted.cached.error();
    entry->buffered_error = fitted.buffered.error();
    entry->model = model;
    for (const double share : waited_shares_)
        result->waited_share += share / static_cast<double>(waited_shares_.size());
    result->refusal = refusal_of(fitted, *result);
}

// Copies out of the cache need nothing but a CPU, so they show best whether others use it.
std::string Calibrating::refusal_of(const planner::Fit& fitted, const Calibration& result) {
    const std::tuple<const char*, const planner::Fit::Quality&, bool> routes[] = {
        {"direct", fitted.direct, result.direct.measured},
        {"cached", fitted.cached, result.cached.measured},
        {"buffered", fitted.buffered, result.buffered.measured}};
    std::array<char, 200> line;
    for (const auto& [name, quality, measured] : routes) {
        const char* const why = measured ? planner::refusal_of(quality) : nullptr;
        if (why == nullptr) continue;
        std::snprintf(line.data(), line.size(),
                      "%s reads: %s (R2 %.2f, mean error %.0f %%, spread %.0f %%)", name, why,
                      quality.r_squared, 100 * quality.error_mean, 100 * quality.spread);
        return line.data();
    }
    if (!result.cached.measured || result.waited_share <= kWaitedShareMax) return "";
    std::snprintf(line.data(), line.size(), "other programs used the CPUs for %.0f %% of the time",
                  100 * result.waited_share);
    return line.data();
}

Status check(const CalibrateOptions& options) {
    if (!(options.seconds_max >= 0)) return {EINVAL, kOrigin, "a time below 0"};
    return {};
}

void store(const file::CalibrationEntry& entry, Calibration* result) {
    const std::string path = file::calibration_path();
    result->complaint = file::load_calibrations(path).complaint;
    if (Status status = file::store_calibration(path, entry); !status.ok()) {
        result->complaint = (path.empty() ? "" : path + ": ") + status.message();
    } else {
        result->stored_in = path;
    }
}

}  // namespace

Result<Calibration> calibrate(const std::string& path, const Device& device,
                              const CalibrateOptions& options) {
    const uint64_t begin_ns = base::monotonic_ns();
    if (Status status = check(options); !status.ok()) return status;
    auto storage = file::open_storage(options.storage, options.study);
    if (!storage.ok()) return storage.status();

    FileOptions reading;
    reading.threads = options.threads;
    const auto wanted_threads = file::thread_count(reading, device);
    if (!wanted_threads.ok()) return wanted_threads.status();
    const auto room = ScratchFile::room(path);
    if (!room.ok()) return room.status();
    const uint64_t wanted = std::min(kScratchMax,
                                     std::max(kScratch, wanted_threads.value() * kScratchOfThread));
    const uint64_t size = std::min(wanted, base::align_down(room.value() / kShareOfFree, kMiB));
    if (size < kScratchMin)
        return Status{ENOSPC, kOrigin, "less than 128 MiB are free, of which it takes an eighth"};
    const unsigned threads = std::min(wanted_threads.value(),
                                      static_cast<unsigned>(size / kScratchOfThread));

    auto scratch = ScratchFile::create(path, size, *storage.value());
    if (!scratch.ok()) return scratch.status();
    auto timing = RouteTiming::create(*storage.value(), device, threads);
    if (!timing.ok()) return timing.status();
    Calibrating calibrating(scratch.value().get(), timing.value().get(), options);
    if (Status status = calibrating.fill(); !status.ok()) return status;
    if (Status status = calibrating.measure_direct(); !status.ok()) return status;
    if (Status status = calibrating.measure_buffered(); !status.ok()) return status;
    if (Status status = calibrating.measure_cached(); !status.ok()) return status;

    Calibration result;
    file::CalibrationEntry entry;
    calibrating.fit(&result, &entry);
    entry.key = file::calibration_key(device.port().get(), *storage.value(),
                                      scratch.value()->file());
    entry.measured_at = static_cast<uint64_t>(
        std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count()));
    entry.threads = threads;
    entry.depth = RouteTiming::depth();
    result.memory = entry.key.memory;
    result.file_system = entry.key.file_system;
    result.storage = entry.key.storage;
    result.threads = threads;
    result.depth = RouteTiming::depth();
    result.scratch_size = size;
    const bool measured = entry.direct || entry.cached || entry.buffered;
    if (options.store && measured && (options.force || result.refusal.empty()))
        store(entry, &result);
    result.seconds = static_cast<double>(base::monotonic_ns() - begin_ns) * 1e-9;
    return result;
}

}  // namespace penstock
