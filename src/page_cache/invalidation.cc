#include "page_cache/invalidation.h"

#include <bit>
#include <vector>

#include "penstock/device/page_table.cuh"

namespace penstock::page_cache {

using device::DeviceWords;

bool drop_file(FileSystemState& system, uint32_t slot) {
    const FileState& file = system.files[slot];
    bool all = true;
    for (uint64_t i = 0; i < file.directory_count; ++i) {
        all = device::drop_leaf(system, file.directory_first + i) && all;
    }
    return all;
}

uint64_t drop_held(FileSystemState& system) {
    const uint64_t calls = device::drop_held(system, 0, 1);
    DeviceWords::store(system.held_pins, 0, site::kRelaxed);
    return calls;
}

namespace {

// Checks invariants 5 and 6. `named`: frames that entries name.
int check_windows(const FileSystemState& system, const std::vector<bool>& named) {
    uint64_t places = 0;
    std::vector<bool> taken(system.frame_count);
    for (uint32_t i = 0; i < system.place_count; ++i) {
        for (const ReadStream& stream : system.places[i].streams) {
            uint64_t windows = 0;
            // In a host copy the stream does not say where its windows lie.
            const auto s = static_cast<uint64_t>(&stream - system.places[i].streams);
            const Window* of_stream = windows_of(system, i, s);
            for (uint64_t w = 0; w < stream.windows_max; ++w) {
                const Window& window = of_stream[w];
                windows += window.count != 0;
                places += window.count;
                if (window.count > limits::kWindowPagesMax) return 6;
                if (window.count < 64 && window.left >> window.count != 0) return 6;
                for (uint64_t left = window.left; left != 0; left &= left - 1) {
                    const uint64_t frame = window.frame +
                                           static_cast<uint64_t>(std::countr_zero(left));
                    if (frame >= system.frame_count || taken[frame] || named[frame]) return 5;
                    taken[frame] = true;
                }
            }
            if (windows != stream.window_count) return 6;
        }
    }
    for (uint32_t frame = 0; frame < system.frame_count; ++frame) {
        const uint64_t owner = system.owners[frame];
        if (taken[frame] != (owner == kFrameTaken)) return 5;
        if (named[frame] != (owner != kFrameTaken && owner != kFrameFree)) return 5;
    }
    return places == system.window_frames ? 0 : 6;
}

// Checks invariants 7 and 8.
int check_rings(const FileSystemState& system) {
    std::vector<bool> seen(system.slab_count);
    uint64_t rings = 0;
    // After the places of teams there is one that all teams share.
    const uint32_t places = system.place_count + (system.readahead.enabled != 0 ? 1 : 0);
    for (uint32_t i = 0; i < places; ++i) {
        const ReadaheadPlace& place = system.places[i];
        if (place.busy != 0 || place.ring_busy != 0) return 8;
        rings += place.slab_count != 0;
        uint64_t slab = place.oldest;
        for (uint64_t k = 0; k < place.slab_count; ++k) {
            if (slab >= system.slab_count || seen[slab]) return 7;
            seen[slab] = true;
            if (system.slab_owners[slab] != i + 1) return 7;
            if (k + 1 == place.slab_count && slab != place.newest) return 7;
            slab = system.slab_next[slab];
        }
    }
    for (uint32_t slab = 0; slab < system.slab_count; ++slab) {
        if (seen[slab] != (system.slab_owners[slab] != 0)) return 7;
        if (seen[slab] && slab >= system.fresh_hand) return 7;
    }
    return rings == system.rings_in_use ? 0 : 7;
}

// Checks invariant 9. `dirty`: frames of dirty pages.
int check_dirty(const FileSystemState& system, const std::vector<bool>& dirty) {
    uint64_t count = 0, under_way = 0;
    for (uint32_t frame = 0; frame < system.frame_count; ++frame) {
        count += dirty[frame];
        const WritePhase phase = phase_of(system.write_backs[frame]);
        under_way += phase == WritePhase::kUnderWay;
        if (phase == WritePhase::kEnding || phase == WritePhase::kHeld) return 9;
        if (phase == WritePhase::kUnderWay && !dirty[frame]) return 9;
        const uint64_t* marks = system.marks + uint64_t{frame} * system.mark_words;
        for (uint32_t i = 0; i < system.mark_words; ++i)
            if (marks[i] != 0 && !dirty[frame]) return 9;
    }
    return count == system.dirty_pages && under_way == system.write_backs_begun ? 0 : 9;
}

}  // namespace

int check_invariants(FileSystemState& system) {
    std::vector<bool> named(system.frame_count), dirty(system.frame_count);
    uint64_t pins = 0, in_use = 0;
    for (uint64_t leaf = 0; leaf < system.leaf_count; ++leaf) {
        const uint64_t owner = system.leaf_owners[leaf];
        in_use += owner != 0;
        if (owner != 0 && system.directory[owner - 1] != leaf + 1) return 3;
        for (uint32_t i = 0; i < limits::kLeafEntries; ++i) {
            PageEntry& entry = system.leaves[leaf * limits::kLeafEntries + i];
            pins += pins_of(entry);
            const PageState state = state_of(entry);
            if (state == PageState::kEmpty) continue;
            if (state == PageState::kRetired || owner == 0) return 3;
            const FrameIndex frame = frame_of(entry);
            if (device::entry_of_owner(system, system.owners[frame]) != &entry) return 1;
            if (named[frame]) return 2;
            named[frame] = true;
            dirty[frame] = (entry & kDirtyBit) != 0;
            if (dirty[frame] && state != PageState::kValid) return 9;
            const FileState& file = system.files[system.owners[frame] >> 48];
            if (dirty[frame] && (file.generation & 1) == 0) return 10;
        }
    }
    if (in_use != system.leaves_in_use) return 3;
    if (const int broken = check_dirty(system, dirty); broken != 0) return broken;
    if (pins != pages_held(system.held_pins)) return 4;
    if (const int broken = check_windows(system, named); broken != 0) return broken;
    return check_rings(system);
}

}  // namespace penstock::page_cache
