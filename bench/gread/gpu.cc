#include "bench/gread/gpu.h"

#include <string>

#include "bench/gread/gpu_rig.h"
#include "bench/gread/grid_stride.h"

namespace penstock::bench {
namespace {

void measure_gpu_hits(Report& report, const Arguments& arguments, const Device& device,
                      const TestFile& file, const GpuCase& chosen) {
    const unsigned rounds = arguments.smoke ? 1 : 8;
    GpuRig rig(device, file);
    FileSystemOptions options;
    options.page_size = chosen.page_size;
    options.workers = GpuRig::workers();
    rig.open(options);
    // One warp and no windows, so that page i is in frame i.
    rig.advise(Advice::kRandom);
    tell("one warp", file.size(),
         rig.read({"", chosen.page_size, uint64_t{chosen.page_size} * 32, 1, 32}, read_in_place, 1,
                  false));
    rig.advise(Advice::kNormal);
    const uint64_t before = rig.statistics().requests;
    Row row;
    row.name = chosen.name;
    row.against = "device-copy";
    row.bytes = rounds * file.size();
    row.pairs = take_pairs(
        arguments.pairs,
        [&] { return tell(chosen.name, row.bytes, rig.read(chosen, read_in_place, rounds, true)); },
        [&] { return tell("device-copy", row.bytes, rig.copy_frames(rounds)); }, &row.cpu_seconds);
    row.verified = rig.bytes_right() && rig.statistics().requests == before;
    row.simulated = device.simulated();
    row.note = describe(chosen) +
               "; all resident, every byte of every run compared; cpu_seconds with the checks";
    report.add(std::move(row));
}

void measure_gpu_misses(Report& report, const Arguments& arguments, const Device& device,
                        const TestFile& file, const GpuCase& chosen) {
    for (const bool pinned : {true, false}) {
        GpuRig rig(device, file);
        Row row;
        row.name = chosen.name;
        row.against = pinned ? "pinned-h2d" : "cpu-read-then-copy";
        row.bytes = file.size();
        row.pairs = take_pairs(
            arguments.pairs,
            [&] {
                rig.open_plain(chosen.page_size);
                const double seconds = tell(chosen.name, row.bytes,
                                            rig.read(chosen, read_in_place, 1, false));
                rig.count_wrong_state(rig.statistics().requests == file.size() / chosen.page_size);
                return seconds;
            },
            [&] {
                return tell(row.against.c_str(), row.bytes,
                            pinned ? rig.copy_pinned() : rig.read_then_copy());
            },
            &row.cpu_seconds, [&] { rig.count_wrong_state(file.make_hot()); });
        row.verified = rig.bytes_right();
        row.simulated = device.simulated();
        row.note = describe(chosen) + ", a file of " + std::to_string(file.size() >> 20) +
                   " MiB; " + std::to_string(GpuRig::workers()) +
                   " workers, no windows, the GPU's cache empty, the OS's hot, every byte of every "
                   "run "
                   "compared; cpu_seconds with set-up and checks";
        report.add(std::move(row));
    }
}

}  // namespace

void measure_gpu(Report& report, const Arguments& arguments, const Device& device) {
    const uint64_t size = arguments.smoke ? 32 << 20 : 1 << 30;
    report.describe("file", std::to_string(size >> 20) + " MiB");
    const TestFile file(size);
    constexpr uint64_t kMiB = 1 << 20;
    for (const GpuCase& chosen : {GpuCase{"hits-4k-gpu", 4096, kMiB, 512, 256},
                                  GpuCase{"hits-4k-gpu-264-blocks", 4096, kMiB, 264, 512, true},
                                  GpuCase{"hits-4k-gpu-1024-blocks", 4096, kMiB, 1024, 128, true},
                                  GpuCase{"hits-4k-gpu-warps", 4096, kMiB / 8, 4096, 32, true},
                                  GpuCase{"hits-64k-gpu-warps", 65536, kMiB, 1024, 32, true}}) {
        if (wanted(arguments, chosen.name) && (!chosen.sweep || arguments.full))
            measure_gpu_hits(report, arguments, device, file, chosen);
    }
    for (const GpuCase& chosen :
         {GpuCase{"sequential-4k", 4096, kMiB, 264, 256},
          GpuCase{"sequential-64k", 65536, kMiB, 264, 256},
          GpuCase{"sequential-1m", 1 << 20, kMiB, 264, 256},
          GpuCase{"sequential-4k-64k-requests", 4096, kMiB / 16, 1056, 32, true},
          GpuCase{"sequential-64k-64k-requests", 65536, kMiB / 16, 1056, 32, true}}) {
        if (wanted(arguments, chosen.name) && (!chosen.sweep || arguments.full))
            measure_gpu_misses(report, arguments, device, file, chosen);
    }
    measure_gpu_readahead(report, arguments, device, file);
    measure_gpu_grid_stride(report, arguments, device, file);
}

}  // namespace penstock::bench
