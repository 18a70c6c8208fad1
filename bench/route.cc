// Question: does the library find the cheapest route for every byte range, or would one mode for
// everything have done?
//
// Workload: a program goes through a file of 256 MiB in order, one blocking read after another, to
// page-aligned memory on huge pages that a run writes once. Cells: what the OS page cache holds
// (nothing, all, 25, 50 or 75 % in runs of 4 MiB, of 64 MiB or as random pages) × 4 KiB, 64 KiB, 1,
// 16 or 64 MiB a request × offsets at a multiple of that or 13 bytes behind it (the memory stays
// page-aligned) × the disk as it is, or capped by the block layer for all that reads. Of small
// requests a sample of stretches is read. Hot runs go over it 4 to 32 times (direct ones of them
// twice, scaled), behind a pass that is not timed. The case is `auto`: the library at its defaults.
// Baselines are plain C loops, one mode for everything: `cached` (pread, a request of 1 MiB or more
// in as many parts as the library has threads), `direct` (O_DIRECT by io_uring, 16 pieces of 1 MiB
// in flight; of 1 MiB and more), `direct-pread` (O_DIRECT, 4 threads that take pieces of 1 MiB; up
// to 1 MiB; --full runs both at all sizes). Direct reads of what is not aligned read the aligned
// pieces around it into staging and copy. Before each run the cache
// state is set, and seen page by page with mincore; after it one word of every 4 KiB is checked and
// wiped. The best mode of a cell is chosen on one half of the rounds, auto is judged against it on
// the other. Not measured: random order, several readers, writes, device memory.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "bench/harness/report.h"
#include "bench/route/capped_device.h"
#include "bench/route/rows.h"

namespace penstock::bench {
namespace {

constexpr const char* kQuestion =
    "does the library find the cheapest route for every byte range, or would one mode "
    "for everything have done?";
constexpr double kCapMbs = 300;  // of a SATA or network disk

// A run ends in time also on a machine that is slower than those the cells were chosen for.
class Watch {
public:
    [[nodiscard]] bool past() const { return std::chrono::steady_clock::now() > end_; }

private:
    const std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() +
                                                       std::chrono::minutes(23);
};

// Asked for by its own name, or by that of a row it is part of.
bool cell_wanted(const Arguments& arguments, const Cell& cell) {
    if (wanted(arguments, name(cell))) return true;
    for (const Aggregate& aggregate : aggregates())
        if (wanted(arguments, aggregate.name) && aggregate.holds(cell)) return true;
    return false;
}

// As many as the library's: PENSTOCK_THREADS, else a thread for each CPU.
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
    // Of what names a route for the whole process there must be nothing here.
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
