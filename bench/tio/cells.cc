#include "bench/tio/cells.h"

#include <algorithm>
#include <array>

#include "base/prng.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

constexpr uint64_t kSeed = 3;
constexpr uint64_t kRunSize = 4 * kMiB;  // of what is cached in a mixed file
constexpr uint64_t kRandomReads = 256;   // of a thread, at most
constexpr std::array<uint64_t, 5> kSizes{512, 4 * kKiB, 64 * kKiB, 512 * kKiB, 8 * kMiB};
constexpr std::array<unsigned, 3> kPercents{0, 50, 100};

std::string size_name(uint64_t size) {
    if (size >= kMiB) return std::to_string(size / kMiB) + "m";
    return size >= kKiB ? std::to_string(size / kKiB) + "k" : std::to_string(size) + "b";
}

// Returns whether a default run has the cell: with 4 threads all (figures 4 and 5 of the seed,
// table 3), with 1 thread the cells of figures 1 and 5 and the half cached ones of 512 KiB and
// more.
bool by_default(const TioCell& cell) {
    if (cell.threads > 1) return true;
    if (!cell.random) return cell.cached_percent == 0;
    return cell.size == 512 || (cell.mixed() && cell.size >= 512 * kKiB);
}

bool in_smoke(const TioCell& cell) {
    if (cell.size == 512) return cell.hot() && cell.random && cell.threads == 1;
    return cell.size == 512 * kKiB && cell.random && cell.threads == 4;
}

template <class T>
void shuffle(std::vector<T>* values, base::Prng* random) {
    for (size_t left = values->size(); left > 1; --left)
        std::swap((*values)[left - 1], (*values)[random->below(left)]);
}

// Returns the offsets of `count` random reads that lie in one run each. In a mixed file half of
// these runs are cached.
std::vector<uint64_t> random_offsets(const TioCell& cell, unsigned thread, uint64_t count) {
    base::Prng random(kSeed + thread);
    const uint64_t slot_size = std::max(cell.size, kCachePage);
    std::vector<uint64_t> slots(kTioFileSize / slot_size);
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = i * slot_size;
    shuffle(&slots, &random);
    const PageMap map = tio_cached_pages(cell.cached_percent, thread);
    std::array<uint64_t, 2> room{count, count};  // missing, cached
    if (cell.mixed()) room = {count / 2, count - count / 2};
    std::vector<uint64_t> offsets;
    for (const uint64_t slot : slots) {
        uint64_t& left = room[map[slot / kCachePage]];
        if (left == 0 || offsets.size() == count) continue;
        --left;
        // A read smaller than a page is anywhere in its page.
        offsets.push_back(slot + random.below(slot_size / cell.size) * cell.size);
    }
    return offsets;
}

}  // namespace

std::string name(const TioCell& cell) {
    const std::string state = cell.mixed() ? "mixed50" : cell.hot() ? "hot" : "cold";
    return std::string(cell.random ? "random-" : "sequential-") + size_name(cell.size) + "-" +
           std::to_string(cell.threads) + "t-" + state;
}

std::vector<TioCell> tio_cells(bool full, bool smoke) {
    std::vector<TioCell> cells;
    for (const unsigned percent : kPercents) {
        for (const bool random : {false, true}) {
            for (const unsigned threads : {1u, kTioThreadsMax}) {
                for (const uint64_t size : kSizes) {
                    const TioCell cell{size, random, threads, percent};
                    if (smoke ? in_smoke(cell) : full || by_default(cell)) cells.push_back(cell);
                }
            }
        }
    }
    return cells;
}

size_t tio_cell_count() { return tio_cells(true, false).size(); }

PageMap tio_cached_pages(unsigned cached_percent, unsigned thread) {
    PageMap map(kTioFileSize / kCachePage, cached_percent == 100 ? 1 : 0);
    if (cached_percent == 50) mark_runs(&map, map.size(), kRunSize / kCachePage, 2, kSeed + thread);
    return map;
}

uint64_t tio_part_size(unsigned threads) { return threads == 1 ? kTioFileSize : kTioFileSize / 2; }

std::vector<TioRead> tio_reads(const TioCell& cell, unsigned thread) {
    // 16 MiB in order are enough for small reads, and half of them are cached in a mixed file.
    const uint64_t size_max = !cell.random && cell.size < 64 * kKiB ? 16 * kMiB
                                                                    : tio_part_size(cell.threads);
    uint64_t count = size_max / cell.size;
    if (cell.random) count = std::min(count, kRandomReads);
    std::vector<uint64_t> offsets;
    if (cell.random && cell.size <= kRunSize) {
        offsets = random_offsets(cell, thread, count);
    } else {
        for (uint64_t i = 0; i < count; ++i) offsets.push_back(i * cell.size);
        base::Prng random(kSeed + thread);
        if (cell.random) shuffle(&offsets, &random);
    }
    std::vector<TioRead> reads;
    for (const uint64_t offset : offsets) reads.push_back({offset, reads.size() * cell.size});
    return reads;
}

unsigned tio_passes(const TioCell& cell) {
    if (!cell.hot()) return 1;
    switch (cell.size) {
        case 512:
            return cell.random ? 128 : 1;
        case 4 * kKiB:
            return cell.random ? 64 : 4;
        case 64 * kKiB:
            return cell.random ? 8 : 2;
        default:
            return 2;
    }
}

}  // namespace penstock::bench
