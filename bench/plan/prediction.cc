#include "bench/plan/prediction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/prng.h"
#include "bench/harness/cache_state.h"
#include "bench/harness/huge_buffer.h"
#include "bench/harness/test_file.h"
#include "bench/plan/vectors.h"
#include "penstock/file.h"

namespace penstock::bench {
namespace {

constexpr uint64_t kRequests = 5000, kRequestsInFile = 8;
constexpr size_t kRuns = 3;
// Rounds of the limit, spread over the other rounds, so that both see the same load of the machine.
constexpr uint64_t kRoundsPerLimitRound = 10;
constexpr size_t kLimitRuns = 13, kLimitFirst = (kLimitRuns - kRuns) / 2;
constexpr int kSetTries = 5;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Relative errors, against the true value.
class Errors {
public:
    void add(double guess, double truth) {
        const double error = (guess - truth) / truth;
        sum_ += error;
        sizes_.push_back(std::abs(error));
    }
    [[nodiscard]] size_t count() const { return sizes_.size(); }
    [[nodiscard]] double middle() const { return median(sizes_); }
    [[nodiscard]] double bias() const { return sum_ / static_cast<double>(count()); }
    [[nodiscard]] double mean() const {
        double sum = 0;
        for (const double size : sizes_) sum += size;
        return sum / static_cast<double>(count());
    }
    [[nodiscard]] double score() const { return std::max(0.0, 1 - mean()); }

private:
    std::vector<double> sizes_;
    double sum_ = 0;
};

class Prediction {
public:
    Prediction(const TestFile& file, const FileOptions& options)
        : cache_(file),
          file_(need(File::open(file.path(), {}, options), "open")),
          buffer_(kVectorSize) {}

    void run(uint64_t rounds) {
        // Pages that were just written are in folios, which the OS evicts only as a whole.
        cache_.set(PageMap(cache_.pages(), 0));
        for (uint64_t round = 0; round < rounds; ++round) {
            judge(run_round(kRuns));
            if (round % kRoundsPerLimitRound == 0) judge_limit(run_round(kLimitRuns));
        }
    }
    [[nodiscard]] Row row() const;
    [[nodiscard]] Row limit_row() const;

private:
    // One request: of each run, in the order they ran.
    struct Told {
        std::vector<double> predicted_ns, measured_ns;
        uint64_t direct_bytes = 0;
    };
    using Round = std::array<Told, kRequestsInFile>;

    Round run_round(size_t runs);
    void judge(const Round& round);
    void judge_limit(const Round& round);
    bool set_cache(const PageMap& wanted);
    penstock::Report read(uint64_t offset);
    [[nodiscard]] std::string wrong() const;

    CacheState cache_;
    File file_;
    HugeBuffer buffer_;
    base::Prng prng_{4};
    Errors predicted_;
    Errors repeated_;                                     // the first run, by the two others
    Errors limit_, limit_of_three_, predicted_at_limit_;  // the same runs by others, and predicted
    uint64_t wrong_words_ = 0, wrong_states_ = 0, direct_bytes_ = 0;
};

Prediction::Round Prediction::run_round(size_t runs) {
    PageMap wanted(cache_.pages(), 0);
    for (uint64_t i = 0; i < kRequestsInFile; ++i) {
        for (const extent::ResidencyRun& run : random_vector(prng_, i * kVectorSize)) {
            if (run.state != extent::Residency::kCached) continue;
            const uint64_t first = run.range.offset / kPageSize;
            std::fill_n(wanted.begin() + static_cast<ptrdiff_t>(first), run.range.size / kPageSize,
                        1);
        }
    }
    Round round;
    for (size_t run = 0; run < runs; ++run) {
        wrong_states_ += set_cache(wanted) ? 0 : 1;
        for (size_t i = 0; i < kRequestsInFile; ++i) {
            const penstock::Report told = read(i * kVectorSize);
            round[i].predicted_ns.push_back(static_cast<double>(told.predicted_ns));
            round[i].measured_ns.push_back(static_cast<double>(told.read_ns - told.plan_ns));
            round[i].direct_bytes += told.bytes_by(Route::kDirect);
        }
    }
    return round;
}

void Prediction::judge(const Round& round) {
    for (const Told& told : round) {
        const std::vector<double>& ns = told.measured_ns;
        repeated_.add(ns[0], (ns[1] + ns[2]) / 2);
        predicted_.add(told.predicted_ns[0], median(ns));
        direct_bytes_ += told.direct_bytes;
    }
}

void Prediction::judge_limit(const Round& round) {
    for (const Told& told : round) {
        const auto first = told.measured_ns.begin() + static_cast<ptrdiff_t>(kLimitFirst);
        const auto last = first + static_cast<ptrdiff_t>(kRuns);
        const double truth = median({first, last});
        std::vector<double> others(told.measured_ns.begin(), first);
        others.insert(others.end(), last, told.measured_ns.end());
        limit_.add(median(std::move(others)), truth);
        limit_of_three_.add(median({first - static_cast<ptrdiff_t>(kRuns), first}), truth);
        predicted_at_limit_.add(told.predicted_ns[kLimitFirst], truth);
    }
}

// Pages that a read brought in additionally are in folios, which the OS evicts as a whole or not at
// all. The OS may also reclaim idle pages during a run.
bool Prediction::set_cache(const PageMap& wanted) {
    for (int tries = 0; tries < kSetTries; ++tries) {
        if (cache_.set(wanted)) return true;
        (void)cache_.set(PageMap(cache_.pages(), 0));
    }
    return false;
}

// Reads on the file's one thread: a caller that waits for read() would be a second one.
penstock::Report Prediction::read(uint64_t offset) {
    const Future future = need(file_.pread(buffer_.data(), kVectorSize, offset), "read");
    if (need(future.result(), "read") != kVectorSize) fail("a read was short");
    wrong_words_ += count_wrong_and_wipe(buffer_.data(), offset, kVectorSize);
    return future.report();
}

std::string Prediction::wrong() const {
    if (wrong_words_ == 0 && wrong_states_ == 0) return "";
    return std::to_string(wrong_words_) + " wrong words, " + std::to_string(wrong_states_) +
           " wrong cache states; ";
}

Row Prediction::row() const {
    Row row;
    row.name = "predicted-time";
    row.against = "measured-time";
    row.unit = "share";
    row.bytes = predicted_.count() * kVectorSize;
    row.pairs = {{predicted_.score(), 1.0}};
    row.verified = wrong().empty();
    row.note = wrong() + std::to_string(predicted_.count()) +
               " requests of 8 MiB, each against the median of " + std::to_string(kRuns) +
               " runs; median relative error " + std::to_string(predicted_.middle()) +
               ", prediction less truth is on average " + std::to_string(predicted_.bias()) +
               " of it; the first run of a request differs from the mean of its other two by " +
               std::to_string(repeated_.mean()) + "; the limit of this disk now is " +
               std::to_string(limit_.score()) + " (row predicted-time-limit); of all bytes " +
               std::to_string(direct_bytes_ * 100 / kRuns / row.bytes) + " % direct; destination " +
               std::to_string(static_cast<int>(buffer_.huge_share() * 100)) + " % on huge pages";
    return row;
}

Row Prediction::limit_row() const {
    Row row;
    row.name = "predicted-time-limit";
    row.against = "measured-time";
    row.unit = "share";
    row.bytes = limit_.count() * kVectorSize;
    row.pairs = {{limit_.score(), 1.0}};
    row.verified = wrong().empty();
    row.note = wrong() + std::to_string(limit_.count()) +
               " further requests between those, the median of " + std::to_string(kRuns) +
               " runs told by the median of the " + std::to_string(kLimitRuns - kRuns) +
               " runs of the same request before and behind them; by the median of the " +
               std::to_string(kRuns) + " before them " + std::to_string(limit_of_three_.score()) +
               "; predicted " + std::to_string(predicted_at_limit_.score());
    return row;
}

}  // namespace

void measure_prediction(Report& report, const Arguments& arguments, const FileOptions& options) {
    const TestFile file(kRequestsInFile * kVectorSize);
    Prediction prediction(file, options);
    prediction.run(arguments.smoke ? 1 : kRequests / kRequestsInFile);
    report.add(prediction.row());
    report.add(prediction.limit_row());
}

}  // namespace penstock::bench
