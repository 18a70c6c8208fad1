// Goal: what is cached of a file comes out of the public call as storage tells it, within the
// number of ranges asked for; larger grains say no more and no less than the pages they hold.
#include "penstock/residency.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/prng.h"
#include "file/residency_picture.h"
#include "penstock/file.h"

namespace penstock {
namespace {

using extent::ResidencyRun;
using file::ResidencyPicture;

constexpr uint64_t kPage = 4096;

uint64_t seed() {
    const char* text = std::getenv("PENSTOCK_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : 0x9e3779b9;
}

// Pages of the first four states; told in grains of so many.
std::vector<ResidencyRun> told(const std::vector<Residency>& pages, size_t first, size_t grain) {
    std::vector<ResidencyRun> runs(pages.size());
    size_t count = 0;
    for (size_t at = first; at < pages.size();) {
        const size_t end = std::min((at / grain + 1) * grain, pages.size());
        ResidencyRun run{{at * kPage, (end - at) * kPage}, pages[at], 0};
        for (size_t i = at; i < end; ++i) {
            const bool cached = pages[i] == Residency::kCached || pages[i] == Residency::kDirty;
            run.resident_size += cached ? kPage : 0;
            if (pages[i] == run.state) continue;
            const bool dirty = pages[i] == Residency::kDirty || run.state == Residency::kDirty;
            const bool unknown = pages[i] == Residency::kUnknown ||
                                 run.state == Residency::kUnknown;
            run.state = unknown ? Residency::kUnknown : Residency::kMixed;
            if (dirty) run.state = Residency::kDirty;
        }
        if (run.state == Residency::kUnknown) run.resident_size = 0;
        EXPECT_TRUE(append_run(runs, &count, run));
        at = end;
    }
    runs.resize(count);
    return runs;
}

uint64_t resident(const std::vector<ResidencyRun>& runs) {
    uint64_t sum = 0;
    for (const ResidencyRun& run : runs) sum += run.resident_size;
    return sum;
}

TEST(ResidencyPicture, LargerGrainsSayWhatTheirPagesAre) {
    base::Prng prng(seed());
    const Residency states[] = {Residency::kMissing, Residency::kCached, Residency::kDirty,
                                Residency::kUnknown};
    for (int round = 0; round < 2000; ++round) {
        SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed()) + " round " + std::to_string(round));
        std::vector<Residency> pages(1 + prng.next() % 200);
        const uint64_t run_max = 1 + prng.next() % 20, kinds = 2 + prng.next() % 3;
        for (size_t i = 0; i < pages.size();) {
            const Residency state = states[prng.next() % kinds];
            for (uint64_t n = 1 + prng.next() % run_max; n > 0 && i < pages.size(); --n, ++i) {
                pages[i] = state;
            }
        }
        const size_t first = prng.next() % pages.size();
        ResidencyPicture picture(kPage);
        for (const ResidencyRun& run : told(pages, first, 1)) picture.add(run);
        for (size_t grain = 2; grain <= 256; grain *= 2) {
            if (prng.next() % 3 == 0) continue;
            picture.coarsen(grain * kPage);
            const auto right = told(pages, first, grain);
            ASSERT_EQ(picture.runs().size(), right.size());
            EXPECT_TRUE(kinds == 4 || resident(picture.runs()) == resident(right));
            for (size_t i = 0; i < right.size(); ++i) {
                EXPECT_LE(picture.runs()[i].resident_size, right[i].range.size);
                EXPECT_EQ(picture.runs()[i].range, right[i].range);
                EXPECT_EQ(picture.runs()[i].state, right[i].state);
                // With dirty ones, sums of neighbours are estimates; with unknown ones, resident
                // pages are forgotten on the way.
                if (kinds > 2) continue;
                EXPECT_EQ(picture.runs()[i].resident_size, right[i].resident_size);
            }
        }
        if (HasFailure()) return;
    }
}

class ResidencyOf : public ::testing::Test {
protected:
    ResidencyOf() : folder_(::testing::TempDir() + "/penstock-residency-XXXXXX") {
        if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no scratch folder");
    }
    ~ResidencyOf() override { std::filesystem::remove_all(folder_); }

    // Everything of it is cached, and for the most part dirty.
    std::string written(uint64_t size) const {
        std::string path = folder_ + "/file";
        const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        const std::vector<char> bytes(size, 'x');
        EXPECT_EQ(write(descriptor, bytes.data(), size), static_cast<ssize_t>(size));
        close(descriptor);
        return path;
    }

    std::string folder_;
};

TEST_F(ResidencyOf, ItsSumsAreThoseOfItsRanges) {
    const std::string path = written(100 * kPage + 7);
    for (const uint64_t offset : {uint64_t{0}, uint64_t{5000}, 100 * kPage + 6, 200 * kPage}) {
        for (const uint64_t size : {uint64_t{1}, uint64_t{70000}, UINT64_MAX}) {
            ResidencyOptions options;
            options.offset = offset;
            options.size = size;
            const auto report = residency(path, options);
            ASSERT_TRUE(report.ok()) << report.status().message();
            EXPECT_EQ(report.value().size, 100 * kPage + 7);
            const uint64_t end = std::min(report.value().size,
                                          offset + std::min(size, 1000 * kPage));
            uint64_t at = std::min(offset, report.value().size), resident = 0;
            std::array<uint64_t, kResidencyCount> bytes{};
            for (const ResidencyRange& range : report.value().ranges) {
                EXPECT_EQ(range.offset, at);
                at += range.size;
                bytes[static_cast<size_t>(range.state)] += range.size;
                resident += range.resident_size;
            }
            EXPECT_EQ(at, std::max(end, std::min(offset, report.value().size)));
            EXPECT_EQ(bytes, report.value().bytes);
            EXPECT_EQ(resident, report.value().resident_size);
            if (report.value().method == "unknown") continue;
            EXPECT_EQ(report.value().bytes_by(Residency::kMissing), 0u) << "just written";
        }
    }
}

TEST_F(ResidencyOf, AHugeFileIsLookedAtInNoTime) {
    const std::string path = folder_ + "/sparse";
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    constexpr uint64_t kHuge = uint64_t{1} << 40;
    if (ftruncate(descriptor, kHuge) != 0) GTEST_SKIP() << "no files of 1 TiB here";
    close(descriptor);
    uint64_t last = 0;
    ResidencyOptions options;
    options.on_progress = [&](uint64_t done, uint64_t size) {
        EXPECT_GT(done, last);
        EXPECT_EQ(size, kHuge);
        last = done;
        return true;
    };
    const auto report = residency(path, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(last, kHuge);
    EXPECT_EQ(report.value().ranges.size(), 1u);
}

TEST_F(ResidencyOf, AnOpenFileTellsOfItselfWhateverHasItsName) {
    const std::string path = written(8 * kPage);
    const Result<File> file = File::open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    std::filesystem::remove(path);
    EXPECT_EQ(written(3 * kPage), path);
    ResidencyOptions options;
    options.offset = kPage;
    const auto report = file.value().residency(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report.value().size, 8 * kPage);
    EXPECT_EQ(report.value().ranges.front().offset, kPage);
    uint64_t told = 0;
    for (const uint64_t bytes : report.value().bytes) told += bytes;
    EXPECT_EQ(told, 7 * kPage);
    if (report.value().method != "unknown") {
        EXPECT_EQ(report.value().resident_size, 7 * kPage) << "just written";
    }
    options.ranges_max = 15;
    EXPECT_EQ(file.value().residency(options).status().error_number(), EINVAL);
    EXPECT_EQ(File().residency().status().error_number(), EBADF);
}

TEST_F(ResidencyOf, WhatCannotBeAskedIsRefused) {
    const std::string path = written(kPage);
    EXPECT_EQ(residency(folder_).status().error_number(), EISDIR);
    EXPECT_EQ(residency(folder_ + "/missing").status().error_number(), ENOENT);
    EXPECT_EQ(residency("/dev/null").status().error_number(), ENOTSUP);
    ResidencyOptions options;
    options.ranges_max = 15;
    EXPECT_EQ(residency(path, options).status().error_number(), EINVAL);
    options.ranges_max = 16;
    options.on_progress = [](uint64_t, uint64_t) { return false; };
    EXPECT_EQ(residency(path, options).status().error_number(), ECANCELED);
}

}  // namespace
}  // namespace penstock
