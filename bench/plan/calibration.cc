#include "bench/plan/calibration.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "bench/harness/report.h"
#include "bench/plan/vectors.h"

namespace penstock::bench {
namespace {

using planner::Sample;

constexpr uint64_t kSizeMin = kPageSize;
constexpr uint64_t kSizeMax = base::kMiB;

double time_of(const std::function<void()>& work) { return timed(work) * 1e9; }

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

class Calibration {
public:
    Calibration(const TestFile& file, CacheState& cache, MixedReads& reads, HugeBuffer& buffer)
        : file_(file), cache_(cache), reads_(reads), buffer_(buffer) {}

    planner::Fit run(unsigned rounds) {
        const PageMap none(cache_.pages(), 0);
        for (unsigned round = 0; round <= rounds; ++round) {
            // The first is thrown away.
            if (round == 1) samples_.clear(), alone_ns_.clear(), submits_ns_.clear();
            cache_.set(none);
            for (uint64_t size = kSizeMin; size <= kSizeMax; size *= 2) direct(size);
            submit_ns_ = median(submits_ns_);
            for (uint64_t size = kSizeMin; size <= kSizeMax; size *= 2) buffered(size, none);
            for (uint64_t size = kSizeMin; size <= kSizeMax; size *= 2) cached(size);
        }
        planner::CostModel start;
        start.transfer_size_max = kSizeMax;
        planner::Fit fit = planner::fit(samples_, start);
        std::vector<double> starts;
        for (const auto& [size, ns] : alone_ns_) starts.push_back(ns - fit.model.direct_time(size));
        fit.model.direct_start_ns = std::max(0.0, median(starts));
        fit.model.direct_submit_ns = submit_ns_;
        fit.model = planner::sane(fit.model);
        return fit;
    }

private:
    void add(const extent::Extent& range, Route route) {
        const auto reason = route == Route::kDirect ? RouteReason::kMissing
                                                    : RouteReason::kResident;
        transfers_.push_back({range, range, route, reason, 0});
    }
    MixedReads::Times read(uint64_t offset) {
        planner::Plan plan;
        plan.transfers = transfers_;
        return reads_.execute(plan, buffer_.data(), offset);
    }
    // `count` direct transfers next to each other.
    MixedReads::Times read_direct(uint64_t size, unsigned count) {
        const uint64_t at = prng_.below(file_.size() / kVectorSize) * kVectorSize;
        transfers_.clear();
        for (unsigned i = 0; i < count; ++i) add({at + i * size, size}, Route::kDirect);
        return read(at);
    }

    // Many of one size, for what each adds, and one alone, for what a plan waits besides.
    void direct(uint64_t size) {
        const auto count = static_cast<unsigned>(std::min<uint64_t>(kVectorSize / size, 256));
        const double alone = read_direct(size, 1).total_ns;
        const MixedReads::Times many = read_direct(size, count);
        samples_.push_back({Sample::Kind::kDirect, size, many.total_ns / count});
        alone_ns_.emplace_back(size, alone);
        // Nothing is copied: this is the time to submit as many as there is room for.
        submits_ns_.push_back(many.copy_ns / std::min(count, kDepth));
    }

    // Every other piece of the size in the first half of each 8 MiB, each filled by itself as in
    // the vectors, copied while direct transfers of the second half are under way: that is when the
    // overlapped model has copies made.
    void cached(uint64_t size) {
        const uint64_t pages = size / kPageSize;
        PageMap wanted(cache_.pages(), 0);
        for (uint64_t page = 0; page < wanted.size(); ++page)
            wanted[page] = page % kVectorPages < kVectorPages / 2 ? page / pages % 2 : 0;
        cache_.set(wanted);
        for (uint64_t at = 0; at < file_.size(); at += kVectorSize) {
            transfers_.clear();
            for (uint64_t piece = size; piece < kVectorSize / 2; piece += 2 * size)
                add({at + piece, size}, Route::kCached);
            const auto count = static_cast<double>(transfers_.size());
            for (uint64_t piece = kVectorSize / 2; piece < kVectorSize; piece += kSizeMax)
                add({at + piece, kSizeMax}, Route::kDirect);
            const double ns = read(at).copy_ns - submit_ns_ * kVectorSize / 2 / kSizeMax;
            samples_.push_back({Sample::Kind::kCached, size, ns / count});
        }
    }

    void buffered(uint64_t size, const PageMap& none) {
        cache_.set(none);
        const uint64_t count = std::min<uint64_t>(file_.size() / size / 2, 8);
        const double ns = time_of([&] {
            for (uint64_t i = 0; i < count; ++i) reads_.copy(buffer_.data(), size, 2 * i * size);
        });
        samples_.push_back({Sample::Kind::kBuffered, size, ns / static_cast<double>(count)});
    }

    const TestFile& file_;
    CacheState& cache_;
    MixedReads& reads_;
    HugeBuffer& buffer_;
    base::Prng prng_{1};
    std::vector<Sample> samples_;
    std::vector<std::pair<uint64_t, double>> alone_ns_;
    std::vector<double> submits_ns_;
    double submit_ns_ = 0;  // their median so far
    std::vector<planner::Transfer> transfers_;
};

}  // namespace

planner::Fit calibrate(const TestFile& file, CacheState& cache, MixedReads& reads,
                       HugeBuffer& buffer, unsigned rounds) {
    return Calibration(file, cache, reads, buffer).run(rounds);
}

}  // namespace penstock::bench
