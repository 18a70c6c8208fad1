// Question: what does it gain that blocks leave their place while they wait for storage?
//
// Workload: the mix of seed 001, section 6.2. One to ten kernels multiply matrices that they read
// from files of 2 MiB, each from its own, with one read or eight reads in each block. SRAD and
// PathFinder compute. All are launched at once, each in its own stream, the I/O kernels first, on
// as many places as there are cores. Storage is a throttle with stated figures over files that the
// OS has cached; the GPU page cache holds nothing of them. I is measured by a run with the
// computation left out, C by a run without reads, both in each round; no run can be faster than the
// longer one. Modes (bench/preempt/mode.h): spinning, this library's policy, leaving at every wait,
// the seed's policy; without preemption, kernels split by hand and four times as many places. The
// time in the system of a kernel ends when the host sees its stream empty, to 200 us. Checkpoints:
// HotSpot with every point taken against none, for states from nothing to 8 KiB of shared memory
// and 64 B of registers. After each run every result is compared with a reference, bit for bit, and
// the bytes that came from storage are counted. Not measured: a GPU, writes, storage of real
// devices.
#include <thread>

#include "bench/harness/report.h"
#include "bench/harness/watch.h"
#include "bench/preempt/cases.h"
#include "bench/preempt/figures.h"

namespace penstock::bench {
namespace {

constexpr const char*
    kQuestion = "what does it gain that blocks leave their place while they wait for storage?";

}  // namespace

int run_all(const Arguments& arguments) {
    if (run_counted()) return 0;
    const Watch watch;
    const Device device = need(Device::open(arguments.device), "device");
    Report report("preempt", kQuestion, arguments);
    report.describe("device", device.name());
    report.describe("places", std::to_string(std::thread::hardware_concurrency()));
    report.describe("storage", kStudyDisk.describe());
    report.describe("mix", arguments.smoke ? "small" : describe_mix());
    if (!has_mode(WaitMode::kAdaptive))
        report.describe("left out", "modes in which blocks leave: built without penstock preempt");
    measure_mixed(report, arguments, watch);
    measure_io_bound(report, arguments, watch);
    measure_checkpoints(report, arguments);
    measure_restarts(report, arguments);
    measure_instructions(report, arguments);
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
