// Question: what does it gain that blocks leave their place while they wait for storage?
//
// Workload: the mix of seed 001, section 6.2. One to ten kernels multiply matrices that they read
// from files of 2 MiB, each from its own, with one read or eight reads in each block. SRAD and
// PathFinder compute. All are launched at once, each in its own stream, the I/O kernels first, on
// as many places as there are cores. Storage is a throttle with stated figures over files that the
// OS has cached; the GPU page cache holds nothing of them. I is measured by a run with the
// computation left out, C by a run without reads, both in each round; no run can be faster than the
// longer one. Modes (bench/preempt/mode.h): spinning, this library's policy, leaving at every wait,
// the seed's policy; without preemption, spinning with backoff, kernels split by hand, a kernel
// that stays and takes tasks from a queue, and four times as many places. The CPU backend's spin
// also sleeps after some microseconds; both keep the block's place. The time in the system of a
// kernel ends when the host sees its stream empty, to 500 us. Checkpoints: HotSpot with every point
// taken against none, for states from nothing to 8 KiB of shared memory and 64 B of registers.
//
// Model: a child process measures the constants first. A row against "prediction" has measured and
// predicted seconds; the note tells alpha by term. Rows model-1 to model-8 are points of I, C and
// reads per block that gave no constant. Rows emulation-delay-N inject N us into each launch of
// workers: a GPU's launches take 10 to 50 us, but nothing else of them is like a GPU. Rows figure-1
// and figure-2 are the seed's formula, without a measurement ("simulated").
//
// After each run every result is compared with a reference, bit for bit, and the bytes that came
// from storage are counted. On a GPU, gpu-mix has sizes of its own. Not measured: writes, storage
// of real devices.
#include <thread>

#include "bench/harness/report.h"
#include "bench/harness/watch.h"
#include "bench/preempt/cases.h"
#include "bench/preempt/constants.h"
#include "bench/preempt/figures.h"
#include "bench/preempt/trace.h"

namespace penstock::bench {
namespace {

constexpr const char*
    kQuestion = "what does it gain that blocks leave their place while they wait for storage?";

}  // namespace

int run_all(const Arguments& arguments) {
    if (run_counted() || run_constants()) return 0;
    const Watch watch;
    const Device device = need(Device::open(arguments.device), "device");
    Report report("preempt", kQuestion, arguments);
    report.describe("device", device.name());
    report.describe("places", std::to_string(std::thread::hardware_concurrency()));
    report.describe("storage", kStudyDisk.describe());
    report.describe("mix", arguments.smoke ? "small" : describe_mix());
    if (!has_mode(WaitMode::kAdaptive))
        report.describe("left out", "modes in which blocks leave: built without penstock preempt");
    const Constants constants = measure_constants(report, arguments);
    write_trace(report, arguments, constants);
    // What bars judge comes first: the watch may leave out what is behind.
    measure_mixed(report, arguments, constants);
    measure_io_bound(report, arguments, constants, watch);
    measure_instructions(report, arguments);
    measure_gpu_mix(report, arguments);
    measure_model(report, arguments, constants, watch);
    measure_checkpoints(report, arguments, watch);
    measure_restarts(report, arguments, watch);
    measure_sweep(report, arguments, constants, watch);
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion, true));
}
