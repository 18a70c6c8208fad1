#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/harness/cold_file.h"
#include "bench/harness/crew.h"
#include "bench/harness/huge_buffer.h"
#include "bench/readahead/cases.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

// Reads with four threads of pread through the OS cache, each its quarter of the file into its own
// buffer.
class FourThreads {
public:
    explicit FourThreads(const TestFile& file) : file_(file), buffers_(kThreads * kMiB) {}

    double run(uint64_t piece, bool* right) {
        const uint64_t quarter = file_.size() / kThreads;
        std::atomic<uint64_t> wrong{0};
        const double seconds = timed([&] {
            crew_.run(kThreads, [&](unsigned thread) {
                // Each thread has its own descriptor, and so its own readahead of the OS.
                const int own = open(file_.path().c_str(), O_RDONLY | O_CLOEXEC);
                unsigned char* buffer = buffers_.data() + thread * kMiB;
                uint64_t mine = own < 0;
                for (uint64_t at = 0; at < quarter; at += piece) {
                    const uint64_t offset = thread * quarter + at;
                    mine += pread(own, buffer, piece, static_cast<off_t>(offset)) !=
                            static_cast<ssize_t>(piece);
                    mine += count_wrong(buffer, offset, piece);
                }
                close(own);
                wrong += mine;
            });
        });
        *right = *right && wrong == 0;
        return seconds;
    }

private:
    static constexpr unsigned kThreads = 4;
    const TestFile& file_;
    HugeBuffer buffers_;
    Crew crew_{kThreads};
};

// Returns the fastest size of pieces, from runs that do not count.
uint64_t best_piece(ColdFile& cold, FourThreads& threads, bool smoke) {
    constexpr int kRuns = 3;
    uint64_t best = 128 * kKiB;
    double best_seconds = 0;
    for (const uint64_t piece : {128 * kKiB, 64 * kKiB, 256 * kKiB, 512 * kKiB, 1024 * kKiB}) {
        double seconds[kRuns];
        bool right = true;
        for (double& one : seconds) {
            cold.make_cold();
            one = threads.run(piece, &right);
        }
        std::sort(seconds, seconds + kRuns);
        if (best_seconds == 0 || seconds[kRuns / 2] < best_seconds) {
            best_seconds = seconds[kRuns / 2];
            best = piece;
        }
        if (smoke) break;
    }
    return best;
}

struct ColdCase {
    const char* name;
    uint64_t read_size;
    bool helping;
};

void measure_case(WalkDevice& device, Report& report, const Arguments& arguments, ColdFile& cold,
                  FourThreads& threads, uint64_t piece, const ColdCase& chosen) {
    const uint64_t size = cold.file().size();
    FileSystemOptions options = with_pages(4096, size / 2, Readahead::kAuto);
    options.helping = chosen.helping;
    WalkSystem system(device, options, {&cold.file()});
    const std::string note = std::to_string(chosen.read_size / kKiB) + " KiB reads, " +
                             (chosen.helping ? "blocks help" : "4 workers") +
                             ", cache half the file, cold before every run; pread in pieces of " +
                             std::to_string(piece / kKiB) + " KiB, the best of five sizes";
    compare(
        report, arguments, {chosen.name, "cold-pread-4-threads", note, size},
        [&](bool* right) {
            *right = cold.make_cold() && *right;
            const WalkRun run = system.run(
                {sequential_walk(device, cold.file(), chosen.read_size)});
            *right = *right && run.right && run.read_all(size, 4096);
            return run.seconds;
        },
        [&](bool* right) {
            *right = cold.make_cold() && *right;
            return threads.run(piece, right);
        });
}

void measure_sequential(WalkDevice& device, Report& report, const Arguments& arguments,
                        uint64_t size) {
    std::vector<ColdCase> cases;
    for (const ColdCase& one : {ColdCase{"cold-4k+readahead", 4 * kKiB, true},
                                ColdCase{"cold-4k+readahead-workers", 4 * kKiB, false},
                                ColdCase{"cold-pages-4k+readahead", 64 * kKiB, true},
                                ColdCase{"cold-pages-4k+readahead-workers", 64 * kKiB, false}}) {
        if (wanted(arguments, one.name)) cases.push_back(one);
    }
    if (cases.empty()) return;
    ColdFile cold(size);
    FourThreads threads(cold.file());
    const uint64_t piece = best_piece(cold, threads, arguments.smoke);
    for (const ColdCase& one : cases)
        measure_case(device, report, arguments, cold, threads, piece, one);
}

// Reads 4 KiB of every 64 KiB, from a disk that is throttled to stated figures.
void measure_strided(WalkDevice& device, Report& report, const Arguments& arguments,
                     uint64_t size) {
    constexpr double kLatencyUs = 100, kBandwidthMbs = 500;
    constexpr uint64_t kDistance = 64 * kKiB;
    Case named{"strided-cold+readahead", "strided-cold", "", size / kDistance * 4096};
    if (!wanted(arguments, named.name)) return;
    named.note =
        "4 KiB of every 64 KiB, each block its own part, throttle (100 us, 500 MB/s), cold before "
        "every run";
    ColdFile cold(size);
    const auto runner = [&](Readahead readahead) -> WalkRunner {
        FileSystemOptions options = with_pages(4096, size / 16, readahead);
        options.study.throttle_latency_us = kLatencyUs;
        options.study.throttle_bandwidth_mbs = kBandwidthMbs;
        auto system = std::make_shared<WalkSystem>(device, options,
                                                   std::vector<const TestFile*>{&cold.file()});
        Walk walk = sequential_walk(device, cold.file(), kDistance);
        walk.size = 4096;
        return [&cold, system, walk, named](bool* right) {
            *right = cold.make_cold() && *right;
            const WalkRun run = system->run({walk});
            *right = *right && run.right && run.read_all(named.bytes, 4096);
            return run.seconds;
        };
    };
    compare(report, arguments, named, runner(Readahead::kAuto), runner(Readahead::kOff));
}

}  // namespace

void measure_cold(WalkDevice& device, Report& report, const Arguments& arguments) {
    measure_sequential(device, report, arguments, (arguments.smoke ? 16 : 512) * kMiB);
    measure_strided(device, report, arguments, (arguments.smoke ? 16 : 256) * kMiB);
}

}  // namespace penstock::bench
