// Question: does the library find the cheapest route for every byte range, or would one mode for
// everything be as good?
//
// Workload: a program reads a file of 256 MiB in order, with one blocking read after another, to
// page-aligned memory on huge pages that a run writes once. Cells: the content of the OS page cache
// (nothing, all, 25, 50 or 75 % in runs of 4 MiB, of 64 MiB or as random pages) × 4 KiB, 64 KiB, 1,
// 16 or 64 MiB a request × offsets at a multiple of that or 13 bytes after it (the memory stays
// page-aligned) × the disk as it is, or with a cap of the block layer on all reads. For small
// requests a sample of stretches is read. Hot runs read it 4 to 32 times (direct ones twice,
// scaled), after a pass that is not timed. The case is `auto`: the library at its defaults.
// Baselines are plain C loops with one mode for everything. `cached` is pread, with a request of
// 1 MiB or more in as many parts as the library has threads. `direct` is O_DIRECT by io_uring, with
// 16 pieces of 1 MiB in flight, for requests of 1 MiB and more. `direct-pread` is O_DIRECT by 4
// threads that take pieces of 1 MiB, for requests up to 1 MiB. --full runs both at all sizes.
// Direct reads of unaligned ranges read the aligned range around them into staging, and copy.
// Before each run the cache state is set, and checked page by page with mincore; after it one word
// of every 4 KiB is checked and wiped. The best mode of a cell is chosen on one half of the rounds;
// auto is compared with it on the other. Not measured: random order, several readers, writes,
// device memory.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "bench/harness/report.h"
#include "bench/harness/watch.h"
#include "bench/route/capped_device.h"
#include "bench/route/rows.h"

namespace penstock::bench {
namespace {

constexpr const char* kQuestion =
    "does the library find the cheapest route for every byte range, or would one mode "
    "for everything have done?";
constexpr double kCapMbs = 300;  // of a SATA or network disk

// Whether a cell was requested by its own name, or by the name of a row that contains it.
bool cell_wanted(const Arguments& arguments, const Cell& cell) {
    if (wanted(arguments, name(cell))) return true;
    for (const Aggregate& aggregate : aggregates())
        if (wanted(arguments, aggregate.name) && aggregate.holds(cell)) return true;
    return false;
}

// The library's number of threads: PENSTOCK_THREADS, else a thread for each CPU.
unsigned thread_count() {
    const char* text = std::getenv("PENSTOCK_THREADS");
    const long asked = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
    if (asked > 0) return static_cast<unsigned>(std::min(asked, 64L));
    return std::clamp(std::thread::hardware_concurrency(), 1u, 64u);
}

void measure_cells(Report& report, const Arguments& arguments, const std::vector<Cell>& cells,
                   const std::string& folder, const Watch& watch,
                   std::vector<CellResult>* results) {
    if (cells.empty()) return;
    RouteMeasurement measurement(folder, thread_count(), arguments.full);
    report.describe(
        folder.empty() ? "destination" : "destination of the capped disk",
        std::to_string(static_cast<int>(100 * measurement.huge_share())) + " % on huge pages");
    for (const Cell& cell : cells) {
        if (!arguments.full && watch.past()) {
            report.describe("left out for time", name(cell) + " and what follows it");
            return;
        }
        results->push_back(measurement.measure(cell, arguments.pairs));
        add_rows(report, results->back());
    }
}

}  // namespace

int run_all(const Arguments& arguments) {
    const Watch watch;
    // No variable may name a route for the whole process here.
    for (const char* variable : {"PENSTOCK_ROUTE", "PENSTOCK_STRICT"}) unsetenv(variable);
    std::vector<Cell> free_cells, capped_cells;
    for (const Cell& cell : route_cells(arguments.full, arguments.smoke)) {
        if (cell_wanted(arguments, cell)) (cell.capped ? capped_cells : free_cells).push_back(cell);
    }
    std::string why_not = "not asked for";
    std::unique_ptr<CappedDevice> capped;
    if (!capped_cells.empty())
        capped = CappedDevice::create(kRouteFileSize + kRouteFileTail, &why_not);
    Report report("route", kQuestion, arguments);
    report.describe("file", "256 MiB");
    report.describe("threads of cached", std::to_string(thread_count()));
    std::vector<CellResult> results;
    measure_cells(report, arguments, free_cells, "", watch, &results);
    if (capped != nullptr) why_not = capped->cap(kCapMbs);
    if (capped == nullptr || !why_not.empty()) {
        report.describe("capped disk", "left out: " + why_not);
        if (!capped_cells.empty()) std::fprintf(stderr, "no capped disk: %s\n", why_not.c_str());
    } else {
        report.describe("capped disk", "ext4 on a loop device, blkio: at most " +
                                           std::to_string(static_cast<int>(kCapMbs)) +
                                           " MB/s read, counted by the tenth of a second");
        measure_cells(report, arguments, capped_cells, capped->folder(), watch, &results);
    }
    report.describe("cells", std::to_string(results.size()) + " of " +
                                 std::to_string(route_cell_count()) +
                                 (arguments.full ? "" : "; all of them with --full"));
    add_aggregates(report, arguments, results);
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
