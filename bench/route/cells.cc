#include "bench/route/cells.h"

#include <cstddef>

#include "base/prng.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

constexpr uint64_t kSeed = 4;
constexpr uint64_t kShortRun = 4 * kMiB;
constexpr uint64_t kLongRun = 64 * kMiB;
constexpr uint64_t kRequestSizes[] = {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};

std::string size_name(uint64_t size) {
    return size >= kMiB ? std::to_string(size / kMiB) + "m" : std::to_string(size / kKiB) + "k";
}

std::vector<Pattern> patterns() {
    std::vector<Pattern> list = {{0, 0}, {100, 0}};
    for (const uint64_t run_size : {kShortRun, kLongRun, kCachePage}) {
        for (const unsigned percent : {25u, 50u, 75u}) list.push_back({percent, run_size});
    }
    return list;
}

// Cells of a default run: all aligned cells that a row is named for; of the others one share (half)
// and the sizes on both sides of the size where planning begins.
bool by_default(const Cell& cell) {
    const Pattern& pattern = cell.pattern;
    const uint64_t size = cell.request_size;
    const bool half = !pattern.mixed() || pattern.cached_percent == 50;
    const bool in_pages = pattern.run_size == kCachePage;
    if (cell.capped) {
        if (!half || pattern.hot() || pattern.run_size == kLongRun) return false;
        if (cell.shifted) return !pattern.mixed() && size == 16 * kMiB;
        if (in_pages || !pattern.mixed()) return size == kMiB;
        return size == 64 * kKiB || size == 16 * kMiB;
    }
    if (!cell.shifted) return half || (size >= kMiB && !in_pages) || size == kMiB;
    if (pattern.mixed()) {
        return half && pattern.run_size != kLongRun && (size == 64 * kKiB || size == 16 * kMiB);
    }
    return size == kMiB || size == (pattern.hot() ? 64 * kKiB : 16 * kMiB);
}

bool in_smoke(const Cell& cell) {
    const Pattern& pattern = cell.pattern;
    if (cell.capped) return !cell.shifted && pattern == Pattern{} && cell.request_size == kMiB;
    if (cell.shifted) return pattern.hot() && cell.request_size == 64 * kKiB;
    if (pattern.mixed()) return pattern.cached_percent == 50 && cell.request_size == 16 * kMiB;
    return cell.request_size == kMiB || (pattern.hot() && cell.request_size == 64 * kKiB);
}

// Sample of the file: in each of `quarters` quarters, stretches of `length` at `count` places, a
// short run apart.
struct Sample {
    uint64_t quarters, count, length;
};

Sample sample(const Cell& cell) {
    constexpr uint64_t kPlaces = 4;  // the short runs of 16 MiB
    // The block layer passes a tenth of a second's bytes at once, so runs are longer than that.
    switch (cell.request_size) {
        case 4 * kKiB:
            return {4, kPlaces, cell.capped ? kMiB : 256 * kKiB};
        case 64 * kKiB:
            return {4, kPlaces, cell.capped ? 4 * kMiB : kMiB};
        case kMiB:
            return {4, kPlaces, 4 * kMiB};
        case 16 * kMiB:
            return {4, 1, 16 * kMiB};
        default:
            return {cell.pattern.run_size == kLongRun ? 4u : 2u, 1, kLongRun};
    }
}

}  // namespace

std::string name(const Cell& cell) {
    const Pattern& pattern = cell.pattern;
    std::string text = cell.capped ? "capped-" : "";
    if (pattern.mixed()) {
        text += "mixed" + std::to_string(pattern.cached_percent) + "-";
        text += pattern.run_size == kCachePage ? "pages" : "runs" + size_name(pattern.run_size);
    } else {
        text += pattern.hot() ? "hot" : "cold";
    }
    return text + "-" + size_name(cell.request_size) + (cell.shifted ? "+13" : "");
}

std::vector<Cell> route_cells(bool full, bool smoke) {
    std::vector<Cell> cells;
    for (const bool capped : {false, true}) {
        for (const Pattern& pattern : patterns()) {
            for (const bool shifted : {false, true}) {
                for (const uint64_t size : kRequestSizes) {
                    const Cell cell{pattern, size, shifted, capped};
                    if (smoke ? in_smoke(cell) : full || by_default(cell)) cells.push_back(cell);
                }
            }
        }
    }
    return cells;
}

size_t route_cell_count() { return 2 * patterns().size() * 2 * std::size(kRequestSizes); }

PageMap cached_pages(const Pattern& pattern) {
    PageMap map((kRouteFileSize + kRouteFileTail) / kCachePage, pattern.hot() ? 1 : 0);
    if (!pattern.mixed()) return map;
    constexpr size_t kPages = kRouteFileSize / kCachePage;
    if (pattern.run_size == kCachePage) {
        base::Prng random(kSeed);
        for (size_t i = 0; i < kPages; ++i) map[i] = random.below(100) < pattern.cached_percent;
        return map;
    }
    mark_runs(&map, kPages, pattern.run_size / kCachePage, pattern.cached_percent / 25, kSeed);
    return map;
}

std::vector<ReadRequest> pass_requests(const Cell& cell) {
    const Sample chosen = sample(cell);
    std::vector<ReadRequest> requests;
    uint64_t place = 0;
    for (uint64_t quarter = 0; quarter < chosen.quarters; ++quarter) {
        for (uint64_t i = 0; i < chosen.count; ++i) {
            const uint64_t first = quarter * (kRouteFileSize / 4) + i * kShortRun;
            for (uint64_t at = 0; at < chosen.length; at += cell.request_size) {
                requests.push_back({first + at + (cell.shifted ? kShift : 0), place});
                place += cell.request_size;
            }
        }
    }
    return requests;
}

// A hot run lasts about 50 ms (10 ms with 4 KiB a request). A shorter run may or may not share the
// CPU with another process, so that its pairs differ by a fifth of their median.
unsigned passes(const Cell& cell) {
    if (!cell.pattern.hot()) return 1;
    switch (cell.request_size) {
        case 4 * kKiB:
            return 16;
        case 64 * kKiB:
            return 32;
        case 64 * kMiB:
            return 4;
        default:
            return 8;
    }
}

}  // namespace penstock::bench
