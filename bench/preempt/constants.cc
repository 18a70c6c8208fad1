#include "bench/preempt/constants.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "bench/harness/rounds.h"
#include "bench/preempt/child.h"
#include "bench/preempt/rig.h"
#include "preemption/gate.h"
#include "preemption/pieces.h"

namespace penstock::bench {
namespace {

using workloads::Part;
using workloads::PiecesOptions;

// Names device and number of runs to the child.
constexpr const char* kVariable = "PENSTOCK_BENCH_CONSTANTS";
constexpr unsigned kRunsMax = 1000;

constexpr PiecesOptions kSmallPieces{
    .blocks = 64, .pieces = 1, .piece_size = 16 << 10, .rounds = 1};
constexpr unsigned kLargeSize = 128 << 10;
constexpr double kShortMs = 20, kLongMs = 200;  // latencies

struct Field {
    const char* name;
    double Constants::*value;
    double scale;
    const char* unit;
};
constexpr Field kFields[] = {
    {"switch", &Constants::switching, 1e6, "us of CPU"},
    {"read", &Constants::read, 1e6, "us of CPU in the block's place"},
    {"byte", &Constants::byte, 1e9, "ns of CPU in the block's place"},
    {"host-read", &Constants::host_read, 1e6, "us of CPU"},
    {"host-byte", &Constants::host_byte, 1e9, "ns of CPU"},
    {"watcher", &Constants::watching, 1e2, "% of a core while blocks are outside"},
    {"way-back", &Constants::way_back, 1e6, "us beyond the latency of a read"},
    {"launch", &Constants::launch, 1e6, "us"},
    {"round", &Constants::round, 1e6, "us of CPU for a block of 256 GPU threads"},
};

double median_of(unsigned runs, const std::function<double()>& figure) {
    std::vector<double> values;
    (void)figure();
    for (unsigned i = 0; i < runs; ++i) values.push_back(figure());
    return median(std::move(values));
}

class MicroBenchmarks {
public:
    MicroBenchmarks(std::string device, unsigned runs) : device_(std::move(device)), runs_(runs) {}

    Constants measure() {
        constants_.round = round();
        constants_.launch = launch();
        in_place();
        if (has_mode(WaitMode::kForced)) {
            constants_.switching = switching();
            constants_.way_back = way_back();
        }
        reads();
        return constants_;
    }

private:
    // The rig's places are those of the measured runs: one for each core.
    [[nodiscard]] std::unique_ptr<MixRig> rig(const Disk& disk, const PiecesOptions& options) {
        auto made = std::make_unique<MixRig>(device_, std::thread::hardware_concurrency(), disk);
        auto pieces = need(make_pieces(made->site(), options), "pieces");
        made->add(std::unique_ptr<workloads::Workload>(std::move(pieces)), "pieces");
        return made;
    }

    static constexpr unsigned kRepeat = 4, kCachedReads = 8;

    // CPU seconds of the launches of kRepeat runs, without what the host does round them.
    static double cpu_of(MixRig& rig, Part part, WaitMode mode) {
        const auto spent = [&](bool launches) {
            const double before = cpu_time();
            if (!rig.repeat(kRepeat, part, mode, launches)) fail("a result is wrong");
            return cpu_time() - before;
        };
        const double all = spent(true);
        return all - spent(false);
    }

    // All pages are cached, so that the two runs differ by what a read costs in the block's place.
    void in_place() {
        const WaitMode mode = has_mode(WaitMode::kNever) ? WaitMode::kNever : WaitMode::kSpin;
        const auto read_cost = [&](unsigned size) {
            PiecesOptions options = kSmallPieces;
            options.blocks = 16;
            options.pieces = kCachedReads;
            options.piece_size = size;
            const auto cached = rig(kMemoryDisk, options);
            return std::max(0.0, median_of(runs_,
                                           [&] {
                                               const double all = cpu_of(*cached, Part::kAll, mode);
                                               return all - cpu_of(*cached, Part::kCompute, mode);
                                           })) /
                   (kRepeat * options.blocks * options.pieces);
        };
        const double small = read_cost(kSmallPieces.piece_size), large = read_cost(kLargeSize);
        constants_.byte = std::max(0.0, large - small) / (kLargeSize - kSmallPieces.piece_size);
        constants_.read = std::max(0.0, small - kSmallPieces.piece_size * constants_.byte);
    }

    // All pages are cached, so that the two runs differ by the switches alone.
    double switching() {
        PiecesOptions options = kSmallPieces;
        options.pieces = kCachedReads;
        const auto cached = rig(kMemoryDisk, options);
        return median_of(runs_, [&] {
            const double never = cpu_of(*cached, Part::kAll, WaitMode::kNever);
            const uint64_t left = preemption_statistics(cached->device()).left;
            const double forced = cpu_of(*cached, Part::kAll, WaitMode::kForced);
            const uint64_t count = preemption_statistics(cached->device()).left - left;
            return count == 0 ? 0 : std::max(0.0, forced - never) / static_cast<double>(count);
        });
    }

    double round() {
        PiecesOptions options = kSmallPieces;
        options.reads_file = false;
        options.rounds = 4000;
        const auto computing = rig(kMemoryDisk, options);
        return median_of(runs_, [&] {
            return checked(*computing, Part::kCompute, WaitMode::kSpin).cpu_seconds /
                   (options.blocks * options.rounds);
        });
    }

    double launch() {
        constexpr unsigned kLaunches = 200;
        const Device device = need(Device::open(device_), "device");
        auto* const out = static_cast<float*>(need(device.allocate(4096), "memory"));
        double seconds = 0;
        {
            Stream stream = need(Stream::create(device), "stream");
            seconds = median_of(runs_, [&] {
                return timed([&] {
                           for (unsigned i = 0; i < kLaunches; ++i)
                               need(workloads::keep_busy(stream, 1, 1, out), "launch");
                           need(stream.synchronize(), "launch");
                       }) /
                       kLaunches;
            });
        }
        device.free(out);
        return seconds;
    }

    double way_back() {
        constexpr double kLatency = 2e-3;
        PiecesOptions options = kSmallPieces;
        options.blocks = 1;
        const auto one = rig({kLatency * 1e6, 0}, options);
        return median_of(runs_, [&] {
            return std::max(0.0, checked(*one, Part::kReads, WaitMode::kAlways).seconds - kLatency);
        });
    }

    // Three kinds of runs that differ in one thing each: what is left after the block's part is
    // that of the host's threads.
    void reads() {
        const bool leaves = has_mode(WaitMode::kAlways);
        PiecesOptions large = kSmallPieces;
        large.piece_size = kLargeSize;
        const auto few = rig({kShortMs * 1e3, 0}, kSmallPieces);
        const auto many = rig({kShortMs * 1e3, 0}, large);
        const auto longer = rig({kLongMs * 1e3, 0}, kSmallPieces);
        struct Spent {
            double cpu, seconds;
        };
        const auto spent = [&](MixRig& rig) {
            std::vector<MixRun> all;
            for (unsigned i = 0; i <= runs_; ++i)
                all.push_back(
                    checked(rig, Part::kReads, leaves ? WaitMode::kAlways : WaitMode::kSpin));
            std::ranges::sort(all, {}, &MixRun::cpu_seconds);
            return Spent{all[all.size() / 2].cpu_seconds, all[all.size() / 2].seconds};
        };
        const Spent small = spent(*few), big = spent(*many), slow = spent(*longer);
        const double blocks = kSmallPieces.blocks;
        const auto positive = [](double value) { return std::max(0.0, value); };
        constants_.watching = positive((slow.cpu - small.cpu) / (slow.seconds - small.seconds));
        const auto rest = [&](const Spent& one) {
            return one.cpu - one.seconds * constants_.watching - blocks * constants_.switching;
        };
        const double byte = positive(rest(big) - rest(small)) /
                            (blocks * (kLargeSize - kSmallPieces.piece_size));
        const double read = rest(small) / blocks - kSmallPieces.piece_size * byte;
        constants_.host_byte = positive(byte - constants_.byte);
        constants_.host_read = positive(read - constants_.read);
    }

    static MixRun checked(MixRig& rig, Part part, WaitMode mode) {
        const MixRun run = rig.run({1}, part, mode);
        if (!run.right) fail("a result is wrong");
        return run;
    }

    const std::string device_;
    const unsigned runs_;
    Constants constants_;
};

}  // namespace

bool run_constants() {
    const char* words = std::getenv(kVariable);
    if (words == nullptr) return false;
    char device[64];
    unsigned runs = 0;
    if (std::sscanf(words, "%63s %u", device, &runs) != 2 || runs == 0 || runs > kRunsMax)
        fail(std::string(kVariable) + ": DEVICE RUNS");
    const Constants measured = MicroBenchmarks(device, runs).measure();
    for (const Field& field : kFields) std::printf("%s %.9g\n", field.name, measured.*field.value);
    return true;
}

Constants measure_constants(Report& report, const Arguments& arguments) {
    const unsigned runs = arguments.smoke ? 1 : 9;
    const std::string output = "\n" + run_self(kVariable,
                                               arguments.device + " " + std::to_string(runs), "");
    Constants constants;
    for (const Field& field : kFields) {
        const std::string key = "\n" + std::string(field.name) + " ";
        const size_t at = output.find(key);
        if (at == std::string::npos) fail("the micro-benchmarks of the model failed: " + output);
        constants.*field.value = std::strtod(output.c_str() + at + key.size(), nullptr);
        char text[96];
        std::snprintf(text, sizeof text, "%.3g %s", constants.*field.value * field.scale,
                      field.unit);
        report.describe("model: " + std::string(field.name), text);
        std::fprintf(stderr, "model: %-10s %s\n", field.name, text);
    }
    return constants;
}

}  // namespace penstock::bench
