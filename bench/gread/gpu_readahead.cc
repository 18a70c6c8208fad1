#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "bench/gread/gpu.h"
#include "bench/gread/gpu_rig.h"

namespace penstock::bench {
namespace {

// A virtual machine's CPUs that are idle for so long sleep, and are slow for two milliseconds after
// they wake. A program that reads now and then runs on such CPUs.
constexpr std::chrono::milliseconds kRest{50};

// The conditions of runs, except the file.
struct Conditions {
    unsigned pool_threads = 1;
    std::chrono::milliseconds rest{0};  // idle time before each run
};

// The parts that rows on one cached file share.
class HotRows {
public:
    HotRows(Report& report, const Arguments& arguments, const Device& device, const TestFile& file)
        : report_(report), arguments_(arguments), device_(device), file_(file) {}

    using Run = std::function<double(GpuRig& rig)>;
    void compare(const std::string& name, const std::string& against, uint64_t bytes,
                 const std::string& note, const Run& one, const Run& other,
                 const Conditions& found = {}) {
        GpuRig rig(device_, file_, found.pool_threads);
        rig.rest_before_runs(found.rest);
        Row row;
        row.name = name;
        row.against = against;
        row.bytes = bytes;
        row.pairs = take_pairs(
            arguments_.pairs, [&] { return tell(name.c_str(), bytes, one(rig)); },
            [&] { return tell(against.c_str(), bytes, other(rig)); }, &row.cpu_seconds,
            [&] { rig.count_wrong_state(file_.make_hot()); });
        row.verified = rig.bytes_right();
        row.simulated = device_.simulated();
        row.note = note + ", a file of " + std::to_string(file_.size() >> 20) +
                   " MiB; the GPU's cache empty, the OS's hot, every byte of every run compared; "
                   "cpu_seconds with set-up and checks";
        report_.add(std::move(row));
    }

    // Each block reads its own part, from an empty cache; library defaults except for `options`.
    [[nodiscard]] Run reader(const GpuCase& chosen, FileSystemOptions options) const {
        options.page_size = chosen.page_size;
        return [this, chosen, options](GpuRig& rig) {
            rig.open(options);
            const double seconds = rig.read(chosen, read_parts, 1, false);
            rig.count_wrong_state(rig.statistics().bytes_read >= file_.size());
            return seconds;
        };
    }

    [[nodiscard]] bool takes(const std::string& name) const { return wanted(arguments_, name); }
    [[nodiscard]] const TestFile& file() const { return file_; }
    [[nodiscard]] const Arguments& arguments() const { return arguments_; }

private:
    Report& report_;
    const Arguments& arguments_;
    const Device& device_;
    const TestFile& file_;
};

FileSystemOptions original() {
    FileSystemOptions options;
    options.readahead = Readahead::kSeed;
    options.replacement = Replacement::kGlobalLra;
    return options;
}

void measure_sequential(HotRows& rows, const GpuCase& chosen) {
    const uint64_t size = rows.file().size();
    const std::string note = describe(chosen) + ", each block its own part, library defaults";
    const HotRows::Run ours = rows.reader(chosen, {});
    rows.compare(chosen.name, "pinned-h2d", size, note, ours,
                 [](GpuRig& rig) { return rig.copy_pinned(); });
    if (chosen.sweep) return;
    rows.compare(chosen.name, "seed-4k", size, note, ours, rows.reader(chosen, original()));
    rows.compare(chosen.name, "cpu-read-then-copy", size, note, ours,
                 [](GpuRig& rig) { return rig.read_then_copy(); });
}

std::string describe(const SectionShape& shape) {
    return std::to_string(shape.threads) + " threads, sections of " +
           std::to_string(shape.size >> 20) + " MiB";
}

// Returns the fastest section pipeline, from runs that do not count.
SectionShape best_sections(GpuRig& rig, uint64_t bytes, unsigned cpus, bool smoke) {
    constexpr int kRuns = 3;
    SectionShape best;
    double best_seconds = 0;
    for (const unsigned threads : {cpus * 5 / 8, cpus * 3 / 4, cpus * 7 / 8, cpus}) {
        for (const uint64_t size : {4, 8, 16}) {
            const SectionShape shape{std::max(1u, threads), size << 20};
            double seconds[kRuns];
            for (double& one : seconds) one = rig.send_sections(shape);
            std::sort(seconds, seconds + kRuns);
            tell(("trial: " + describe(shape)).c_str(), bytes, seconds[kRuns / 2]);
            if (best_seconds != 0 && seconds[kRuns / 2] >= best_seconds) continue;
            best_seconds = seconds[kRuns / 2];
            best = shape;
            if (smoke) return best;
        }
    }
    return best;
}

void measure_limits(HotRows& rows, const Device& device, const GpuCase& chosen) {
    const uint64_t size = rows.file().size();
    const unsigned cpus = std::clamp(std::thread::hardware_concurrency(), 1u, 64u);
    const unsigned threads = std::max(cpus, SectionShape::kPlaces);
    const HotRows::Run pinned = [](GpuRig& rig) { return rig.copy_pinned(); };
    for (const bool rested : {false, true}) {
        const std::string plain = rested ? "plain-sections-rested" : "plain-sections";
        const std::string own = rested ? "host-read-rested" : "host-read";
        if (!rows.takes(plain) && !rows.takes(own)) continue;
        const Conditions found{threads, rested ? kRest : std::chrono::milliseconds{0}};
        SectionShape shape;
        {
            GpuRig rig(device, rows.file(), threads);
            rig.rest_before_runs(found.rest);
            shape = best_sections(rig, size, cpus, rows.arguments().smoke);
        }
        const std::string note = rested ? ", each run behind a rest of 50 ms" : "";
        const HotRows::Run send = [shape](GpuRig& rig) { return rig.send_sections(shape); };
        if (rows.takes(plain)) {
            rows.compare(plain, "pinned-h2d", size, describe(shape) + ", the best of twelve" + note,
                         send, pinned, found);
        }
        rows.compare(
            own, plain, size, "one call of File::read, library defaults" + note,
            [](GpuRig& rig) { return rig.read_by_host(); }, send, found);
    }
    if (!rows.takes("plain-pull")) return;
    const unsigned readers = std::max(1u, cpus * 3 / 4);
    const HotRows::Run pull = [&](GpuRig& rig) { return rig.pull_beside_reads(chosen, readers); };
    const std::string note = describe(chosen) + ", beside " + std::to_string(readers) +
                             " threads that read as much";
    rows.compare("plain-pull", "pinned-h2d", size, note, pull, pinned, {readers});
    rows.compare(chosen.name, "plain-pull", size, note, rows.reader(chosen, {}), pull, {readers});
}

void measure_replacement(HotRows& rows, GpuCase chosen) {
    chosen.name = "twice-the-cache";
    if (!rows.takes(chosen.name)) return;
    const uint64_t size = rows.file().size();
    const std::string note = describe(chosen) + ", each block its own part";
    FileSystemOptions half;
    half.cache_size = size / 2;
    FileSystemOptions half_original = original(), half_lra = half;
    half_original.cache_size = half_lra.cache_size = half.cache_size;
    half_lra.replacement = Replacement::kGlobalLra;
    const HotRows::Run ours = rows.reader(chosen, half);
    rows.compare(chosen.name, "inside-the-cache", size, note, ours, rows.reader(chosen, {}));
    rows.compare(chosen.name, "global-lra-4k", size, note + "; baseline as the original", ours,
                 rows.reader(chosen, half_original));
    rows.compare(chosen.name, "global-lra-4k+readahead", size, note, ours,
                 rows.reader(chosen, half_lra));
}

// Returns the fastest shape of the pool, from runs that do not count.
PoolShape best_shape(GpuRig& rig, unsigned threads, uint64_t count, bool smoke) {
    constexpr int kRuns = 3;
    PoolShape best;
    double best_seconds = 0;
    for (const unsigned some : {std::max(1u, threads / 2), threads}) {
        for (const uint64_t batch : {64, 256, 1024}) {
            double seconds[kRuns];
            for (double& one : seconds) one = rig.pool({some, batch}, count, 1);
            std::sort(seconds, seconds + kRuns);
            if (best_seconds != 0 && seconds[kRuns / 2] >= best_seconds) continue;
            best_seconds = seconds[kRuns / 2];
            best = {some, batch};
            if (smoke) return best;
        }
    }
    return best;
}

void measure_random(HotRows& rows, const Device& device, const GpuCase& chosen) {
    const uint64_t count = rows.file().size() / 4 / 4096;
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 64u);
    PoolShape shape;
    {
        GpuRig rig(device, rows.file(), threads);
        shape = best_shape(rig, threads, count, rows.arguments().smoke);
    }
    uint64_t seed = 0;
    rows.compare(
        chosen.name, "preadv-pool-batched-copy", count * 4096,
        describe(chosen) + ", " + std::to_string(count) +
            " at random; the pool: " + std::to_string(shape.threads) + " threads, copies of " +
            std::to_string(shape.batch * 4) + " KiB, the best of six",
        [&](GpuRig& rig) {
            FileSystemOptions options;
            options.page_size = chosen.page_size;
            rig.open(options);
            return rig.read_random(chosen, count, ++seed * 1'000'003);
        },
        [&](GpuRig& rig) { return rig.pool(shape, count, seed * 1'000'003); }, {threads});
}

}  // namespace

void measure_gpu_readahead(Report& report, const Arguments& arguments, const Device& device,
                           const TestFile& file) {
    constexpr uint64_t kKiB = 1 << 10;
    HotRows rows(report, arguments, device, file);
    const GpuCase main{"sequential-4k+readahead", 4096, 64 * kKiB, 264, 256};
    for (const GpuCase& chosen :
         {main, GpuCase{"sequential-4k+readahead-128-blocks", 4096, 64 * kKiB, 128, 256, true},
          GpuCase{"sequential-4k+readahead-1056-blocks", 4096, 64 * kKiB, 1056, 64, true},
          GpuCase{"sequential-4k+readahead-4k-requests", 4096, 4 * kKiB, 1056, 32, true},
          GpuCase{"sequential-4k+readahead-256k-requests", 4096, 256 * kKiB, 264, 256, true},
          GpuCase{"sequential-4k+readahead-1m-requests", 4096, 1024 * kKiB, 264, 256, true}}) {
        if (rows.takes(chosen.name) && (!chosen.sweep || arguments.full))
            measure_sequential(rows, chosen);
    }
    measure_limits(rows, device, main);
    measure_replacement(rows, main);
    for (const GpuCase& chosen : {GpuCase{"random-4k", 4096, 4 * kKiB, 2112, 32},
                                  GpuCase{"random-4k-528-blocks", 4096, 4 * kKiB, 528, 32, true}}) {
        if (rows.takes(chosen.name) && (!chosen.sweep || arguments.full))
            measure_random(rows, device, chosen);
    }
}

}  // namespace penstock::bench
