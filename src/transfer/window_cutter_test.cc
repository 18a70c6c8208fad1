// Goal: windows and staged ranges cover each byte of the pieces once and in order, within their
// limits.
#include "transfer/window_cutter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "transfer/executor.h"
#include "transfer/staged_range.h"

namespace penstock::transfer {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(WindowCutter, CutsEachByteOnceInOrder) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        std::vector<Piece> pieces;
        uint64_t sum = 0;
        for (uint64_t i = 0, count = prng.below(4); i <= count; ++i) {
            const uint64_t size = prng.below(3) == 0 ? 0 : prng.below(40 * kMiB);
            const uint64_t offset = prng.below(9 * kMiB);
            // The address identifies the byte, and is never read.
            pieces.push_back({reinterpret_cast<void*>(kMiB + offset), size, offset});
            sum += size;
        }
        const uint64_t window_size = kMiB << prng.below(4);
        WindowCutter cutter(pieces, window_size);
        ASSERT_EQ(cutter.left(), sum);
        StagedRange staged;
        std::vector<uint64_t> cut(pieces.size());  // bytes of each piece
        uint64_t windows = 0;
        for (size_t piece = 0; cutter.left() > 0; ++windows) {
            if (cutter.may_open() && prng.below(4) != 0) {
                const Window range = cutter.next_range();
                EXPECT_GE(range.size, kRangeSizeMin / 2);
                EXPECT_LE(range.size, kRangeSizeMax + kRangeSizeMin);
                cutter.open(&staged);
                EXPECT_EQ(cutter.range_left(), range.size);
            } else if (cutter.may_open()) {
                cutter.miss();
            }
            const bool of_range = cutter.range_left() > 0;
            const Window window = cutter.cut();
            EXPECT_EQ(window.range, of_range ? &staged : nullptr);
            ASSERT_GE(window.piece, piece);
            piece = window.piece;
            ASSERT_GT(window.size, 0u);
            EXPECT_LE(window.size, kRequestSizeMax);
            EXPECT_EQ(window.offset, pieces[piece].offset + cut[piece]);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(window.to), kMiB + window.offset);
            cut[piece] += window.size;
        }
        for (size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(cut[i], pieces[i].size);
        if (HasFailure()) return;
    }
}

TEST(WindowCutter, StagedRangesDoubleAndTheLastOnesAreShort) {
    WindowCutter cutter({{nullptr, 64 * kMiB, 0}}, kMiB);
    StagedRange staged;
    std::vector<uint64_t> sizes;
    while (cutter.left() > 0) {
        ASSERT_TRUE(cutter.may_open());
        sizes.push_back(cutter.next_range().size / kMiB);
        cutter.open(&staged);
        while (cutter.range_left() > 0) EXPECT_LE(cutter.cut().size, kMiB / 2);
    }
    EXPECT_EQ(sizes, (std::vector<uint64_t>{1, 2, 4, 8, 8, 8, 8, 8, 8, 5, 2, 1, 1}));
}

TEST(WindowCutter, AfterAMissWindowsOfStagedRangesAreLonger) {
    WindowCutter cutter({{nullptr, 64 * kMiB, 0}}, kMiB);
    cutter.miss();
    EXPECT_EQ(cutter.next_range().size, 4 * kMiB);
    StagedRange staged;
    cutter.open(&staged);
    EXPECT_EQ(cutter.cut().size, kMiB);
}

}  // namespace
}  // namespace penstock::transfer
