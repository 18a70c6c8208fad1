// Question: what do windows of readahead and rings of frames gain for kernels that read with 4 KiB
// pages?
//
// Workload: blocks read a file of known bytes, each its own part from start to end, in reads of 4
// or 64 KiB; at random, 4 KiB; at equal distances; or a picture from start to end with random tiles
// beside it (seed 000, sections 3.1, 6.1). Baselines: the same kernel with the original's way of
// reading (pages are requested one by one, and none are merged), without readahead, with 64 KiB
// pages, and with a cache that holds the whole file; pread into frames and memcpy out of them, with
// as many threads as permits (the least work of any system that keeps read bytes); and, for a file
// that the OS has not cached, four threads of pread. Every run begins with an empty GPU page cache.
// What the library learns of a kernel in one run it uses in the next, as for any program. Not
// measured: several kernels at once, network file systems.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "base/units.h"
#include "bench/harness/crew.h"
#include "bench/harness/walk_rig.h"
#include "bench/readahead/cases.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

constexpr const char* kQuestion =
    "what do windows of readahead and rings of frames buy kernels that read with 4 KiB pages?";

// Reads the file's parts by as many threads as permits: each piece by pread into the next frames of
// a region of the device's memory of `cache_size` bytes, and memcpy from there.
class TwoCopies {
public:
    TwoCopies(WalkDevice& device, const TestFile& file, uint64_t cache_size)
        : device_(device),
          file_(file),
          size_(cache_size),
          frames_(static_cast<unsigned char*>(
              need(device.device().allocate(cache_size), "frames of the limit"))),
          crew_(device.blocks()) {
        std::memset(frames_, 0, size_);
    }
    ~TwoCopies() { device_.device().free(frames_); }
    TwoCopies(const TwoCopies&) = delete;
    TwoCopies& operator=(const TwoCopies&) = delete;

    double run(bool* right) {
        constexpr uint64_t kPiece = 64 * kKiB;
        const unsigned threads = device_.blocks();
        const uint64_t share = file_.size() / threads / kPiece * kPiece;
        const uint64_t region = size_ / threads / kPiece * kPiece;
        std::atomic<uint64_t> wrong{0};
        const double seconds = timed([&] {
            crew_.run(threads, [&](unsigned thread) {
                unsigned char* buffer = device_.buffers() + thread * kMiB;
                uint64_t mine = 0;
                for (uint64_t at = 0; at < share; at += kPiece) {
                    const uint64_t offset = thread * share + at;
                    unsigned char* frame = frames_ + thread * region + at % region;
                    mine += pread(file_.descriptor(), frame, kPiece, static_cast<off_t>(offset)) !=
                            static_cast<ssize_t>(kPiece);
                    std::memcpy(buffer, frame, kPiece);
                    mine += count_wrong(buffer, offset, kPiece);
                }
                wrong += mine;
            });
        });
        *right = *right && wrong == 0;
        return seconds;
    }

private:
    WalkDevice& device_;
    const TestFile& file_;
    const uint64_t size_;
    unsigned char* const frames_;
    Crew crew_;
};

// Cases on one file that the OS has cached.
class HotFile {
public:
    HotFile(WalkDevice& device, Report& report, const Arguments& arguments, const TestFile& file)
        : device_(device), report_(report), arguments_(arguments), file_(file) {}

    void compare(const char* name, const char* against, const std::string& note,
                 const WalkRunner& one, const WalkRunner& other) {
        if (!wanted(arguments_, name)) return;
        bench::compare(report_, arguments_, {name, against, note, file_.size()}, one, other,
                       [&] { return file_.make_hot(); });
    }
    // Reads the whole file from storage, each block its own part.
    [[nodiscard]] WalkRunner reader(uint32_t page_size, uint64_t read_size, Readahead readahead,
                                    uint64_t cache_size, unsigned threads = kThreads) {
        auto system = std::make_shared<WalkSystem>(device_,
                                                   with_pages(page_size, cache_size, readahead),
                                                   std::vector<const TestFile*>{&file_});
        return [this, system, page_size, read_size, threads](bool* right) {
            const WalkRun run = system->run({sequential_walk(device_, file_, read_size)}, threads);
            *right = *right && run.right && run.read_all(file_.size(), page_size);
            return run.seconds;
        };
    }
    static constexpr unsigned kThreads = 32;

private:
    WalkDevice& device_;
    Report& report_;
    const Arguments& arguments_;
    const TestFile& file_;
};

void measure_sequential(WalkDevice& device, Report& report, const Arguments& arguments,
                        const TestFile& file) {
    const uint64_t cache = file.size() / 2;
    HotFile hot(device, report, arguments, file);
    TwoCopies copies(device, file, cache);
    const auto limit = [&](bool* right) { return copies.run(right); };
    const std::string where = ", file twice the cache, hot, each block its own part";
    const std::string four_note = "4 KiB reads" + where, sixty_four_note = "64 KiB reads" + where;
    {
        const WalkRunner four = hot.reader(4096, 4096, Readahead::kAuto, cache);
        hot.compare("4k-requests+readahead", "seed-4k", four_note, four,
                    hot.reader(4096, 4096, Readahead::kSeed, cache));
        hot.compare("4k-requests+readahead", "two-copy-limit", four_note, four, limit);
        hot.compare("4k-requests+readahead-128-threads", "two-copy-limit",
                    four_note + ", 128 GPU threads a block",
                    hot.reader(4096, 4096, Readahead::kAuto, cache, 128), limit);
    }
    const WalkRunner sixty_four = hot.reader(4096, 64 * kKiB, Readahead::kAuto, cache);
    hot.compare("pages-4k+readahead", "pages-64k", sixty_four_note, sixty_four,
                hot.reader(64 * kKiB, 64 * kKiB, Readahead::kOff, cache));
    hot.compare("pages-4k+readahead", "two-copy-limit", sixty_four_note, sixty_four, limit);
    hot.compare("pages-4k+readahead-128-threads", "two-copy-limit",
                sixty_four_note + ", 128 GPU threads a block",
                hot.reader(4096, 64 * kKiB, Readahead::kAuto, cache, 128), limit);
    hot.compare("pages-4k-off", "two-copy-limit", sixty_four_note,
                hot.reader(4096, 64 * kKiB, Readahead::kOff, cache), limit);
    hot.compare("twice-the-cache", "inside-the-cache",
                "64 KiB reads, 4 KiB pages, first touch, hot", sixty_four,
                hot.reader(4096, 64 * kKiB, Readahead::kAuto, file.size() + 16 * kMiB));
}

void measure_random(WalkDevice& device, Report& report, const Arguments& arguments,
                    const TestFile& file) {
    const uint64_t count = file.size() / 4 / 4096 / device.blocks();
    uint64_t seed = 0;
    const auto read = [&](Readahead readahead) -> WalkRunner {
        // Created for each run, so that both use the same memory: of two systems side by side, both
        // without readahead, the one created first is faster by 2 to 7 %.
        return [&device, &file, &seed, count, readahead](bool* right) {
            WalkSystem system(device, with_pages(4096, file.size() / 8, readahead), {&file});
            Walk walk;
            walk.size = 4096;
            walk.count = count;
            walk.random_pages = file.size() / 4096;
            walk.seed = seed++ / 2 * 1'000'003;  // both of a pair read the same
            const WalkRun run = system.run({walk});
            const double asked = static_cast<double>(count * device.blocks() * 4096);
            *right = *right && run.right &&
                     static_cast<double>(run.storage_bytes()) <= 1.02 * asked;
            return run.seconds;
        };
    };
    HotFile(device, report, arguments, file)
        .compare("random-4k+readahead", "random-4k",
                 "4 KiB reads at random, cache an eighth of the file, hot", read(Readahead::kAuto),
                 read(Readahead::kOff));
}

}  // namespace

FileSystemOptions with_pages(uint32_t page_size, uint64_t cache_size, Readahead readahead) {
    FileSystemOptions options;
    options.page_size = page_size;
    options.cache_size = cache_size;
    options.readahead = readahead;
    return options;
}

int run_all(const Arguments& arguments) {
    WalkDevice device(arguments.device, {}, {walk_file, walk_files, forget_file}, 0,
                      HotFile::kThreads, kMiB);
    if (!device.device().host_addressable())
        fail("two-copy-limit works in memory of the device, which must be host memory: use cpu");
    Report report("readahead", kQuestion, arguments);
    const uint64_t size = (arguments.smoke ? 16 : 512) * kMiB;
    report.describe("file", std::to_string(size / kMiB) + " MiB");
    report.describe("blocks", std::to_string(device.blocks()) + " of " +
                                  std::to_string(device.threads()) + " GPU threads");
    report.describe("memory of the device",
                    device.device().huge_pages() ? "on huge pages" : "no huge pages given");
    {
        const TestFile file(size);
        measure_sequential(device, report, arguments, file);
        measure_random(device, report, arguments, file);
    }
    measure_mosaic(device, report, arguments);
    measure_cold(device, report, arguments);
    measure_second_launch(device, report, arguments);
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
