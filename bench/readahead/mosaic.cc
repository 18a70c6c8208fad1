#include <algorithm>

#include "base/units.h"
#include "bench/readahead/cases.h"

namespace penstock::bench {
namespace {

using base::kGiB;
using base::kKiB;
using base::kMiB;

// A picture of `picture` bytes, and tiles for its collage.
class Mosaic {
public:
    Mosaic(WalkDevice& device, uint64_t picture, uint64_t tiles)
        : device_(device), picture_(picture), tiles_(tiles) {
        (void)make_hot();
    }

    // Page size and readahead of the file system of both files.
    WalkRunner runner(uint32_t page_size, Readahead readahead) {
        const uint64_t cache = tiles_.size() / 16;
        auto system = std::make_shared<WalkSystem>(
            device_, with_pages(page_size, cache, readahead),
            std::vector<const TestFile*>{&picture_, &tiles_});
        return [this, system](bool* right) {
            const Walk picture = sequential_walk(device_, picture_, 4 * kKiB);
            Walk tiles = picture;
            tiles.share = 0;
            tiles.step = 0;
            tiles.random_pages = tiles_.size() / 4096;
            tiles.seed = seed_;
            const WalkRun run = system->run({picture, tiles});
            *right = *right && run.right;
            return run.seconds;
        };
    }
    // The next runs use other tiles.
    void choose_tiles() { seed_ += 1'000'003; }
    [[nodiscard]] bool make_hot() const { return picture_.make_hot() && tiles_.make_hot(); }
    [[nodiscard]] uint64_t bytes() const { return 2 * picture_.size(); }

private:
    WalkDevice& device_;
    const TestFile picture_, tiles_;
    uint64_t seed_ = 0;
};

}  // namespace

void measure_mosaic(WalkDevice& device, Report& report, const Arguments& arguments) {
    const std::string name = "mosaic-mixed";
    if (!wanted(arguments, name)) return;
    Mosaic mosaic(device, (arguments.smoke ? 4 : 64) * kMiB,
                  arguments.smoke ? 64 * kMiB : 2 * kGiB);
    const std::string note =
        "a picture of 64 MiB in 4 KiB reads, a tile of 4 KiB at random from 2 GiB for each, hot; "
        "cache a sixteenth of the tiles";
    const WalkRunner ours = mosaic.runner(4096, Readahead::kAuto);
    const WalkRunner small = mosaic.runner(4096, Readahead::kOff);
    const WalkRunner large = mosaic.runner(64 * kKiB, Readahead::kOff);
    const WalkRunner original = mosaic.runner(4096, Readahead::kSeed);
    const auto next = [&](bool* right) {
        mosaic.choose_tiles();
        return ours(right);
    };
    const auto hot = [&] { return mosaic.make_hot(); };
    compare(
        report, arguments,
        {name, "better-of-4k-and-64k", note + "; baselines without readahead", mosaic.bytes()},
        next, [&](bool* right) { return std::min(small(right), large(right)); }, hot);
    compare(report, arguments, {name, "pages-4k-off", note, mosaic.bytes()}, next, small, hot);
    compare(report, arguments, {name, "pages-64k-off", note, mosaic.bytes()}, next, large, hot);
    compare(report, arguments, {name, "seed-4k", note, mosaic.bytes()}, next, original, hot);
}

}  // namespace penstock::bench
