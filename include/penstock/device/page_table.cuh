// The page table: from (file, page) to page entry. It has two levels, is indexed, and a lookup
// takes no lock.
//
// A file's directory holds one word for each leaf of 512 entries. Leaves come from a bounded pool
// and are given to other pages when the pool is used up. A leaf is never taken from a reader: a
// reader first pins its entry and then checks that the directory still names the leaf; a leaf is
// given away only after every entry was EMPTY, without pins, and RETIRED. Owners of leaf locks are
// resident and never wait.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/atomic.cuh"
#include "penstock/device/page_entry.cuh"

namespace penstock::device {

// A page entry that was found and pinned, and its value then. Null: no leaf is free now; look again
// after a wait.
struct PinnedEntry {
    PageEntry* entry;
    uint64_t seen;
};

// Returns the index of the directory word of a page's leaf. A result of `directory_size` or more
// names no leaf: the file's slot was reused, and `page` is of the slot's earlier file.
PENSTOCK_BOTH inline uint64_t directory_index(const FileState& file, PageIndex page) {
    return DeviceWords::load(file.directory_first, site::kRelaxed) + page / limits::kLeafEntries;
}
// Returns a page's directory word: its leaf + 1, or 0 if there is none.
PENSTOCK_BOTH inline uint64_t leaf_word(const FileSystemState& system, const FileState& file,
                                        PageIndex page) {
    const uint64_t index = directory_index(file, page);
    if (index >= system.directory_size) return 0;
    return DeviceWords::load(system.directory[index], site::kRelaxed);
}

// Returns whether the directory names a leaf. Truncation calls it, and skips pages without a leaf.
// It is a read-modify-write, as installing a leaf is, so a thread that installs the leaf later sees
// the truncation.
PENSTOCK_BOTH inline bool has_leaf(FileSystemState& system, const FileState& file, PageIndex page) {
    const uint64_t index = directory_index(file, page);
    return index < system.directory_size &&
           DeviceWords::fetch_or(system.directory[index], 0, site::kLeafWord) != 0;
}

PENSTOCK_BOTH inline PageEntry* entry_in_leaf(const FileSystemState& system, uint64_t leaf_word,
                                              PageIndex page) {
    return system.leaves + (leaf_word - 1) * limits::kLeafEntries + page % limits::kLeafEntries;
}

// Returns the entry to which a frame's owner word points, or null. The result is a guess: every
// caller checks the entry itself.
PENSTOCK_BOTH inline PageEntry* entry_of_owner(FileSystemState& system, uint64_t owner) {
    const FileState& file = system.files[(owner >> 48) % limits::kFilesMax];
    const PageIndex page = owner & ((1ull << 48) - 1);
    const uint64_t leaf = leaf_word(system, file, page);
    return leaf == 0 ? nullptr : entry_in_leaf(system, leaf, page);
}
// The same for owner words that mostly increase by one, as those of adjacent frames do: it reads
// the directory once for each leaf.
class OwnerWalk {
public:
    PENSTOCK_BOTH PageEntry* entry(FileSystemState& system, uint64_t owner) {
        const bool next = owner == last_ + 1 && owner % limits::kLeafEntries != 0;
        entry_ = next && entry_ != nullptr ? entry_ + 1 : entry_of_owner(system, owner);
        last_ = owner;
        return entry_;
    }

private:
    uint64_t last_ = 0;  // owner of a page that has no page before it
    PageEntry* entry_ = nullptr;
};

// Publishes a page in FETCHING if its bytes have arrived, whichever team requested it. Returns the
// newest entry.
PENSTOCK_BOTH inline uint64_t publish_if_complete(FileSystemState& system, PageEntry& entry,
                                                  uint64_t seen) {
    if (state_of(seen) != PageState::kFetching) return seen;
    const uint64_t completion = SystemWords::load(system.completions[frame_of(seen)],
                                                  site::kCompletion);
    return publish<DeviceWords>(entry, seen, completion);
}

// Returns whether every page of a leaf could be evicted now. With `second_chance`, pages that were
// used since the last check keep the leaf once. This is checked before anything is evicted, so that
// a leaf which stays keeps its other pages too.
PENSTOCK_BOTH inline bool is_leaf_idle(FileSystemState& system, uint64_t leaf, bool second_chance) {
    PageEntry* entries = system.leaves + leaf * limits::kLeafEntries;
    bool touched = false;
    for (uint32_t i = 0; i < limits::kLeafEntries; ++i) {
        const uint64_t seen = publish_if_complete(system, entries[i],
                                                  DeviceWords::load(entries[i], site::kLook));
        if (state_of(seen) == PageState::kFetching || (seen & (kPinMask | kDirtyBit)) != 0)
            return false;
        touched = touched || (seen & kTouchedBit) != 0;
    }
    if (!second_chance || !touched) return true;
    for (uint32_t i = 0; i < limits::kLeafEntries; ++i) {
        if ((DeviceWords::load(entries[i], site::kRelaxed) & kTouchedBit) != 0)
            DeviceWords::fetch_and(entries[i], ~kTouchedBit, site::kRelaxed);
    }
    return false;
}

// Takes every entry of a leaf out of use: evicts the pages (their frames become free) and retires
// the entries. Returns false if a page of the leaf is held; then only evictions have happened.
PENSTOCK_BOTH inline bool retire_leaf(FileSystemState& system, uint64_t leaf) {
    PageEntry* entries = system.leaves + leaf * limits::kLeafEntries;
    uint32_t retired = 0;
    for (; retired < limits::kLeafEntries; ++retired) {
        PageEntry& entry = entries[retired];
        const uint64_t seen = publish_if_complete(system, entry,
                                                  DeviceWords::load(entry, site::kLook));
        const PageState state = state_of(seen);
        if (state == PageState::kValid || state == PageState::kFailed) {
            const FrameIndex frame = frame_of(seen);
            if (!evict<DeviceWords>(entry, seen, frame)) break;
            DeviceWords::store(system.owners[frame], kFrameFree, site::kFreeFrame);
        }
        if (!retire<DeviceWords>(entry)) break;
    }
    if (retired == limits::kLeafEntries) return true;
    while (retired > 0) restore<DeviceWords>(entries[--retired]);
    return false;
}

// Gives a leaf whose entries are all RETIRED back to the pool: no directory names it any more.
PENSTOCK_BOTH inline void release_leaf(FileSystemState& system, uint64_t leaf) {
    const uint64_t owner = DeviceWords::load(system.leaf_owners[leaf], site::kRelaxed);
    if (owner != 0) DeviceWords::store(system.directory[owner - 1], 0, site::kRelaxed);
    DeviceWords::store(system.leaf_owners[leaf], 0, site::kRelaxed);
    PageEntry* entries = system.leaves + leaf * limits::kLeafEntries;
    for (uint32_t i = 0; i < limits::kLeafEntries; ++i) restore<DeviceWords>(entries[i]);
}

// Tries to lock a leaf, so that no other thread gives it to other pages.
PENSTOCK_BOTH inline bool try_lock_leaf(FileSystemState& system, uint64_t leaf) {
    uint64_t unlocked = 0;
    return DeviceWords::compare_exchange(system.leaf_locks[leaf], unlocked, 1, site::kLockPort);
}

PENSTOCK_BOTH inline void unlock_leaf(FileSystemState& system, uint64_t leaf) {
    DeviceWords::store(system.leaf_locks[leaf], 0, site::kUnlockPort);
}

// Evicts the pages of one directory word and gives its leaf back. Returns false if a page is held.
PENSTOCK_BOTH inline bool drop_leaf(FileSystemState& system, uint64_t index) {
    // As has_leaf(): a thread that installs the leaf later sees what the caller did before.
    const uint64_t word = DeviceWords::fetch_or(system.directory[index], 0, site::kLeafWord);
    if (word == 0) return true;
    const uint64_t leaf = word - 1;
    if (!try_lock_leaf(system, leaf)) return false;
    // The leaf may have gone to other pages before it was locked.
    const bool still = DeviceWords::load(system.leaf_owners[leaf], site::kRelaxed) == index + 1;
    const bool dropped = !still || retire_leaf(system, leaf);
    if (still && dropped) {
        release_leaf(system, leaf);
        DeviceWords::fetch_sub(system.leaves_in_use, 1, site::kRelaxed);
    }
    unlock_leaf(system, leaf);
    return dropped;
}

// Takes a leaf from its pages, if it has pages and they can be evicted. The caller holds its lock.
PENSTOCK_BOTH inline bool empty_leaf(FileSystemState& system, uint64_t leaf, bool second_chance) {
    if (DeviceWords::load(system.leaf_owners[leaf], site::kRelaxed) == 0) return true;
    if (!is_leaf_idle(system, leaf, second_chance) || !retire_leaf(system, leaf)) return false;
    release_leaf(system, leaf);
    return true;
}

// Gives directory word `index` a leaf: a free one if there is any, else one whose pages can be
// evicted. Returns the word's value (leaf + 1), or 0 if every leaf is held now.
PENSTOCK_BOTH inline uint64_t install_leaf(FileSystemState& system, uint64_t index) {
    const uint64_t count = system.leaf_count;
    for (uint64_t tries = 0; tries < 4 * count; ++tries) {
        uint64_t present = DeviceWords::load(system.directory[index], site::kRelaxed);
        if (present != 0) return present;
        const uint64_t leaf = DeviceWords::fetch_add(system.leaf_hand, 1, site::kRelaxed) % count;
        // The first round of the hand looks for free leaves only.
        if (tries < count && DeviceWords::load(system.leaf_owners[leaf], site::kRelaxed) != 0 &&
            DeviceWords::load(system.leaves_in_use, site::kRelaxed) < count)
            continue;
        if (!try_lock_leaf(system, leaf)) continue;
        // Another thread may have given the word a leaf since: then no pages are evicted in vain.
        present = DeviceWords::load(system.directory[index], site::kRelaxed);
        const bool in_use = DeviceWords::load(system.leaf_owners[leaf], site::kRelaxed) != 0;
        if (present != 0 || !empty_leaf(system, leaf, tries < 3 * count)) {
            unlock_leaf(system, leaf);
            if (present != 0) return present;
            continue;
        }
        DeviceWords::store(system.leaf_owners[leaf], index + 1, site::kRelaxed);
        const bool won = DeviceWords::compare_exchange(system.directory[index], present, leaf + 1,
                                                       site::kLeafWord);
        if (!won) DeviceWords::store(system.leaf_owners[leaf], 0, site::kRelaxed);
        // A leaf that passes from one word to another is not counted: others would look for a free
        // leaf.
        if (won && !in_use) DeviceWords::fetch_add(system.leaves_in_use, 1, site::kRelaxed);
        if (!won && in_use) DeviceWords::fetch_sub(system.leaves_in_use, 1, site::kRelaxed);
        unlock_leaf(system, leaf);
        return won ? leaf + 1 : present;
    }
    return 0;
}

// Drops the pins of every `step`-th entry from `index` on, and discards as many of the asynchronous
// calls, while no other kernel runs. Returns how many calls had begun.
PENSTOCK_BOTH inline uint64_t drop_held(FileSystemState& system, uint64_t index, uint64_t step) {
    const uint64_t entries = uint64_t{system.leaf_count} * limits::kLeafEntries;
    for (uint64_t i = index; i < entries; i += step) {
        const uint64_t seen = DeviceWords::load(system.leaves[i], site::kRelaxed);
        if (pins_of(seen) == 0) continue;
        DeviceWords::fetch_and(system.leaves[i], ~kPinMask, site::kUnpin);
        if (state_of(seen) != PageState::kValid) continue;
        // A view that may be written may have stored to the page, and nothing tells that any more.
        const uint64_t now = DeviceWords::load(system.leaves[i], site::kLook);
        if (evict<DeviceWords>(system.leaves[i], now, frame_of(now)))
            DeviceWords::store(system.owners[frame_of(now)], kFrameFree, site::kFreeFrame);
    }
    uint64_t count = 0;
    for (uint64_t i = index; i < system.async_count; i += step) {
        uint64_t& state = system.async_calls[i].state;
        const uint64_t seen = DeviceWords::load(state, site::kRelaxed);
        if ((seen & 1) == 0) continue;
        DeviceWords::store(state, seen + 1, site::kUnlockPort);
        ++count;
    }
    return count;
}

// Finds the entry of a page and pins it. The result's entry is null if no leaf is free now, if the
// page has none and `installs` is false, or if the file's slot was reused. Then the caller drops
// what it holds, waits, looks for the file again and tries again.
PENSTOCK_BOTH inline PinnedEntry pin_page(FileSystemState& system, const FileState& file,
                                          PageIndex page, bool installs = true) {
    const uint64_t index = directory_index(file, page);
    if (index >= system.directory_size) return {};
    for (;;) {
        uint64_t leaf = DeviceWords::load(system.directory[index], site::kRelaxed);
        if (leaf == 0 && installs) leaf = install_leaf(system, index);
        if (leaf == 0) return {};
        PageEntry* entry = entry_in_leaf(system, leaf, page);
        const uint64_t seen = pin<DeviceWords>(*entry);
        if (state_of(seen) != PageState::kRetired &&
            DeviceWords::load(system.directory[index], site::kRelaxed) == leaf) {
            return {entry, seen};
        }
        unpin<DeviceWords>(*entry);
        if (state_of(seen) == PageState::kRetired) return {};  // its owner is at work: wait a turn
    }
}

// Installs leaves for `count` pages, at most a leaf's number, as far as leaves are free. One lane
// calls. The first leaf comes last: if there is only one for two, the second must go without.
PENSTOCK_NOINLINE PENSTOCK_BOTH inline void install_leaves(FileSystemState& system,
                                                           const FileState& file, PageIndex first,
                                                           uint64_t count) {
    const uint64_t begin = directory_index(file, first);  // loaded once: the slot may be reused
    const uint64_t words = (first % limits::kLeafEntries + count - 1) / limits::kLeafEntries + 1;
    for (uint64_t i = words; i-- > 0;) {
        if (begin + i < system.directory_size &&
            DeviceWords::load(system.directory[begin + i], site::kRelaxed) == 0)
            (void)install_leaf(system, begin + i);
    }
}

// Returns the file of a descriptor, or null.
PENSTOCK_DEVICE inline FileState* find_file(FileSystemState& system, Descriptor descriptor) {
    if (descriptor < 0 || descriptor_system(descriptor) != system.system) return nullptr;
    const uint32_t slot = descriptor_slot(descriptor);
    if (slot >= limits::kFilesMax) return nullptr;
    FileState& file = system.files[slot];
    const uint64_t generation = DeviceWords::load(file.generation, site::kRelaxed);
    const bool open = (generation & 1) != 0 &&
                      (generation & 0xffffffff) == descriptor_generation(descriptor);
    return open ? &file : nullptr;
}

// Returns the entry of a page that is pinned already, which keeps its leaf.
PENSTOCK_BOTH inline PinnedEntry held_page(const FileSystemState& system, const FileState& file,
                                           PageIndex page) {
    PageEntry* entry = entry_in_leaf(system, leaf_word(system, file, page), page);
    return {entry, DeviceWords::load(*entry, site::kLook)};
}

}  // namespace penstock::device
