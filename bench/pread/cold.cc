#include "bench/pread/cold.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/units.h"
#include "bench/harness/cache_state.h"
#include "bench/harness/fio.h"
#include "bench/harness/huge_buffer.h"
#include "bench/harness/plain_reads.h"
#include "penstock/file.h"

namespace penstock::bench {
namespace {

constexpr uint64_t kRequest = 64 * base::kMiB;
constexpr uint64_t kReused = 8 * base::kMiB;  // memory that fio's fastest jobs read into
constexpr size_t kFinalists = 4;
constexpr int kFinalRuns = 5;

// A plain loop with one thread, io_uring and O_DIRECT.
struct LoopJob {
    unsigned depth;
    uint64_t block_size;
};

// A file of which the OS has cached nothing at the start of each run.
class ColdFile {
public:
    explicit ColdFile(uint64_t size)
        : file_(size), state_(file_), cold_(state_.pages(), 0), buffer_(kRequest) {
        library_ = need(File::open(file_.path()), "open");
    }

    // Returns the bytes a second of requests of 64 MiB, one after another; checks in between are
    // not timed.
    double run_library() {
        verified_ = state_.set(cold_) && verified_;
        double seconds = 0;
        for (uint64_t offset = 0; offset < file_.size(); offset += kRequest) {
            seconds += timed([&] {
                const uint64_t got = need(library_.read(buffer_.data(), kRequest, offset), "read");
                verified_ = verified_ && got == kRequest;
            });
            verified_ = count_wrong_and_wipe(buffer_.data(), offset, kRequest) == 0 && verified_;
        }
        return static_cast<double>(file_.size()) / seconds;
    }

    std::optional<double> run(const FioJob& job) {
        verified_ = state_.set(cold_) && verified_;
        return run_fio(job, file_.path(), file_.size());
    }

    // Reads the whole file by a loop as a C programmer writes it, into the first `memory` bytes of
    // the buffer again and again. The bytes are not checked.
    double run_loop(const LoopJob& job, uint64_t memory) {
        verified_ = state_.set(cold_) && verified_;
        UringReads loop(file_.path(), job.depth, job.block_size, memory);
        const double seconds = timed([&] { loop.read(buffer_.data(), file_.size(), 0); });
        return static_cast<double>(file_.size()) / seconds;
    }

    [[nodiscard]] bool verified() const { return verified_; }
    [[nodiscard]] uint64_t size() const { return file_.size(); }
    [[nodiscard]] double huge_share() const { return buffer_.huge_share(); }

private:
    TestFile file_;
    CacheState state_;
    PageMap cold_;
    HugeBuffer buffer_;
    File library_;
    bool verified_ = true;
};

template <typename Job>
struct Tried {
    Job job;
    std::vector<double> rates;
    [[nodiscard]] double median() const {
        std::vector<double> sorted = rates;
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
    }
};

// Runs all jobs once, after a warm-up, and the best few again, in turn. These runs do not count.
//   run  returns the bytes a second of a job, or nothing if it cannot be done here
template <typename Job, typename Run>
std::optional<Job> best_job(const std::vector<Job>& jobs, bool smoke, const Run& run) {
    std::vector<Tried<Job>> tried;
    (void)run(jobs[0]);
    for (const Job& job : jobs) {
        if (const std::optional<double> rate = run(job)) tried.push_back({job, {*rate}});
    }
    const auto faster = [](const auto& a, const auto& b) { return a.median() > b.median(); };
    std::sort(tried.begin(), tried.end(), faster);
    if (tried.size() > kFinalists) tried.resize(kFinalists);
    for (int i = smoke ? kFinalRuns : 0; i < kFinalRuns; ++i) {
        for (Tried<Job>& one : tried)
            if (const std::optional<double> rate = run(one.job)) one.rates.push_back(*rate);
    }
    std::sort(tried.begin(), tried.end(), faster);
    if (tried.empty()) return std::nullopt;
    return tried[0].job;
}

struct Baseline {
    const char* name;
    std::vector<FioJob> jobs;
};

void measure_against(Report& report, const Arguments& arguments, ColdFile& file,
                     const Baseline& baseline) {
    const std::optional<FioJob> job = best_job(baseline.jobs, arguments.smoke,
                                               [&](const FioJob& one) { return file.run(one); });
    if (!job) {
        report.describe(baseline.name, "left out: this fio could do no job of the sweep");
        return;
    }
    Row row;
    row.name = "cold-64m";
    row.against = baseline.name;
    row.unit = "B/s";
    bool all_ran = true;
    row.pairs = take_pairs(
        arguments.pairs, [&] { return file.run_library(); },
        [&] {
            const std::optional<double> rate = file.run(*job);
            all_ran = all_ran && rate.has_value();
            return rate.value_or(0);
        },
        &row.cpu_seconds);
    row.bytes = file.size();
    row.verified = all_ran && file.verified();
    row.note = "fio: " + describe(*job) +
               (job->huge_pages ? ", buffers by glibc.malloc.hugetlb=1" : ", its own buffers") +
               "; best of " + std::to_string(baseline.jobs.size()) + "; file cold before each run";
    report.add(std::move(row));
}

// Measures the effect of the memory size without this library: the same loop into 64 MiB, as
// cold-64m must, and into as little memory as fio's fastest jobs reuse. Also measures this library
// against that loop with the same memory.
void measure_loops(Report& report, const Arguments& arguments, ColdFile& file) {
    if (!UringReads::offered()) {
        report.describe("plain-loop", "left out: no io_uring here");
        return;
    }
    std::vector<LoopJob> jobs;
    for (const uint64_t block_size : {256 * base::kKiB, base::kMiB, 4 * base::kMiB}) {
        for (const unsigned depth : {8u, 16u, 32u}) jobs.push_back({depth, block_size});
    }
    if (arguments.smoke) jobs.resize(1);
    const auto best_into = [&](uint64_t memory) {
        std::vector<LoopJob> fitting = jobs;
        std::erase_if(fitting,
                      [&](const LoopJob& one) { return one.depth * one.block_size > memory; });
        return *best_job(fitting, arguments.smoke, [&](const LoopJob& one) {
            return std::optional(file.run_loop(one, memory));
        });
    };
    const LoopJob wide = best_into(kRequest), narrow = best_into(kReused);
    const auto text = [](const LoopJob& job) {
        return "depth " + std::to_string(job.depth) + ", " + std::to_string(job.block_size >> 10) +
               " KiB";
    };
    const auto add = [&](const char* name, const char* against, const std::string& note,
                         const auto& ours, const auto& theirs) {
        Row row;
        row.name = name;
        row.against = against;
        row.unit = "B/s";
        row.pairs = take_pairs(arguments.pairs, ours, theirs, &row.cpu_seconds);
        row.bytes = file.size();
        row.verified = file.verified();
        row.note = note + "; file cold before each run";
        report.add(std::move(row));
    };
    const auto loop_wide = [&] { return file.run_loop(wide, kRequest); };
    add(
        "cold-64m", "plain-loop-same-memory", "io_uring, direct, " + text(wide) + ", into 64 MiB",
        [&] { return file.run_library(); }, loop_wide);
    add("plain-loop-64m", "plain-loop-8m",
        "no library: io_uring, direct, " + text(wide) + ", into 64 MiB, against " + text(narrow) +
            ", into 8 MiB; the bytes are not looked at",
        loop_wide, [&] { return file.run_loop(narrow, kReused); });
}

}  // namespace

void measure_cold(Report& report, const Arguments& arguments) {
    if (const std::string reason = why_no_fio(); !reason.empty()) {
        report.describe("cold-64m", "left out: " + reason);
        std::fprintf(stderr, "cold-64m left out: %s\n", reason.c_str());
        return;
    }
    ColdFile file(arguments.smoke ? 2 * kRequest : base::kGiB);
    report.describe("buffer of the cold reads",
                    std::to_string(static_cast<int>(100 * file.huge_share())) + " % on huge pages");
    const bool smoke = arguments.smoke;
    auto everything = fio_sweep(false, smoke);
    for (const auto& job : fio_other_jobs(smoke)) everything.push_back(job);
    for (const Baseline& baseline :
         {Baseline{"fio-best", everything}, Baseline{"fio-best-huge-pages", fio_sweep(true, smoke)},
          Baseline{"fio-best-one-direct-thread", fio_sweep(false, smoke)}}) {
        measure_against(report, arguments, file, baseline);
    }
    measure_loops(report, arguments, file);
}

}  // namespace penstock::bench
