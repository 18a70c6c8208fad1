// Question: do the findings of seed 000 (a readahead prefetcher for GPUfs) hold here?
//
// Workload: its microbenchmark. Each block reads its own stride of a file of known bytes from start
// to end; 60 blocks are resident, and four host threads serve. Figure 2: pages of 4 KiB to 4 MiB,
// each requested alone, against four threads of pread. Figures 3 to 5: the kernel's requests,
// served with neither page cache nor transfer, against as many threads that read in the file's
// order, and in the order of the requests. Figure 6: the fixed map of blocks to host threads,
// against any free thread. Figure 7: a file in memory, sent over a link in pieces (simulated on the
// CPU backend: 10 us, 10 GB/s). Figure 9: 4 KiB pages with windows of one size, against 64 KiB
// pages. Figure 10: a file of twice the cache with three replacement policies, against the
// original. Files are cold before every run if the paper's were. Reads take the routes that the
// library finds, past the OS cache if they are large; the paper's all go through it. The default is
// 120 MiB and 32 GPU threads a block; --full is 960 MiB and 512, as in the paper. Its mosaic
// (section 3.1) is a case of bench readahead. Not measured: its other applications.
#include "bench/harness/report.h"
#include "bench/seed000/cases.h"

namespace penstock::bench {

namespace {

constexpr const char* kQuestion = "do the findings of seed 000 hold here?";

}  // namespace

std::string device_of(const Arguments& arguments) {
    return arguments.device == "cpu" ? "cpu:" + std::to_string(kResident) : arguments.device;
}

std::string size_name(uint64_t bytes) {
    return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + "m" : std::to_string(bytes >> 10) + "k";
}

int run_all(const Arguments& arguments) {
    Report report("seed000", kQuestion, arguments);
    report.describe("device", device_of(arguments));
    measure_pages(report, arguments, {walk_file, walk_files, forget_file});
    measure_order(report, arguments);
    measure_link(report, arguments);
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
