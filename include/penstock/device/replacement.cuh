// Which frame a new page gets: free ones first, then what CLOCK finds unused.
//
// The one function that misses call is take_frame; other policies (seed 000, section 5: a ring for
// each block) come in behind it. A frame is in exactly one of three hands: an entry (FETCHING,
// VALID, FAILED), a team (kFrameTaken), or nobody (kFrameFree).
#pragma once

#include "penstock/device/page_table.cuh"

namespace penstock::device {

// Tries to take the frame that `hand` points at.
PENSTOCK_BOTH inline bool take_frame_at(FileSystemState& system, FrameIndex frame) {
    uint64_t owner = DeviceWords::load(system.owners[frame], site::kRelaxed);
    if (owner == kFrameFree) {
        return DeviceWords::compare_exchange(system.owners[frame], owner, kFrameTaken,
                                             site::kTakeFrame);
    }
    if (owner == kFrameTaken) return false;
    PageEntry* entry = entry_of_owner(system, owner);
    if (entry == nullptr) return false;
    const uint64_t seen = publish_if_complete(system, *entry,
                                              DeviceWords::load(*entry, site::kLook));
    if (frame_of(seen) != frame) return false;
    if ((seen & kTouchedBit) != 0) {
        DeviceWords::fetch_and(*entry, ~kTouchedBit, site::kRelaxed);
        return false;
    }
    if (!evict<DeviceWords>(*entry, seen, frame)) return false;
    DeviceWords::store(system.owners[frame], kFrameTaken, site::kRelaxed);
    return true;
}

// A frame for the caller alone: first the one at `hint` (where CLOCK's hand stood when the caller
// drew its turn, so that neighbouring misses get neighbouring frames), then onwards. False: two
// rounds found none.
PENSTOCK_BOTH inline bool take_frame(FileSystemState& system, uint64_t hint, FrameIndex& frame) {
    frame = static_cast<FrameIndex>(hint % system.frame_count);
    if (take_frame_at(system, frame)) return true;
    for (uint64_t tries = 0; tries < 2ull * system.frame_count; ++tries) {
        const uint64_t hand = DeviceWords::fetch_add(system.clock_hand, 1, site::kRelaxed);
        frame = static_cast<FrameIndex>(hand % system.frame_count);
        if (take_frame_at(system, frame)) return true;
    }
    return false;
}

PENSTOCK_BOTH inline void give_frame_back(FileSystemState& system, FrameIndex frame) {
    DeviceWords::store(system.owners[frame], kFrameFree, site::kFreeFrame);
}

// The generation that the next fill of a frame in the caller's hands carries.
PENSTOCK_BOTH inline uint32_t next_generation(const FileSystemState& system, FrameIndex frame) {
    const uint64_t last = SystemWords::load(system.completions[frame], site::kRelaxed);
    return static_cast<uint32_t>((completion_generation(last) + 1) & kGenerationMax);
}

}  // namespace penstock::device
