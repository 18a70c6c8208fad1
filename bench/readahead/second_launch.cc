#include <algorithm>
#include <set>

#include "base/units.h"
#include "bench/readahead/cases.h"
#include "bench/readahead/scattered.h"

namespace penstock::bench {
namespace {

// Launches of one kernel on one file system.
class Launches {
public:
    Launches(WalkDevice& device, const TestFile& file)
        : device_(device),
          fs_(need(FileSystem::create(device.device(),
                                      with_pages(4096, 16 * base::kMiB, Readahead::kAuto)),
                   "file system")),
          file_(need(fs_.open(file.path()), "open")) {}

    struct Launch {
        uint64_t pages = 0;    // different pages that the launch read
        uint64_t missed = 0;   // pages neither cached nor requested at their read
        uint64_t learned = 0;  // pages that were requested before it began
        bool right = true;
    };
    // From an empty page cache.
    Launch run(unsigned blocks) {
        Stream& stream = device_.stream();
        WalkJob job{fs_.device_handle(), {}, device_.buffers(), 4096, device_.result()};
        job.walks[0].file = file_;
        need(launch(stream, {{1}, {32}}, forget_file, fs_.device_handle(), file_), "launch");
        need(stream.fill(device_.result(), 0, 16), "fill");
        need(stream.synchronize(), "fill");
        const FileSystemStatistics before = fs_.statistics();
        need(launch(stream, {{blocks}, {device_.threads()}}, read_scattered, job), "launch");
        need(stream.synchronize(std::chrono::minutes(10)), "kernel");
        const FileSystemStatistics after = fs_.statistics();
        unsigned long long result[2];
        need(stream.copy(result, device_.result(), sizeof result), "copy");
        need(stream.synchronize(), "copy");
        std::set<uint64_t> pages;
        for (unsigned block = 0; block < blocks; ++block) {
            for (unsigned i = 0; i < kScatteredReads; ++i) pages.insert(scattered_page(block, i));
        }
        Launch done;
        done.pages = pages.size();
        done.learned = after.pages.learned - before.pages.learned;
        done.missed = after.demanded_pages - before.demanded_pages - done.learned;
        done.right = result[0] == 0 && result[1] == uint64_t{blocks} * kScatteredReads * 4096;
        return done;
    }

private:
    WalkDevice& device_;
    FileSystem fs_;
    Descriptor file_;
};

}  // namespace

void measure_second_launch(WalkDevice& device, Report& report, const Arguments& arguments) {
    constexpr unsigned kBlocks = 64;
    Row row;
    row.name = "second-launch-first-miss";
    row.against = "no-miss";
    row.unit = "share";
    if (!wanted(arguments, row.name)) return;
    const TestFile file(16 * base::kMiB);
    Launches launches(device, file);
    const Launches::Launch first = launches.run(kBlocks);
    row.verified = first.right && first.learned == 0 && first.missed == first.pages;
    double worst = 1;
    for (const unsigned blocks : {kBlocks, kBlocks / 4, kBlocks * 5 / 4}) {
        const Launches::Launch next = launches.run(blocks);
        worst = std::min(worst,
                         1 - static_cast<double>(next.missed) / static_cast<double>(next.pages));
        row.verified = row.verified && next.right;
    }
    row.pairs = {{worst, 1.0}};
    row.bytes = first.pages * 4096;
    row.note = std::to_string(kBlocks) + " blocks that read " + std::to_string(kScatteredReads) +
               " pages each, by their number, in an order that no window follows; the GPU's cache "
               "emptied before every launch; the worst of a second launch of " +
               std::to_string(kBlocks) + " blocks and later ones of " +
               std::to_string(kBlocks / 4) + " and " + std::to_string(kBlocks * 5 / 4);
    report.add(std::move(row));
}

}  // namespace penstock::bench
