// Takes a frame out of use: a free frame, or one whose page has no pins.
//
// frame_ring.cuh says which frame to try. A frame is in exactly one of three states: an entry has
// it (FETCHING, VALID, FAILED), a team or its windows have it (kFrameTaken), or it is free
// (kFrameFree). A page that was used again, or by teams other than its ring's, has a second chance
// (kTouchedBit).
#pragma once

#include "penstock/device/counts.cuh"
#include "penstock/device/frame_ring.cuh"
#include "penstock/device/page_table.cuh"
#include "penstock/device/write_back.cuh"

namespace penstock::device {

// Counts a page that was requested ahead for all blocks and that none of them has read.
PENSTOCK_BOTH inline void count_unread(FileSystemState& system, uint64_t owner) {
    add_count(system.totals[(owner >> 48) % limits::kFilesMax].counts.wasted, 1);
}

// Tries to take a frame. `walk` may have visited the frame before it. A dirty page keeps its frame:
// a caller that finds no room has pages written back (RoomWait). With `spares` a page of the common
// ring that has a second chance keeps its frame, too, each time, because there are other frames.
PENSTOCK_DEVICE inline bool take_frame_at(FileSystemState& system, FrameIndex frame,
                                          OwnerWalk& walk, bool spares = false) {
    uint64_t owner = DeviceWords::load(system.owners[frame], site::kRelaxed);
    if (owner == kFrameFree) {
        return DeviceWords::compare_exchange(system.owners[frame], owner, kFrameTaken,
                                             site::kTakeFrame);
    }
    if (owner == kFrameTaken) return false;
    PageEntry* entry = walk.entry(system, owner);
    if (entry == nullptr) return false;
    const uint64_t seen = publish_if_complete(system, *entry,
                                              DeviceWords::load(*entry, site::kLook));
    if (frame_of(seen) != frame) return false;
    if ((seen & kTouchedBit) != 0) {
        if (spares && in_common_ring(system, frame)) return false;
        DeviceWords::fetch_and(*entry, ~kTouchedBit, site::kRelaxed);
        if (in_common_ring(system, frame)) count_unread(system, owner);
        return false;
    }
    if (!evict<DeviceWords>(*entry, seen, frame)) return false;
    DeviceWords::store(system.owners[frame], kFrameTaken, site::kRelaxed);
    return true;
}
PENSTOCK_DEVICE inline bool take_frame_at(FileSystemState& system, FrameIndex frame) {
    OwnerWalk walk;
    return take_frame_at(system, frame, walk);
}

// Takes a frame for the caller alone: the one at `hint` (from next_frames(), so that neighbouring
// misses get neighbouring frames), or else the next one after the clock hand. Returns false if two
// rounds found none. If nearly all pages are dirty, it gives up after kDirtyTriesMax frames, since
// the caller then has pages written back (RoomWait).
constexpr uint64_t kNoHint = ~0ull;
constexpr uint64_t kDirtyTriesMax = 4096;
PENSTOCK_DEVICE inline bool take_frame(FileSystemState& system, uint64_t hint, FrameIndex& frame) {
    if (hint != kNoHint) {
        frame = static_cast<FrameIndex>(hint % system.frame_count);
        if (take_frame_at(system, frame)) return true;
    }
    const uint64_t rounds = 2ull * system.frame_count;
    const uint64_t dirty = DeviceWords::load(system.dirty_pages, site::kRelaxed);
    // Threads count a page after they mark it, so the count may be below 0 for a moment.
    const bool nearly_all = static_cast<int64_t>(dirty) >
                            static_cast<int64_t>(system.frame_count - system.frame_count / 16);
    const uint64_t most = nearly_all && kDirtyTriesMax < rounds ? kDirtyTriesMax : rounds;
    for (uint64_t tries = 0; tries < most; ++tries) {
        const uint64_t hand = DeviceWords::fetch_add(system.clock_hand, 1, site::kRelaxed);
        frame = static_cast<FrameIndex>(hand % system.frame_count);
        if (take_frame_at(system, frame)) return true;
    }
    return false;
}

// Frees the frame of a page. Returns false if the page is pinned or dirty.
PENSTOCK_BOTH inline bool drop_page(FileSystemState& system, const FileState& file,
                                    PageIndex page) {
    const uint64_t leaf = leaf_word(system, file, page);
    if (leaf == 0) return true;
    // If the leaf is given to other pages meanwhile, one of those is dropped, which does no harm.
    PageEntry& entry = *entry_in_leaf(system, leaf, page);
    const uint64_t seen = publish_if_complete(system, entry, DeviceWords::load(entry, site::kLook));
    const PageState state = state_of(seen);
    if (state != PageState::kValid && state != PageState::kFailed) return true;
    const FrameIndex frame = frame_of(seen);
    const bool unread = (seen & kTouchedBit) != 0 && in_common_ring(system, frame);
    const uint64_t owner = DeviceWords::load(system.owners[frame], site::kRelaxed);
    if (!evict<DeviceWords>(entry, seen, frame)) return false;
    DeviceWords::store(system.owners[frame], kFrameFree, site::kFreeFrame);
    if (unread) count_unread(system, owner);
    return true;
}

// The same for a page that was seen earlier.
PENSTOCK_DEVICE inline bool drop_seen(FileSystemState& system, const SeenPage& page) {
    return drop_page(system, system.files[page.owner >> 48], page.owner & ((1ull << 48) - 1));
}

PENSTOCK_BOTH inline void give_frame_back(FileSystemState& system, FrameIndex frame) {
    DeviceWords::store(system.owners[frame], kFrameFree, site::kFreeFrame);
}

// Returns the generation that the next fill of a frame must carry. The caller owns the frame.
PENSTOCK_BOTH inline uint32_t next_generation(const FileSystemState& system, FrameIndex frame) {
    const uint64_t last = SystemWords::load(system.completions[frame], site::kRelaxed);
    return static_cast<uint32_t>((completion_generation(last) + 1) & kGenerationMax);
}

}  // namespace penstock::device
