// Question: which mechanism reads a file into device memory fastest, and does the library's own
// choice keep up with the best?
//
// Workload: TIOtest as in seed 003 (SPIN), section 6.1. 1 or 4 threads read a file of 64 MiB each,
// with one blocking read after another, in order or at random, 512 bytes to 8 MiB at once. The OS
// page cache holds nothing of the files, half (in runs of 4 MiB), or all. Mechanisms are those of
// the seed's table 2. `clwrite`: pread into pageable host memory, then a blocking copy to the
// device (memcpy where the host can address device memory). `clwrite+d`: the same with O_DIRECT.
// `direct`: this library with the direct route by name, in place of the seed's peer-to-peer.
// `pread+gpu`: pread into device memory; where the host cannot address it, into one of two pinned
// buffers, from which a copy goes on beside the next read. `auto`: this library at its defaults.
// Threads read 256 pieces in random order, or 16 to 64 MiB in order; every byte goes to a place of
// its own. Reads past the page cache are timed for 256 pieces a thread at most, and scaled. Hot
// runs have several passes behind one that is not timed. Before each run the cache state is set,
// and checked page by page with mincore; after it one word of every read or of every 4 KiB is
// checked and wiped. The best mechanism of a cell is chosen on one half of the rounds; `auto` is
// compared with it on the other. A default run has 40 of 60 cells: all with 4 threads; with 1
// thread the sequential cold ones (figure 1 of the seed), random reads of 512 bytes (figure 5), and
// random reads of 512 KiB and 8 MiB of a file that is half cached. Not measured: writes, RAID,
// other load on CPU or disk (figures 4c and 4d of the seed), files larger than memory.
#include <cstdlib>

#include "bench/harness/report.h"
#include "bench/harness/watch.h"
#include "bench/tio/rows.h"

namespace penstock::bench {
namespace {

constexpr const char* kQuestion =
    "which mechanism reads a file into device memory fastest, and does the library's "
    "own choice keep up with the best?";

// Whether a cell was requested by its own name, or by the name of a row that contains it.
bool cell_wanted(const Arguments& arguments, const TioCell& cell) {
    if (wanted(arguments, name(cell))) return true;
    for (const TioAggregate& aggregate : tio_aggregates())
        if (wanted(arguments, aggregate.name) && aggregate.holds(cell)) return true;
    return false;
}

}  // namespace

int run_all(const Arguments& arguments) {
    const Watch watch;
    // No variable may name a route for the whole process here.
    for (const char* variable : {"PENSTOCK_ROUTE", "PENSTOCK_STRICT"}) unsetenv(variable);
    const Device device = need(Device::open(arguments.device, {.runs_kernels = false}), "device");
    Report report("tio", kQuestion, arguments);
    report.describe("device", device.name());
    report.describe("device memory", device.huge_pages() ? "on huge pages" : "not on huge pages");
    report.describe("files", std::to_string(kTioThreadsMax) + " of 64 MiB");
    std::vector<TioResult> results;
    TioMeasurement measurement(device);
    for (const TioCell& cell : tio_cells(arguments.full, arguments.smoke)) {
        if (!cell_wanted(arguments, cell)) continue;
        if (!arguments.full && watch.past()) {
            report.describe("left out for time", name(cell) + " and what follows it");
            break;
        }
        results.push_back(measurement.measure(cell, arguments.pairs));
        add_rows(report, results.back(), device.simulated());
    }
    report.describe("cells", std::to_string(results.size()) + " of " +
                                 std::to_string(tio_cell_count()) +
                                 (arguments.full ? "" : "; all of them with --full"));
    add_aggregates(report, arguments, results, device.simulated());
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
