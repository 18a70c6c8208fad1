// What the programs for windows of readahead share: a cache of one leaf (two pages), a file in it,
// and one place with one window, whose pages lie in frames 0, 1, ...
#pragma once

#include <array>
#include <cstdint>

#include "memory_model/production_cache.h"

namespace penstock::memory_model {

constexpr uint32_t kWindowGeneration = 2;

template <FrameIndex kFrames>
struct WindowedFile {
    FileSystemState state{};
    FileState file{};
    FileTotals totals{};
    ReadaheadPlace place{};
    std::array<uint64_t, kFrames> completions{}, owners{};
    std::array<uint64_t, 2 * limits::kLeafEntries> leaves{};
    std::array<uint64_t, 2> leaf_owners{}, leaf_locks{}, directory{};
    std::array<Cell, kFrames> frames{};
    AddressMap map;

    Window one{};
    Window& window() { return one; }

    // The window has `count` pages; where it has not `arrived`, their frames say so.
    void lay_out(FrameIndex frame_count, uint64_t count, bool arrived) {
        state.frame_count = frame_count;
        state.leaves_in_use = state.leaf_count = 1;
        state.directory_size = directory.size();
        state.completions = completions.data();
        state.owners = owners.data();
        state.leaves = leaves.data();
        state.leaf_owners = leaf_owners.data();
        state.leaf_locks = leaf_locks.data();
        state.directory = directory.data();
        state.files = &file;
        state.totals = &totals;
        state.places = &place;
        state.place_count = 1;
        owners.fill(kFrameFree);
        directory[0] = 1;
        leaf_owners[0] = 1;
        file.directory_count = 1;
        place.streams[0].window_count = place.streams[0].windows_max = 1;
        place.streams[0].windows = &one;
        window().step = 1;
        window().run = 1;
        window().count = count;
        window().generation = kWindowGeneration;
        window().left = (uint64_t{1} << count) - 1;
        for (uint64_t i = 0; i < count; ++i) {
            owners[i] = kFrameTaken;
            completions[i] = make_completion(kWindowGeneration - (arrived ? 0 : 1), 0, 4096);
        }
    }
};

}  // namespace penstock::memory_model
