// Replays random streams with the detector and readahead together, and without them, and counts the
// bytes that storage delivers. The cache (64 MiB) is the same in both, so its hits are no gain. A
// prefetch is a loss if it is never used, or was evicted before its use.
#include "bench/detector/random_streams.h"

#include <algorithm>
#include <string>
#include <utility>

#include "readahead/recordings_fixture.h"
#include "readahead/siblings.h"

namespace penstock::bench {
namespace {

using namespace readahead;

Recording uniform(uint64_t seed, uint64_t blocks, size_t count) {
    base::Prng prng(seed);
    std::vector<access::Access> all;
    for (size_t i = 0; i < count; ++i)
        all.push_back({static_cast<int64_t>(prng.below(blocks)) * 4096, 4096});
    return recording_of(("uniform over " + std::to_string(blocks)).c_str(), all, 50'000);
}

Figures replay(const Recording& recording, Policy policy, uint64_t seed) {
    Setting setting;
    setting.seed = seed;
    Siblings siblings;
    return simulate(recording, policy, setting,
                    [&](uint64_t stream) { return siblings.begin(stream); });
}

struct Loss {
    uint64_t read = 0, asked = 0;

    void add(const Recording& recording, uint64_t seed) {
        read += replay(recording, Policy::kPenstock, seed).read_size;
        asked += replay(recording, Policy::kNone, seed).read_size;
    }
};

}  // namespace

void measure_random(Report& report, const Arguments& arguments) {
    const size_t count = arguments.smoke ? 2000 : 20'000;
    Row row;
    row.name = "random-extra-bytes";
    for (uint64_t seed = 1; seed <= arguments.pairs; ++seed) {
        Loss loss;
        for (const Recording& recording :
             {uniform(seed, uint64_t{1} << 30, count), uniform(seed, 50'000, count),
              uniform(seed, 1000, count), uniform(seed, 64, count), shuffled(seed), zipf(seed)}) {
            loss.add(recording, seed);
        }
        row.pairs.emplace_back(loss.read, loss.asked);
        row.bytes = loss.read;
    }
    row.note = "uniform over 2^30, 50000, 1000 and 64 blocks of 4 KiB, shuffled, Zipf";
    row.against = "bytes-asked";
    row.unit = "B";
    row.verified = true;  // the replay ends only if every fetch and every byte is accounted for
    report.add(std::move(row));
}

}  // namespace penstock::bench
