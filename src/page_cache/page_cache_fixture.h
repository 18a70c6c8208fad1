// A page cache in plain memory, for tests. It has no device and no service, and one thread unless
// the test starts more.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "page_cache/invalidation.h"
#include "page_cache/layout.h"
#include "penstock/device/replacement.cuh"

namespace penstock::page_cache {

struct Sizes {
    uint64_t frames = 8;
    uint32_t teams = 1;
    uint32_t rings = 1;
    uint32_t leaves = 0;  // at most; 0: as the layout plans
    uint32_t permits = 1;
    ReplacementPolicy policy = ReplacementPolicy::kRings;
    uint64_t prefetch_size = 0;  // bytes; 0: windows grow and shrink
};

class Memory {
public:
    explicit Memory(const Sizes& sizes) {
        const LayoutRequest request{.page_size = 4096,
                                    .cache_size = 4096 * sizes.frames,
                                    .permit_count = sizes.permits,
                                    .team_count = sizes.teams,
                                    .ring_count = sizes.rings,
                                    .bells = false,
                                    .policy = sizes.policy,
                                    .prefetch_size = sizes.prefetch_size};
        EXPECT_TRUE(plan_layout(request, &layout_).ok());
        // With fewer leaves the rest is not used.
        if (sizes.leaves != 0) layout_.leaf_count = std::min(layout_.leaf_count, sizes.leaves);
        frames_ = allocate(layout_.frames_size);
        tables_ = allocate(layout_.tables_size);
        shared_ = allocate(layout_.shared_size);
        state_ = initialise(layout_, {frames_.get(), tables_.get(), tables_.get(), shared_.get()},
                            1);
    }

    FileSystemState& state() { return *state_; }
    FileState& file(uint32_t slot) { return state_->files[slot]; }
    [[nodiscard]] bool contains(const std::byte* first, size_t size, bool shared) const {
        const std::byte* base = shared ? shared_.get() : tables_.get();
        return first >= base &&
               first + size <= base + (shared ? layout_.shared_size : layout_.tables_size);
    }

    // Gives a file `words` words of the directory.
    void place_file(uint32_t slot, uint64_t first, uint64_t words) {
        file(slot).directory_first = first;
        file(slot).directory_count = words;
    }
    // Makes the entry of a page VALID, in its own frame and without pins. Returns null if there is
    // no room.
    PageEntry* fill_page(uint32_t slot, PageIndex page, int error = 0) {
        using device::DeviceWords;
        device::PinnedEntry pinned = device::pin_page(*state_, file(slot), page);
        FrameIndex frame = 0;
        if (pinned.entry == nullptr || !device::take_frame(*state_, state_->clock_hand++, frame))
            return nullptr;
        const uint32_t generation = device::next_generation(*state_, frame);
        EXPECT_TRUE(device::claim<DeviceWords>(*pinned.entry, pinned.seen, frame, generation));
        state_->owners[frame] = make_owner(slot, page);
        state_->completions[frame] = make_completion(generation, static_cast<uint32_t>(error),
                                                     4096);
        device::publish_if_complete(*state_, *pinned.entry, *pinned.entry);
        device::unpin<DeviceWords>(*pinned.entry);
        return pinned.entry;
    }

private:
    struct Free {
        void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    using Bytes = std::unique_ptr<std::byte, Free>;
    static Bytes allocate(size_t size) {
        auto* bytes = static_cast<std::byte*>(
            std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
        std::fill_n(bytes, size, std::byte{0});
        return Bytes(bytes);
    }

    Layout layout_;
    Bytes frames_, tables_, shared_;
    FileSystemState* state_ = nullptr;
};

}  // namespace penstock::page_cache
