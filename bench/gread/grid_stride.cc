// Grid-stride reading: block b reads pieces b, b + grid, ... of a file, library defaults.
//
// Baseline: the same file with each block in its own contiguous part. Other rows show how many
// bytes are requested of storage, and whether the default page size suits random reads.
#include "bench/gread/grid_stride.h"

#include <algorithm>
#include <memory>

#include "base/units.h"
#include "bench/gread/gpu_rig.h"
#include "bench/harness/walk_rig.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

constexpr unsigned kThreads = 32;
constexpr const char* kBytesName = "grid-stride-bytes";
constexpr uint64_t kPieces[] = {4 * kKiB, 16 * kKiB, 64 * kKiB};

std::string name_of(uint64_t piece) { return "grid-stride-" + std::to_string(piece / kKiB) + "k"; }

Walk grid_walk(const WalkDevice& device, const TestFile& file, uint64_t piece) {
    Walk walk;
    walk.share = walk.size = piece;
    walk.step = static_cast<int64_t>(device.blocks() * piece);
    walk.count = file.size() / piece / device.blocks();
    return walk;
}

// Runs one walk on its own file system, with defaults except for the cache's size.
WalkRunner reader(WalkDevice& device, const TestFile& file, const Walk& walk) {
    FileSystemOptions options;
    options.cache_size = file.size() / 2;
    auto system = std::make_shared<WalkSystem>(device, options,
                                               std::vector<const TestFile*>{&file});
    return [&file, system, walk, page = options.page_size](bool* right) {
        const WalkRun run = system->run({walk});
        *right = *right && run.right && run.read_all(file.size(), page);
        return run.seconds;
    };
}

// Bytes that kernels requested, and bytes that were requested of storage.
struct BytesRead {
    uint64_t asked = 1, read = 1;

    [[nodiscard]] double share() const {
        return static_cast<double>(asked) / static_cast<double>(read);
    }
};

// Returns the row of the piece size for which most bytes were read.
class BytesRow {
public:
    explicit BytesRow(const TestFile& file) {
        row_.name = kBytesName;
        row_.against = "bytes-asked";
        row_.unit = "B";
        row_.bytes = file.size();
        row_.verified = true;
    }
    void take(uint64_t piece, const BytesRead& bytes, bool right) {
        row_.verified = row_.verified && right;
        row_.note += name_of(piece) + ": " + std::to_string(bytes.share()) + "; ";
        if (!taken_ || bytes.share() < worst_.share()) worst_ = bytes;
        taken_ = true;
    }
    void report(Report& report) {
        if (!taken_) return;
        row_.pairs = {{static_cast<double>(worst_.read), static_cast<double>(worst_.asked)}};
        row_.note += "bytes that kernels asked for over bytes read from storage; the worst counts";
        report.add(std::move(row_));
    }

private:
    Row row_;
    BytesRead worst_;
    bool taken_ = false;
};

// Returns the counts of one run from an empty cache.
BytesRead bytes_of(WalkDevice& device, const TestFile& file, uint64_t piece, bool* right) {
    FileSystemOptions options;
    options.cache_size = file.size() / 2;
    WalkSystem system(device, options, {&file});
    const Walk walk = grid_walk(device, file, piece);
    const WalkRun run = system.run({walk});
    *right = *right && run.right;
    return {walk.count * device.blocks() * piece, run.storage_bytes()};
}

void measure_bytes(WalkDevice& device, Report& report, const TestFile& file) {
    BytesRow row(file);
    for (const uint64_t piece : kPieces) {
        bool right = file.make_hot();
        const BytesRead bytes = bytes_of(device, file, piece, &right);
        row.take(piece, bytes, right);
    }
    row.report(report);
}

WalkRunner random_reader(WalkDevice& device, const TestFile& file, uint64_t* seed,
                         const FileSystemOptions& options) {
    // Created for each run, so that both of a pair use the same memory.
    return [&device, &file, seed, options](bool* right) {
        WalkSystem system(device, options, {&file});
        Walk walk;
        walk.size = 4 * kKiB;
        walk.count = file.size() / 16 / walk.size / device.blocks();
        walk.random_pages = file.size() / walk.size;
        walk.seed = *seed / 2 * 1'000'003;  // both of a pair read the same
        ++*seed;
        const WalkRun run = system.run({walk});
        *right = *right && run.right;
        return run.seconds;
    };
}

void measure_random(WalkDevice& device, Report& report, const Arguments& arguments,
                    const TestFile& file) {
    constexpr int kTrials = 3;
    FileSystemOptions defaults;
    defaults.cache_size = file.size() / 8;
    FileSystemOptions best = defaults;
    double best_seconds = 0;
    bool right = file.make_hot();
    for (const uint64_t page : {4 * kKiB, 16 * kKiB, 64 * kKiB}) {
        FileSystemOptions options = defaults;
        options.page_size = static_cast<uint32_t>(page);
        uint64_t seed = 2;
        const WalkRunner run = random_reader(device, file, &seed, options);
        double seconds[kTrials];
        for (double& one : seconds) one = run(&right);
        std::sort(seconds, seconds + kTrials);
        if (best_seconds != 0 && seconds[kTrials / 2] >= best_seconds) continue;
        best_seconds = seconds[kTrials / 2];
        best = options;
    }
    if (!right) fail("random reads: wrong bytes in a trial");
    uint64_t seed = 0;
    const std::string note =
        "4 KiB reads at random, cache an eighth of the file, hot; best of 4, "
        "16 and 64 KiB in trials: " +
        std::to_string(best.page_size / kKiB) + " KiB";
    compare(report, arguments,
            {"random-4k-defaults", "random-4k-best-page", note, file.size() / 16},
            random_reader(device, file, &seed, defaults), random_reader(device, file, &seed, best),
            [&] { return file.make_hot(); });
}

}  // namespace

void measure_grid_stride(Report& report, const Arguments& arguments) {
    const auto any = {"grid-stride-4k", "grid-stride-16k", "grid-stride-64k", kBytesName,
                      "random-4k-defaults"};
    if (std::none_of(any.begin(), any.end(),
                     [&](const char* name) { return wanted(arguments, name); }))
        return;
    WalkDevice device(arguments.device, {}, {walk_file, walk_files, forget_file}, 0, kThreads,
                      kMiB);
    const TestFile file((arguments.smoke ? 16 : 512) * kMiB);
    for (const uint64_t piece : kPieces) {
        if (!wanted(arguments, name_of(piece))) continue;
        const std::string note = std::to_string(device.blocks()) + " blocks of " +
                                 std::to_string(kThreads) +
                                 " GPU threads, library defaults, file twice the cache, hot; "
                                 "baseline: 64 KiB reads, each block its own part";
        compare(report, arguments, {name_of(piece), "own-parts-64k", note, file.size()},
                reader(device, file, grid_walk(device, file, piece)),
                reader(device, file, sequential_walk(device, file, 64 * kKiB)),
                [&] { return file.make_hot(); });
    }
    if (wanted(arguments, kBytesName)) measure_bytes(device, report, file);
    if (wanted(arguments, "random-4k-defaults")) measure_random(device, report, arguments, file);
}

void measure_gpu_grid_stride(Report& report, const Arguments& arguments, const Device& device,
                             const TestFile& file) {
    BytesRow bytes(file);
    for (const uint64_t piece : kPieces) {
        const std::string name = name_of(piece);
        if (!wanted(arguments, name) && !wanted(arguments, kBytesName)) continue;
        const GpuCase ours{name.c_str(), FileSystemOptions().page_size, piece, 264, 256};
        const GpuCase parts{"sequential-4k+readahead", 4096, 64 * kKiB, 264, 256};
        GpuRig rig(device, file);
        FileSystemOptions options;
        options.cache_size = file.size() / 2;
        BytesRead worst{0, 0};
        const auto run = [&](const GpuCase& chosen, GpuRig::ReadKernel kernel) {
            rig.open(options);
            const double seconds = rig.read(chosen, kernel, 1, false);
            if (kernel == read_in_place) {
                const BytesRead now{file.size(), rig.statistics().bytes_read};
                if (worst.read == 0 || now.share() < worst.share()) worst = now;
            }
            return tell(chosen.name, file.size(), seconds);
        };
        Row row;
        row.name = name;
        row.against = parts.name;
        row.bytes = file.size();
        row.pairs = take_pairs(
            wanted(arguments, name) ? arguments.pairs : 1, [&] { return run(ours, read_in_place); },
            [&] { return run(parts, read_parts); }, &row.cpu_seconds,
            [&] { rig.count_wrong_state(file.make_hot()); });
        row.verified = rig.bytes_right();
        row.simulated = device.simulated();
        row.note = describe(ours) + ", library defaults, file twice the cache, hot";
        bytes.take(piece, worst, rig.bytes_right());
        if (wanted(arguments, name)) report.add(std::move(row));
    }
    if (wanted(arguments, kBytesName)) bytes.report(report);
}

}  // namespace penstock::bench
