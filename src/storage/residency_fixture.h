// Shared by tests of residency: a model of the page cache, and what a look at each of its pages
// gives.
//
// Only *_test.cc files include it.
#pragma once

#include <gtest/gtest.h>
#include <linux/magic.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "storage/residency.h"

namespace penstock::storage {

using extent::Extent;
using extent::Residency;
using extent::ResidencyRun;

inline constexpr uint64_t kPage = 4096;

struct PageState {
    bool cached = false, dirty = false, writeback = false;
};

// A page cache whose content and whose probes' behaviour the test sets.
class ModelCalls final : public ResidencyCalls {
public:
    explicit ModelCalls(size_t pages) : pages_(pages) {}

    std::vector<PageState>& pages() { return pages_; }

    int cachestat(int, const Extent& range, CacheCounts* out) override {
        ++cachestat_calls;
        EXPECT_FALSE(range.empty());
        if (cachestat_error != 0) return cachestat_error;
        *out = {};
        if (cachestat_zero) return 0;
        for (uint64_t i = range.offset / kPage; i <= (range.end() - 1) / kPage; ++i) {
            if (i >= pages_.size()) break;
            out->cached += pages_[i].cached;
            out->dirty += pages_[i].dirty;
            out->writeback += pages_[i].writeback;
        }
        return 0;
    }

    int mincore(int, uint64_t offset, std::span<unsigned char> map) override {
        EXPECT_EQ(offset % kPage, 0u);
        if (++mincore_calls == mincore_fails_at) return ENOMEM;
        if (mincore_error != 0) return mincore_error;
        for (size_t i = 0; i < map.size(); ++i) {
            const uint64_t page = offset / kPage + i;
            const bool there = page < pages_.size() && pages_[page].cached;
            map[i] = mincore_lies || there ? 0xfd : 0xfc;  // only bit 0 has a meaning
        }
        return 0;
    }

    int file_system(int, uint64_t* out) override {
        *out = magic;
        return 0;
    }

    uint64_t magic = EXT4_SUPER_MAGIC;
    int cachestat_error = 0, mincore_error = 0;
    bool cachestat_zero = false, mincore_lies = false;
    uint64_t mincore_fails_at = 0;
    uint64_t cachestat_calls = 0, mincore_calls = 0;

private:
    std::vector<PageState> pages_;
};

// A file of which only the size is used.
class SizedFile final : public File {
public:
    explicit SizedFile(uint64_t size, int descriptor = 0)
        : File(Identity{.size = size}, DirectAlignment{}, descriptor) {}
    Status stat(Identity* out) const override {
        *out = identity();
        return {};
    }
};

struct Probed {
    explicit Probed(size_t pages) : calls(pages), file(pages * kPage) {}
    // The model's rules must be set before this.
    ResidencyProbe probe() { return ResidencyProbe(file, calls); }

    ModelCalls calls;
    SizedFile file;
};

struct Told {
    ResidencyAnswer answer;
    std::vector<ResidencyRun> runs;
};

inline Told ask(ResidencyProbe& probe, const ResidencyQuestion& question, size_t room = 4096) {
    Told told;
    told.runs.resize(room);
    told.answer = probe.ask(question, told.runs);
    told.runs.resize(told.answer.runs);
    EXPECT_TRUE(
        covers(told.runs, {question.range.offset, told.answer.end - question.range.offset}));
    for (size_t i = 1; i < told.runs.size(); ++i) {
        EXPECT_NE(told.runs[i].state, told.runs[i - 1].state) << "neighbours of one state";
    }
    for (const ResidencyRun& run : told.runs) EXPECT_LE(run.resident_size, run.range.size);
    return told;
}

enum class Dirtiness : uint8_t { kTold, kNotTold };

// Grain by grain, from the pages themselves.
inline std::vector<ResidencyRun> reference(const std::vector<PageState>& pages, const Extent& range,
                                           uint64_t grain, Dirtiness dirtiness) {
    std::vector<ResidencyRun> runs(range.size / grain + 2);
    size_t count = 0;
    for (uint64_t at = range.offset; at < range.end();) {
        const uint64_t end = std::min((at / grain + 1) * grain, range.end());
        uint64_t total = 0, cached = 0, dirty = 0;
        for (uint64_t i = at / kPage; i <= (end - 1) / kPage; ++i, ++total) {
            if (i >= pages.size()) continue;
            cached += pages[i].cached;
            dirty += pages[i].dirty || pages[i].writeback;
        }
        ResidencyRun run{{at, end - at}, Residency::kMixed, std::min(cached * kPage, end - at - 1)};
        if (cached == total) run = {run.range, Residency::kCached, run.range.size};
        if (cached == 0) run = {run.range, Residency::kMissing, 0};
        if (dirty > 0 && dirtiness == Dirtiness::kTold) run.state = Residency::kDirty;
        EXPECT_TRUE(append_run(runs, &count, run));
        at = end;
    }
    runs.resize(count);
    return runs;
}

// Returns runs of random lengths. `dirty_share` of the cached pages are dirty, written back, or
// both.
inline void fill(std::vector<PageState>* pages, base::Prng* prng, double dirty_share) {
    const uint64_t run_max = uint64_t{1} << prng->next() % 8;
    for (size_t i = 0; i < pages->size();) {
        const bool cached = prng->next() % 2 != 0;
        for (uint64_t n = 1 + prng->next() % run_max; n > 0 && i < pages->size(); --n, ++i) {
            PageState& page = (*pages)[i];
            page = {.cached = cached};
            const double chance = static_cast<double>(prng->next() % 1000) / 1000;
            if (!cached || chance >= dirty_share) continue;
            page.dirty = prng->next() % 2 != 0;
            page.writeback = !page.dirty || prng->next() % 2 != 0;
        }
    }
}

inline Extent random_range(base::Prng* prng, uint64_t size) {
    const uint64_t offset = prng->next() % size;
    Extent range{offset, 1 + prng->next() % (size - offset)};
    if (prng->next() % 2 != 0) {  // to whole pages
        range = {base::align_down(range.offset, kPage), range.size};
        range.size = base::align_up(range.end(), kPage) - range.offset;
    }
    return range;
}

inline uint64_t seed() {
    const char* text = std::getenv("PENSTOCK_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : 0x9e3779b9;
}

// Returns the runs of a range of `pages` pages in one state.
inline std::vector<ResidencyRun> all(Residency state, uint64_t pages) {
    const uint64_t size = pages * kPage;
    return {{{0, size}, state, state == Residency::kCached ? size : 0}};
}

}  // namespace penstock::storage
