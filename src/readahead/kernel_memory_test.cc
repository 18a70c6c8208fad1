// Goal: what a kernel is told to read is what it read last time, for any grid where its blocks do
// one thing; kernels that read something else each time are left alone, and found out when they
// begin to.
#include "readahead/kernel_memory.h"

#include <gtest/gtest.h>

#include <set>

#include "base/prng.h"

namespace penstock::readahead {
namespace {

constexpr uint64_t kPlenty = 1 << 20;

// Pages of one launch: block, file, first page, count.
using Reads = std::vector<std::pair<uint64_t, PageRun>>;

std::set<std::pair<uint64_t, uint64_t>> pages_of(const Reads& reads) {
    std::set<std::pair<uint64_t, uint64_t>> pages;
    for (const auto& [block, run] : reads) {
        for (uint64_t i = 0; i < run.count; ++i) pages.emplace(run.file, run.first + i);
    }
    return pages;
}

std::set<std::pair<uint64_t, uint64_t>> pages_of(const std::vector<PageRun>& runs) {
    std::set<std::pair<uint64_t, uint64_t>> pages;
    for (const PageRun& run : runs) {
        for (uint64_t i = 0; i < run.count; ++i)
            EXPECT_TRUE(pages.emplace(run.file, run.first + i).second) << "told twice";
    }
    return pages;
}

// A launch: what it was told, and then its misses, which are what it was not told.
std::vector<PageRun> launch(KernelMemory& memory, const std::string& kernel, uint64_t blocks,
                            const Reads& reads, uint64_t pages_max = kPlenty) {
    const auto told = memory.begin(kernel, blocks, pages_max);
    for (const PageRun& run : told) {  // the prefetch itself
        for (uint64_t i = 0; i < run.count; ++i) memory.missed(i % 3, {run.file, run.first + i, 1});
    }
    const auto there = pages_of(told);
    for (const auto& [block, run] : reads) {
        for (uint64_t i = 0; i < run.count; ++i) {
            if (!there.contains({run.file, run.first + i}))
                memory.missed(block, {run.file, run.first + i, 1});
        }
    }
    return told;
}

// Each block: `turns` runs of 4 pages, 64 apart, in a part of its own; and a page of a second file.
Reads strided(uint64_t blocks, uint64_t turns = 10) {
    Reads reads;
    for (uint64_t turn = 0; turn < turns; ++turn) {  // blocks take turns, as on a device
        for (uint64_t b = 0; b < blocks; ++b) reads.push_back({b, {1, b * 1000 + turn * 64, 4}});
    }
    for (uint64_t b = 0; b < blocks; ++b) reads.push_back({b, {2, 7 + b, 1}});
    return reads;
}

Reads at_random(base::Prng& prng, uint64_t blocks) {
    Reads reads;
    for (uint64_t i = 0; i < 100 * blocks; ++i)
        reads.push_back({i % blocks, {1, prng.below(1 << 20), 1}});
    return reads;
}

TEST(KernelMemory, ANextLaunchIsToldAllThatTheLastOneRead) {
    KernelMemory memory;
    EXPECT_TRUE(launch(memory, "k", 16, strided(16)).empty());
    EXPECT_EQ(pages_of(launch(memory, "k", 16, strided(16))), pages_of(strided(16)));
    EXPECT_TRUE(memory.knows_program("k"));
    // It goes on being told, though it misses nothing any more.
    for (int i = 0; i < 5; ++i)
        EXPECT_EQ(pages_of(launch(memory, "k", 16, strided(16))), pages_of(strided(16)));
    EXPECT_TRUE(launch(memory, "another", 16, strided(16)).empty());
}

TEST(KernelMemory, AProgramServesAnotherGrid) {
    KernelMemory memory;
    launch(memory, "k", 8, strided(8));
    for (const uint64_t blocks : {1, 5, 8, 100})
        EXPECT_EQ(pages_of(launch(memory, "k", blocks, strided(blocks))), pages_of(strided(blocks)))
            << blocks;
}

TEST(KernelMemory, FewPagesAreTheFirstOfEachBlock) {
    KernelMemory memory;
    launch(memory, "k", 10, strided(10));
    const auto told = pages_of(memory.begin("k", 10, 100));
    EXPECT_LE(told.size(), 100u);
    for (uint64_t b = 0; b < 10; ++b) {
        EXPECT_TRUE(told.contains({1, b * 1000}));
        EXPECT_TRUE(told.contains({1, b * 1000 + 3}));
        EXPECT_FALSE(told.contains({1, b * 1000 + 9 * 64}));
    }
}

TEST(KernelMemory, AListIsToldWhenASecondLaunchReadsTheSame) {
    base::Prng prng(1);
    const Reads reads = at_random(prng, 8);
    KernelMemory memory;
    EXPECT_TRUE(launch(memory, "k", 8, reads).empty());
    EXPECT_TRUE(launch(memory, "k", 8, reads).empty()) << "once may be chance";
    EXPECT_EQ(pages_of(launch(memory, "k", 8, reads)), pages_of(reads));
    EXPECT_FALSE(memory.knows_program("k"));
    EXPECT_LE(pages_of(memory.begin("k", 8, 50)).size(), 50u);
}

TEST(KernelMemory, RandomReadsAreNeverTold) {
    base::Prng prng(2);
    KernelMemory memory;
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(launch(memory, "k", 8, at_random(prng, 8)).empty());
}

// Twice the same, then another: each time it is believed it takes twice as long until the next.
TEST(KernelMemory, WhoMisleadsIsBelievedEverMoreSeldom) {
    base::Prng prng(3);
    KernelMemory memory;
    uint64_t misled = 0;
    for (int round = 0; round < 100; ++round) {
        const Reads reads = at_random(prng, 4);
        for (int i = 0; i < 2; ++i) launch(memory, "k", 4, reads);
        misled += !launch(memory, "k", 4, at_random(prng, 4)).empty();
    }
    EXPECT_GE(misled, 1u);
    EXPECT_LE(misled, 2u);
}

TEST(KernelMemory, AKernelThatChangesIsLearnedAnew) {
    KernelMemory memory;
    for (int i = 0; i < 3; ++i) launch(memory, "k", 8, strided(8));
    Reads other;
    for (uint64_t turn = 0; turn < 20; ++turn) {
        for (uint64_t b = 0; b < 8; ++b)
            other.push_back({b, {1, 500'000 + b * 320 + turn * 16, 2}});
    }
    std::vector<PageRun> told;
    for (int i = 0; i < 6; ++i) told = launch(memory, "k", 8, other);
    EXPECT_EQ(pages_of(told), pages_of(other));
}

TEST(KernelMemory, CachedPagesTeachNothing) {
    KernelMemory memory;
    launch(memory, "k", 8, strided(8));
    // Told, and a second kernel in between; then launches that find everything cached.
    launch(memory, "other", 8, strided(8));
    for (int i = 0; i < 3; ++i) launch(memory, "k", 8, {});
    EXPECT_EQ(pages_of(memory.begin("k", 8, kPlenty)), pages_of(strided(8)));
}

TEST(KernelMemory, WhatRunsBesideOthersIsNotRecorded) {
    KernelMemory memory;
    memory.begin("k", 8, kPlenty);
    EXPECT_TRUE(memory.records());
    memory.missed(0, {1, 5, 1});
    memory.spoil();
    EXPECT_FALSE(memory.records());
    memory.missed(1, {1, 6, 1});
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(memory.begin("k", 8, kPlenty).empty());
        memory.spoil();
    }
}

TEST(KernelMemory, KeepsToItsLimits) {
    KernelMemory memory;
    memory.begin("long", 8, kPlenty);
    for (uint64_t i = 0; i <= KernelMemory::kMissesMax; ++i) memory.missed(i % 8, {1, 2 * i, 1});
    EXPECT_TRUE(memory.begin("long", 8, kPlenty).empty()) << "only part of it was recorded";
    for (size_t i = 0; i < 2 * KernelMemory::kKernelsMax; ++i) {
        launch(memory, "k" + std::to_string(i), 8, strided(8));
        memory.spoil();
    }
    EXPECT_FALSE(memory.knows_program("k0"));
}

}  // namespace
}  // namespace penstock::readahead
