// Goal: every limit that the layout states holds for every device and cache it accepts, and what it
// cannot serve it refuses.
#include "page_cache/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "page_cache/page_cache_fixture.h"
#include "penstock/abi/limits.h"

namespace penstock::page_cache {
namespace {

LayoutRequest request_of(uint64_t page_size, uint64_t frames, uint32_t permits, uint32_t teams) {
    return {.page_size = page_size,
            .cache_size = page_size * frames,
            .permit_count = permits,
            .team_count = teams,
            .ring_count = 1};
}

TEST(LayoutTest, RefusesWhatItCannotServe) {
    Layout layout;
    const auto refusal = [&](const LayoutRequest& request) {
        return plan_layout(request, &layout).error_number();
    };
    for (const uint64_t size : {0u, 1u, 2048u, 4095u, 5000u, 12288u, 8u << 20}) {
        EXPECT_EQ(
            refusal({.page_size = size, .cache_size = 1 << 30, .permit_count = 1, .team_count = 1}),
            EINVAL)
            << size;
    }
    EXPECT_EQ(refusal(request_of(4096, 3, 4, 4)), EINVAL) << "a frame for each permit";
    EXPECT_EQ(refusal(request_of(4096, 0, 0, 0)), EINVAL);
    EXPECT_EQ(refusal(request_of(4096, uint64_t{1} << limits::kFrameBits, 4, 4)), EINVAL);
    EXPECT_EQ(refusal(request_of(4096, 100, 4, limits::kTeamsMax + 1)), EINVAL);
    LayoutRequest rings = request_of(4096, 100, 4, 4);
    rings.ring_count = limits::kRingsMax + 1;
    EXPECT_EQ(refusal(rings), EINVAL);
    for (const uint64_t size : {1u, 4095u, 6000u, 64 * 4096u, 2u << 20}) {
        LayoutRequest windows = request_of(4096, 4000, 4, 4);
        windows.prefetch_size = size;
        EXPECT_EQ(refusal(windows), EINVAL) << size;
    }
    LayoutRequest windows = request_of(4096, 40, 4, 4);
    windows.prefetch_size = 9 * 4096;
    EXPECT_EQ(refusal(windows), 0) << "a quarter of the cache, with the page that is missed";
    windows.prefetch_size = 10 * 4096;
    EXPECT_EQ(refusal(windows), EINVAL) << "beyond it";
    for (const uint64_t frames : {1, 3, 7, 8}) {
        windows = request_of(4096, frames, 1, 1);
        windows.prefetch_size = 4096;
        EXPECT_EQ(refusal(windows), frames < 8 ? EINVAL : 0) << frames;
    }
    windows = request_of(4096, 256, 4, 4);
    windows.prefetch_size = 63 * 4096;
    EXPECT_EQ(refusal(windows), 0);
    windows = request_of(65536, 256, 4, 4);
    windows.prefetch_size = 1 << 20;
    EXPECT_EQ(refusal(windows), 0);
    windows.prefetch_size += 65536;
    EXPECT_EQ(refusal(windows), EINVAL) << "beyond 1 MiB";
    for (const uint64_t size : {1 << 20, 2 << 20, 4 << 20}) {
        windows = request_of(size, 64, 4, 4);
        windows.prefetch_size = size;
        EXPECT_EQ(refusal(windows), 0) << "one page of any size: " << size;
        windows.prefetch_size = 2 * size;
        EXPECT_EQ(refusal(windows), EINVAL) << size;
    }
    EXPECT_EQ(refusal(request_of(4096, 4, 4, 4)), 0);
    EXPECT_EQ(
        refusal(request_of(4096, (uint64_t{1} << limits::kFrameBits) - 1, 4, limits::kTeamsMax)),
        0);
    EXPECT_EQ(refusal(request_of(4 << 20, 8, 8, 8)), 0);
}

TEST(LayoutTest, TellsWhatReadaheadTakes) {
    for (const uint32_t teams : {1, 4, 100}) {
        Layout layout;
        ASSERT_TRUE(plan_layout(request_of(4096, 4000, 1, teams), &layout).ok());
        EXPECT_EQ(layout.readahead.frames_max, 1000u);
        const size_t windows = limits::kStreamsMax * layout.readahead.windows_max * sizeof(Window);
        EXPECT_EQ(layout.places_size, (teams + 1) * sizeof(ReadaheadPlace) + teams * windows);
        EXPECT_LT(layout.places_size, layout.tables_size);
    }
}

// A ring that a stream can outrun is much longer than what then takes turns in it, which holds more
// than the stream's windows.
TEST(LayoutTest, StreamsOutrunLongRingsOnly) {
    uint64_t never = 0, times = 0;
    for (const uint64_t page_size : {4096, 16384, 65536, 1 << 20, 4 << 20}) {
        for (const uint64_t frames : {64, 1000, 16384, 262144}) {
            for (const uint32_t permits : {1, 2, 16, 2112}) {
                for (const uint32_t windows :
                     {limits::kSentWindowsMax, uint32_t{limits::kWindowsMax}}) {
                    if (frames < permits) continue;
                    LayoutRequest request = request_of(page_size, frames, permits, permits);
                    request.windows_max = windows;
                    Layout layout;
                    ASSERT_TRUE(plan_layout(request, &layout).ok());
                    const ReadaheadSettings& made = layout.readahead;
                    request.prefetch_size = page_size;
                    Layout seed;
                    if (plan_layout(request, &seed).ok()) {
                        EXPECT_EQ(seed.readahead.outrun_slabs, UINT64_MAX) << "static windows";
                    }
                    ++(made.outrun_slabs == UINT64_MAX ? never : times);
                    if (made.outrun_slabs == UINT64_MAX) continue;
                    EXPECT_GE(made.outrun_slabs, 8 * made.once_slabs);
                    EXPECT_GE(2 * made.once_slabs * layout.slab_frames,
                              3 * windows * made.window_pages_max);
                }
            }
        }
    }
    EXPECT_GT(never, 0u);
    EXPECT_GT(times, 0u);
}

TEST(LayoutTest, SufficesForAllThatCanBeOutstanding) {
    for (const uint64_t page_size : {4096u, 65536u, 4u << 20}) {
        for (const uint64_t frames : {1, 8, 100, 5000, 1 << 20}) {
            for (const uint32_t permits : {1u, 2u, 8u, 132u}) {
                for (const uint32_t warps : {1u, 32u, 64u}) {
                    const LayoutRequest request = request_of(page_size, frames, permits,
                                                             permits * warps);
                    Layout layout;
                    const Status status = plan_layout(request, &layout);
                    ASSERT_EQ(status.ok(), frames >= permits);
                    if (!status.ok()) continue;
                    EXPECT_EQ(uint64_t{1} << layout.page_shift, page_size);
                    EXPECT_EQ(layout.frame_count, frames);
                    EXPECT_EQ(layout.frames_size, frames * page_size);
                    EXPECT_GE(uint64_t{1} << layout.ring_shift,
                              uint64_t{request.team_count} * limits::kBatchPagesMax +
                                  layout.async_pages_max);
                    LayoutRequest pulled = request;
                    pulled.pulls = true;
                    ASSERT_TRUE(plan_layout(pulled, &layout).ok());
                    EXPECT_GE(layout.tickets_behind_max,
                              2 * limits::kWorkersMax * limits::kDrainMax);
                    EXPECT_LE(layout.tickets_behind_max +
                                  uint64_t{request.team_count} * limits::kBatchPagesMax,
                              uint64_t{1} << layout.ring_shift);
                    EXPECT_LE(layout.held_max + permits, frames);
                    EXPECT_LE(layout.async_pages_max, layout.held_max);
                    EXPECT_LE(layout.views_max + permits, frames)
                        << "views leave a frame for each permit";
                    EXPECT_LE(layout.views_max, limits::kViewsMax);
                    EXPECT_GT(layout.leaf_count, 2 * request.team_count + layout.views_max);
                }
            }
        }
    }
}

// Each table gets its own bytes inside its allocation, and starts on a line.
TEST(LayoutTest, PartsDoNotOverlap) {
    Memory memory({.frames = 33, .teams = 5, .rings = 3});
    FileSystemState& state = memory.state();
    struct Piece {
        const void* first;
        size_t size;
        bool shared;
    };
    std::vector<Piece> pieces = {
        {&state, sizeof state, false},
        {state.files, limits::kFilesMax * sizeof(FileState), false},
        {state.port_locks, limits::kPortsMax * 8, false},
        {state.owners, state.frame_count * size_t{8}, false},
        {state.leaf_owners, state.leaf_count * size_t{8}, false},
        {state.leaf_locks, state.leaf_count * size_t{8}, false},
        {state.leaves, state.leaf_count * size_t{limits::kLeafEntries} * 8, false},
        {state.directory, state.directory_size * 8, false},
        {state.host, sizeof(HostWords), true},
        {state.port_requests, limits::kPortsMax * 8, true},
        {state.port_responses, limits::kPortsMax * 8, true},
        {state.ports, limits::kPortsMax * sizeof(ControlPort), true},
        {state.completions, state.frame_count * size_t{8}, false},
    };
    for (uint32_t i = 0; i < state.ring_count; ++i) {
        pieces.push_back({state.rings[i].slots, size_t{32} << state.rings[i].shift, true});
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.first < b.first; });
    for (size_t i = 0; i < pieces.size(); ++i) {
        const auto* first = static_cast<const std::byte*>(pieces[i].first);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
        EXPECT_TRUE(memory.contains(first, pieces[i].size, pieces[i].shared));
        if (i + 1 == pieces.size()) break;
        EXPECT_LE(first + pieces[i].size, pieces[i + 1].first);
    }
    for (uint32_t frame = 0; frame < state.frame_count; ++frame)
        EXPECT_EQ(state.owners[frame], kFrameFree);
    EXPECT_EQ(check_invariants(state), 0);
}

}  // namespace
}  // namespace penstock::page_cache
