// Goal: whatever the cache holds, the runs of a probe are what a look at every page gives; and when
// probes fail, lie or are refused, the answer is less, never wrong. The cache is a model here;
// residency_mounts_test.cc asks real file systems.
#include "storage/residency.h"

#include <gtest/gtest.h>
#include <linux/magic.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "storage/residency_fixture.h"

namespace penstock::storage {
namespace {

TEST(Residency, RunsAreWhatALookAtEveryPageGives) {
    base::Prng prng(seed());
    for (int round = 0; round < 1000; ++round) {
        SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed()) + " round " + std::to_string(round));
        Probed probed(1 + prng.next() % 300);
        fill(&probed.calls.pages(), &prng, round % 3 == 0 ? 0.3 : 0);
        const Extent range = random_range(&prng, probed.calls.pages().size() * kPage);
        const uint64_t grain = kPage << prng.next() % 7;
        ResidencyProbe probe = probed.probe();
        const Told told = ask(probe, {.range = range, .grain = grain, .probes_max = UINT32_MAX});
        EXPECT_EQ(told.answer.method, ResidencyMethod::kCachestat);
        EXPECT_EQ(told.answer.end, range.end());
        EXPECT_EQ(told.runs, reference(probed.calls.pages(), range, grain, Dirtiness::kTold));
        EXPECT_EQ(probed.calls.mincore_calls, 0u);
        if (HasFailure()) return;
    }
}

// Whatever the limits, nothing that is said is wrong, only less fine.
void expect_true(const std::vector<ResidencyRun>& runs, const std::vector<PageState>& pages,
                 const ResidencyAnswer& answer) {
    for (const ResidencyRun& run : runs) {
        uint64_t total = 0, cached = 0, dirty = 0;
        const uint64_t first = run.range.offset / kPage, last = (run.range.end() - 1) / kPage;
        for (uint64_t i = first; i <= last; ++i, ++total) {
            if (i >= pages.size()) continue;
            cached += pages[i].cached;
            dirty += pages[i].dirty || pages[i].writeback;
        }
        if (run.range.offset % kPage == 0 && run.range.size % kPage == 0) {
            EXPECT_EQ(run.resident_size, cached * kPage);
        }
        EXPECT_EQ(run.state == Residency::kMissing, cached == 0);
        EXPECT_NE(run.state, Residency::kUnknown);
        EXPECT_TRUE(run.state != Residency::kCached || cached == total);
        EXPECT_TRUE(run.state != Residency::kMixed || run.resident_size < run.range.size);
        if (answer.method != ResidencyMethod::kMincore && run.state != Residency::kDirty) {
            EXPECT_EQ(dirty, 0u) << "dirty pages in a run that is " << name(run.state);
        }
    }
}

TEST(Residency, WithFewProbesTheAnswerIsCoarserAndStillTrue) {
    base::Prng prng(seed() + 1);
    for (int round = 0; round < 1000; ++round) {
        SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed()) + " round " + std::to_string(round));
        Probed probed(1 + prng.next() % 300);
        fill(&probed.calls.pages(), &prng, round % 3 == 0 ? 0.3 : 0);
        if (round % 2 == 0) probed.calls.mincore_error = ENOSYS;
        const Extent range = random_range(&prng, probed.calls.pages().size() * kPage);
        const auto probes_max = static_cast<uint32_t>(prng.next() % 10);  // 0: as it sees fit
        ResidencyProbe probe = probed.probe();
        const Told told = ask(probe, {.range = range, .probes_max = probes_max});
        EXPECT_EQ(told.answer.end, range.end());
        EXPECT_LE(probed.calls.cachestat_calls, probes_max != 0 ? probes_max : 32 + 300 / 16);
        expect_true(told.runs, probed.calls.pages(), told.answer);
        if (HasFailure()) return;
    }
}

TEST(Residency, WhatIsAllHotOrAllColdTakesOneCall) {
    for (const bool cached : {false, true}) {
        Probed probed(4096);
        for (PageState& page : probed.calls.pages()) page.cached = cached;
        ResidencyProbe probe = probed.probe();
        const Told told = ask(probe, {.range = {0, 4096 * kPage}});
        EXPECT_EQ(told.runs.size(), 1u);
        EXPECT_EQ(told.answer.probes, 1u);
        EXPECT_EQ(probed.calls.cachestat_calls + probed.calls.mincore_calls, 1u);
    }
}

TEST(Residency, ARefusedCachestatIsNeverTriedAgain) {
    for (const int error : {EPERM, ENOSYS, EOPNOTSUPP}) {
        Probed probed(64);
        probed.calls.cachestat_error = error;
        probed.calls.pages()[5].cached = true;
        ResidencyProbe probe = probed.probe();
        for (int i = 0; i < 3; ++i) {
            const Told told = ask(probe, {.range = {0, 64 * kPage}});
            EXPECT_EQ(told.answer.method, ResidencyMethod::kMincore);
            EXPECT_STRNE(told.answer.reason, "");
            EXPECT_EQ(told.runs.size(), 3u);
        }
        EXPECT_EQ(probed.calls.cachestat_calls, 1u);
    }
}

TEST(Residency, MincoreGivesTheSameRunsWithoutDirtyOnes) {
    base::Prng prng(seed() + 2);
    for (int round = 0; round < 1000; ++round) {
        SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed()) + " round " + std::to_string(round));
        // Longer than the piece that mincore is asked about at once, now and then.
        Probed probed(1 + prng.next() % (round % 50 == 0 ? 20000 : 300));
        fill(&probed.calls.pages(), &prng, 0.3);
        probed.calls.magic = OVERLAYFS_SUPER_MAGIC;
        const Extent range = random_range(&prng, probed.calls.pages().size() * kPage);
        const uint64_t grain = kPage << prng.next() % 7;
        ResidencyProbe probe = probed.probe();
        const Told told = ask(probe, {.range = range, .grain = grain}, 20002);
        EXPECT_EQ(told.answer.method, ResidencyMethod::kMincore);
        EXPECT_EQ(probed.calls.cachestat_calls, 0u) << "it answers 0 on overlayfs";
        EXPECT_EQ(told.runs, reference(probed.calls.pages(), range, grain, Dirtiness::kNotTold));
        if (HasFailure()) return;
    }
}

// The kernel tells strangers that everything is resident, even what cannot be.
TEST(Residency, AMincoreThatLiesIsUnknownNotCached) {
    Probed probed(64);
    probed.calls.cachestat_error = EPERM;
    probed.calls.mincore_lies = true;
    ResidencyProbe probe = probed.probe();
    const Told told = ask(probe, {.range = {0, 64 * kPage}});
    EXPECT_EQ(told.runs, all(Residency::kUnknown, 64));
    EXPECT_EQ(told.answer.method, ResidencyMethod::kNone);
    EXPECT_STRNE(told.answer.reason, "");
}

TEST(Residency, AZeroOnAnUnknownFileSystemIsHeldAgainstMincore) {
    Probed probed(64);
    probed.calls.magic = 0x12345678;
    probed.calls.cachestat_zero = true;
    ResidencyProbe probe = probed.probe();
    // Nothing is cached: both say so, and nothing is proven.
    EXPECT_EQ(ask(probe, {.range = {0, 64 * kPage}}).runs, all(Residency::kMissing, 64));
    EXPECT_EQ(ask(probe, {.range = {0, 64 * kPage}}).runs, all(Residency::kMissing, 64));
    EXPECT_EQ(probed.calls.cachestat_calls, 2u);
    // Then something is: cachestat is found out, for good.
    for (PageState& page : probed.calls.pages()) page.cached = true;
    for (int i = 0; i < 3; ++i) {
        const Told told = ask(probe, {.range = {0, 64 * kPage}});
        EXPECT_EQ(told.runs, all(Residency::kCached, 64));
        EXPECT_EQ(told.answer.method, ResidencyMethod::kMincore);
        EXPECT_STRNE(told.answer.reason, "");
    }
    EXPECT_EQ(probed.calls.cachestat_calls, 3u);
}

TEST(Residency, AZeroThatCannotBeHeldAgainstAnythingIsUnknown) {
    Probed probed(64);
    probed.calls.magic = 0x12345678;
    probed.calls.cachestat_zero = true;
    probed.calls.mincore_lies = true;
    ResidencyProbe probe = probed.probe();
    EXPECT_EQ(ask(probe, {.range = {0, 64 * kPage}}).runs, all(Residency::kUnknown, 64));
    // What cannot be mapped has no page cache of another file behind it (FUSE with direct_io).
    probed.calls.mincore_error = ENODEV;
    EXPECT_EQ(ask(probe, {.range = {0, 64 * kPage}}).runs, all(Residency::kMissing, 64));
    // Not so where cachestat is refused, or never told the truth.
    probed.calls.cachestat_error = EPERM;
    EXPECT_EQ(ask(probe, {.range = {0, 64 * kPage}}).runs, all(Residency::kUnknown, 64));
}

TEST(Residency, ACountOnAnUnknownFileSystemProvesIt) {
    Probed probed(64);
    probed.calls.magic = 0x12345678;
    probed.calls.pages()[63].cached = true;
    ResidencyProbe probe = probed.probe();
    EXPECT_EQ(ask(probe, {.range = {0, 64 * kPage}}).runs.size(), 2u);
    EXPECT_EQ(ask(probe, {.range = {0, 32 * kPage}}).runs, all(Residency::kMissing, 32));
    EXPECT_EQ(probed.calls.mincore_calls, 0u);
}

TEST(Residency, WhenMincoreFailsMidwayTheRestIsUnknown) {
    for (uint64_t n = 1;; ++n) {
        Probed probed(10000);
        probed.calls.cachestat_error = EPERM;
        probed.calls.mincore_fails_at = n;
        for (PageState& page : probed.calls.pages()) page.cached = true;
        ResidencyProbe probe = probed.probe();
        const Told told = ask(probe, {.range = {0, 10000 * kPage}, .grain = kPage << 6});
        EXPECT_EQ(told.answer.end, 10000 * kPage);
        if (probed.calls.mincore_calls < n) {
            EXPECT_EQ(told.runs, all(Residency::kCached, 10000));
            return;
        }
        ASSERT_EQ(told.runs.back().state, Residency::kUnknown) << n;
        EXPECT_STRNE(told.answer.reason, "");
        EXPECT_EQ(told.runs.size(), n > 2 ? 2u : 1u);
    }
}

TEST(Residency, ABufferThatIsFullIsGoneOnWith) {
    base::Prng prng(seed() + 3);
    for (int round = 0; round < 300; ++round) {
        SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed()) + " round " + std::to_string(round));
        Probed probed(200);
        fill(&probed.calls.pages(), &prng, 0.1);
        if (round % 2 == 0) probed.calls.cachestat_error = EPERM;
        const Extent range = random_range(&prng, 200 * kPage);
        ResidencyProbe probe = probed.probe();
        std::vector<ResidencyRun> runs(500);
        size_t count = 0;
        for (uint64_t at = range.offset; at < range.end();) {
            const Told told = ask(probe,
                                  {.range = {at, range.end() - at}, .probes_max = UINT32_MAX},
                                  1 + prng.next() % 5);
            ASSERT_GT(told.answer.end, at);
            at = told.answer.end;
            for (const ResidencyRun& run : told.runs) ASSERT_TRUE(append_run(runs, &count, run));
        }
        runs.resize(count);
        const Dirtiness dirtiness = round % 2 == 0 ? Dirtiness::kNotTold : Dirtiness::kTold;
        EXPECT_EQ(runs, reference(probed.calls.pages(), range, kPage, dirtiness));
        if (HasFailure()) return;
    }
}

TEST(Residency, FilesInMemoryAreToldApart) {
    for (const unsigned magic : {unsigned{TMPFS_MAGIC}, unsigned{RAMFS_MAGIC}}) {
        Probed probed(1);
        probed.calls.magic = magic;
        EXPECT_TRUE(probed.probe().in_memory());
    }
    EXPECT_FALSE(Probed(1).probe().in_memory());
    ModelCalls calls(1);
    const SizedFile ram(kPage, -1);
    ResidencyProbe probe(ram, calls);
    EXPECT_TRUE(probe.in_memory());
    const Told told = ask(probe, {.range = {0, kPage}});
    EXPECT_EQ(told.runs, all(Residency::kUnknown, 1));
    EXPECT_EQ(calls.cachestat_calls + calls.mincore_calls, 0u);
}

TEST(Residency, NothingAskedIsNothingTold) {
    Probed probed(1);
    ResidencyProbe probe = probed.probe();
    const Told told = ask(probe, {.range = {kPage, 0}});
    EXPECT_TRUE(told.runs.empty());
    EXPECT_EQ(told.answer.end, kPage);
    EXPECT_EQ(probed.calls.cachestat_calls, 0u);
}

// A cache that changes between any two questions.
class Restless final : public ResidencyCalls {
public:
    int cachestat(int, const Extent& range, CacheCounts* out) override {
        const uint64_t pages = (range.end() - 1) / kPage - range.offset / kPage + 1;
        *out = {.cached = prng_.next() % (pages + 1), .dirty = prng_.next() % 2, .writeback = 0};
        return 0;
    }
    int mincore(int, uint64_t, std::span<unsigned char> map) override {
        for (unsigned char& page : map) page = static_cast<unsigned char>(prng_.next());
        return 0;
    }
    int file_system(int, uint64_t* magic) override {
        *magic = EXT4_SUPER_MAGIC;
        return 0;
    }

private:
    base::Prng prng_{seed()};
};

TEST(Residency, ACacheThatChangesMeanwhileGivesWellFormedRuns) {
    base::Prng prng(seed() + 4);
    Restless calls;
    const SizedFile file(uint64_t{1} << 40);
    for (int round = 0; round < 2000; ++round) {
        ResidencyProbe probe(file, calls);
        const Extent range{prng.next() >> (24 + prng.next() % 20), 1 + prng.next() % 100000};
        const Told told = ask(probe, {.range = range, .probes_max = 64});
        EXPECT_EQ(told.answer.end, range.end());
    }
}

// Two pages of eight are there when all are counted, three when the front half is.
TEST(Residency, PagesThatComeMeanwhileAreNotTakenForOthers) {
    class Filling final : public ResidencyCalls {
    public:
        int cachestat(int, const Extent& range, CacheCounts* out) override {
            if (range.size == 8 * kPage) *out = {.cached = 2};
            if (range.size == 4 * kPage) *out = {.cached = 3};
            if (range.size == 2 * kPage) *out = {.cached = 2};
            if (range.size == kPage) *out = {.cached = 1};
            return 0;
        }
        int mincore(int, uint64_t, std::span<unsigned char>) override { return ENOSYS; }
        int file_system(int, uint64_t* magic) override {
            *magic = EXT4_SUPER_MAGIC;
            return 0;
        }
    } calls;
    const SizedFile file(8 * kPage);
    ResidencyProbe probe(file, calls);
    const Told told = ask(probe, {.range = {0, 8 * kPage}});
    const std::vector<ResidencyRun> right = {
        {{0, 3 * kPage}, Residency::kCached, 3 * kPage},
        {{3 * kPage, 5 * kPage}, Residency::kMissing, 0},
    };
    EXPECT_EQ(told.runs, right);
}

TEST(Residency, ManyThreadsAskOneProbe) {
    Probed probed(64);
    probed.calls.cachestat_error = EPERM;
    for (PageState& page : probed.calls.pages()) page.cached = true;
    class Locked final : public ResidencyCalls {
    public:
        explicit Locked(ResidencyCalls& under) : under_(under) {}
        int cachestat(int descriptor, const Extent& range, CacheCounts* out) override {
            const std::lock_guard lock(mutex_);
            return under_.cachestat(descriptor, range, out);
        }
        int mincore(int descriptor, uint64_t offset, std::span<unsigned char> map) override {
            const std::lock_guard lock(mutex_);
            return under_.mincore(descriptor, offset, map);
        }
        int file_system(int descriptor, uint64_t* magic) override {
            return under_.file_system(descriptor, magic);
        }

    private:
        ResidencyCalls& under_;
        std::mutex mutex_;
    } calls(probed.calls);
    ResidencyProbe probe(probed.file, calls);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int n = 0; n < 200; ++n) {
                const Told told = ask(probe, {.range = {0, 64 * kPage}}, 64);
                EXPECT_EQ(told.runs, all(Residency::kCached, 64));
                EXPECT_STRNE(told.answer.reason, "");
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace penstock::storage
