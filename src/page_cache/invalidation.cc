#include "page_cache/invalidation.h"

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

void drop_pins(FileSystemState& system) {
    const uint64_t entries = uint64_t{system.leaf_count} * limits::kLeafEntries;
    for (uint64_t i = 0; i < entries; ++i) {
        const uint64_t seen = DeviceWords::load(system.leaves[i], site::kRelaxed);
        if (pins_of(seen) != 0) DeviceWords::fetch_and(system.leaves[i], ~kPinMask, site::kUnpin);
    }
    DeviceWords::store(system.view_pins, 0, site::kRelaxed);
}

int check_invariants(FileSystemState& system) {
    std::vector<bool> named(system.frame_count);
    uint64_t pins = 0;
    for (uint64_t leaf = 0; leaf < system.leaf_count; ++leaf) {
        const uint64_t owner = system.leaf_owners[leaf];
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
        }
    }
    return pins == system.view_pins ? 0 : 4;
}

}  // namespace penstock::page_cache
