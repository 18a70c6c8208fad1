// Which frames a team tries next when it needs some: those of its ring, or those at the clock hand.
//
// A ring is a team's share of the cache (seed 000, section 5): slabs of adjacent frames, the
// oldest first. The team cycles through them, so that it evicts what it read longest ago, without
// asking other teams. Pages that are read once, because they are advised to be or because their
// stream is longer than the ring, take turns in a few slabs of it instead. Fresh slabs are used
// first. Shares are binding only when there are none, and are adjusted all the time: a team with
// less than a share takes from a team that has more, or from a team that has taken nothing since
// the whole cache turned over (the blocks of a launch that has ended).
//
// A ring says where to look. The owner word of a frame names its owner (device/replacement.cuh):
// two teams that try one frame do no harm. One lane of a team calls; nothing here waits.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/atomic.cuh"

namespace penstock::device {

// Adjacent frames to try.
struct FrameRange {
    FrameIndex first = 0;
    uint32_t count = 0;
};

PENSTOCK_BOTH inline bool try_lock(uint64_t& word) {
    uint64_t unlocked = 0;
    return DeviceWords::load(word, site::kRelaxed) == 0 &&
           DeviceWords::compare_exchange(word, unlocked, 1, site::kLockPort);
}
PENSTOCK_BOTH inline void unlock(uint64_t& word) { DeviceWords::store(word, 0, site::kUnlockPort); }

PENSTOCK_BOTH inline uint32_t frames_of_slab(const FileSystemState& system, uint64_t slab) {
    const uint64_t first = slab * system.slab_frames;
    const uint64_t left = system.frame_count - first;
    return left < system.slab_frames ? static_cast<uint32_t>(left) : system.slab_frames;
}

// Returns whether a frame is in this team's ring. Pages that other teams use get a second chance.
PENSTOCK_BOTH inline bool in_ring(const FileSystemState& system, const ReadaheadPlace* place,
                                  FrameIndex frame) {
    if (place == nullptr) return false;
    const uint64_t owner = DeviceWords::load(system.slab_owners[frame / system.slab_frames],
                                             site::kRelaxed);
    return system.places + owner == place + 1;
}

// Returns the common ring, for pages that blocks read together. It belongs to no team; its place
// comes after those of the teams.
PENSTOCK_BOTH inline ReadaheadPlace& common_place(const FileSystemState& system) {
    return system.places[system.place_count];
}
PENSTOCK_BOTH inline bool in_common_ring(const FileSystemState& system, FrameIndex frame) {
    return system.readahead.enabled != 0 && system.policy == ReplacementPolicy::kRings &&
           in_ring(system, &common_place(system), frame);
}
// Returns how many slabs of a full cache a ring may have. The common ring may have half of them.
PENSTOCK_BOTH inline uint64_t share_of_ring(const FileSystemState& system,
                                            const ReadaheadPlace& place, uint64_t rings) {
    const uint64_t share = system.slab_count / rings;
    const bool common = &place == &common_place(system);
    const uint64_t most = common && share < system.slab_count / 2 ? system.slab_count / 2 : share;
    return most == 0 ? 1 : most;
}

// A cursor itself tells whether it is at a slab. The number of slabs is another word, and a
// thread that saw only that one new would begin at frame 0, which holds another team's page.
PENSTOCK_BOTH constexpr uint64_t cursor_at(uint64_t slab) { return (slab + 1) << 32; }
PENSTOCK_BOTH constexpr bool has_slab(uint64_t cursor) { return cursor >> 32 != 0; }
PENSTOCK_BOTH constexpr uint64_t slab_of(uint64_t cursor) { return (cursor >> 32) - 1; }
PENSTOCK_BOTH constexpr uint64_t used_of(uint64_t cursor) { return cursor & 0xffffffff; }

// Appends a slab to a ring's list. The caller holds `ring_busy` of the place.
PENSTOCK_BOTH inline void append_slab(FileSystemState& system, ReadaheadPlace& place,
                                      uint64_t slab) {
    const auto index = static_cast<uint64_t>(&place - system.places);
    DeviceWords::store(system.slab_owners[slab], index + 1, site::kRelaxed);
    const uint64_t count = DeviceWords::load(place.slab_count, site::kRelaxed);
    if (count == 0) {
        DeviceWords::store(place.oldest, slab, site::kRelaxed);
        DeviceWords::fetch_add(system.rings_in_use, 1, site::kRelaxed);
    } else {
        system.slab_next[place.newest] = slab;
    }
    place.newest = slab;
    DeviceWords::store(place.slab_count, count + 1, site::kRelaxed);
}

// Removes the oldest slab of a ring, which must not be empty. The caller holds `ring_busy`.
PENSTOCK_BOTH inline uint64_t remove_oldest_slab(FileSystemState& system, ReadaheadPlace& place) {
    const uint64_t slab = place.oldest;
    const uint64_t count = DeviceWords::load(place.slab_count, site::kRelaxed) - 1;
    if (count == 0) {
        DeviceWords::store(place.cursor, 0, site::kRelaxed);  // it was at this slab
        DeviceWords::fetch_sub(system.rings_in_use, 1, site::kRelaxed);
    } else {
        DeviceWords::store(place.oldest, system.slab_next[slab], site::kRelaxed);
    }
    DeviceWords::store(place.slab_count, count, site::kRelaxed);
    return slab;
}

// Returns whether the next frames of a ring are free, judged by a few of them. The ring must have
// slabs. Many are free after the pages of a file were dropped. The last frames of a slab are
// often skipped.
PENSTOCK_BOTH inline bool has_free_frames(const FileSystemState& system,
                                          const ReadaheadPlace& place) {
    const auto is_free = [&system](uint64_t slab, uint64_t used) {
        const uint64_t first = slab * system.slab_frames;
        const uint64_t size = frames_of_slab(system, slab);
        if (used >= size) return false;
        return DeviceWords::load(system.owners[first + used], site::kRelaxed) == kFrameFree ||
               DeviceWords::load(system.owners[first + size / 2], site::kRelaxed) == kFrameFree;
    };
    const uint64_t cursor = DeviceWords::load(place.cursor, site::kRelaxed);
    return (has_slab(cursor) && is_free(slab_of(cursor), used_of(cursor))) ||
           is_free(DeviceWords::load(place.oldest, site::kRelaxed), 0);
}

// Returns whether a team that has read `pages` in sequence would only evict what it has read of
// them: its ring has its share of a full cache and holds no more than that. If evicted by age, none
// of the pages would be left when the team begins anew.
PENSTOCK_BOTH inline bool outruns_ring(const FileSystemState& system, const ReadaheadPlace& place,
                                       uint64_t pages) {
    const uint64_t slabs = DeviceWords::load(place.slab_count, site::kRelaxed);
    return slabs >= system.readahead.outrun_slabs && pages >= slabs * system.slab_frames &&
           (slabs + 1) * DeviceWords::load(system.rings_in_use, site::kRelaxed) >
               system.slab_count &&
           DeviceWords::load(system.fresh_hand, site::kRelaxed) >= system.slab_count &&
           !has_free_frames(system, place);
}

constexpr uint64_t kNoSlab = ~0ull;

// Takes a slab from a ring that has more than its share of `rings`, or whose team is gone.
PENSTOCK_BOTH inline uint64_t take_from_other_ring(FileSystemState& system, ReadaheadPlace& place,
                                                   uint64_t rings, uint64_t turn) {
    constexpr unsigned kTries = 8;
    for (unsigned i = 0; i < kTries; ++i) {
        const uint64_t hand = DeviceWords::fetch_add(system.ring_hand, 1, site::kRelaxed);
        const uint64_t owner = DeviceWords::load(system.slab_owners[hand % system.slab_count],
                                                 site::kRelaxed);
        if (owner == 0) continue;
        ReadaheadPlace& other = system.places[owner - 1];
        if (&other == &place) continue;
        // A negative value means that the ring has just had its turn.
        const auto since = static_cast<int64_t>(turn -
                                                DeviceWords::load(other.turn, site::kRelaxed));
        const bool gone = since > static_cast<int64_t>(system.slab_count);
        // The common ring's share is taken from all other rings alike.
        const bool common = &place == &common_place(system);
        const uint64_t share = share_of_ring(system, other, common ? 2 * rings : rings);
        if (!gone && DeviceWords::load(other.slab_count, site::kRelaxed) <= share) continue;
        if (!try_lock(other.ring_busy)) continue;
        uint64_t slab = kNoSlab;
        if (DeviceWords::load(other.slab_count, site::kRelaxed) > 0)
            slab = remove_oldest_slab(system, other);
        unlock(other.ring_busy);
        if (slab != kNoSlab) return slab;
    }
    return kNoSlab;
}

// Gives a ring its next slab and returns it, or kNoSlab. The caller holds `ring_busy` of the
// place.
PENSTOCK_BOTH inline uint64_t take_slab(FileSystemState& system, ReadaheadPlace& place) {
    const uint64_t turn = DeviceWords::fetch_add(system.slab_hand, 1, site::kRelaxed) + 1;
    uint64_t slab = kNoSlab;
    if (DeviceWords::load(system.fresh_hand, site::kRelaxed) < system.slab_count) {
        const uint64_t fresh = DeviceWords::fetch_add(system.fresh_hand, 1, site::kRelaxed);
        if (fresh < system.slab_count) slab = fresh;
    }
    const uint64_t own = DeviceWords::load(place.slab_count, site::kRelaxed);
    if (slab == kNoSlab) {
        uint64_t rings = DeviceWords::load(system.rings_in_use, site::kRelaxed);
        if (own == 0) ++rings;
        if (own < share_of_ring(system, place, rings))
            slab = take_from_other_ring(system, place, rings, turn);
        if (slab == kNoSlab && own > 0) slab = remove_oldest_slab(system, place);
    }
    if (slab != kNoSlab) {
        append_slab(system, place, slab);
        DeviceWords::store(place.turn, turn, site::kRelaxed);
    }
    return slab;
}

enum class NextSlab : uint32_t { kBegun, kBusy, kNone };

// Moves from the cursor `seen` to the next slab, unless another team of the block has moved it or
// is moving it. Otherwise the rest of a skipped slab would be unused, and pages evicted instead.
// `once`: for pages that are read once. These take turns in the few slabs that such pages had
// before, so that the other slabs of the ring keep their pages.
PENSTOCK_BOTH inline NextSlab next_slab(FileSystemState& system, ReadaheadPlace& place, bool once,
                                        uint64_t seen) {
    if (!try_lock(place.ring_busy)) return NextSlab::kBusy;
    uint64_t& word = once ? place.once_cursor : place.cursor;
    const uint64_t now = DeviceWords::load(word, site::kRelaxed);
    if (now >> 32 != seen >> 32 || now < seen) {
        unlock(place.ring_busy);
        return NextSlab::kBegun;
    }
    uint64_t slab = kNoSlab;
    if (once) {
        const uint64_t begun = DeviceWords::load(place.once_turn, site::kRelaxed);
        DeviceWords::store(place.once_turn, begun + 1, site::kRelaxed);
        uint64_t& kept = place.once_slabs[begun % system.readahead.once_slabs];
        const auto index = static_cast<uint64_t>(&place - system.places);
        const bool mine = kept != 0 && DeviceWords::load(system.slab_owners[kept - 1],
                                                         site::kRelaxed) == index + 1;
        slab = mine ? kept - 1 : take_slab(system, place);
        if (mine) {  // records that the team is not gone
            const uint64_t turn = DeviceWords::fetch_add(system.slab_hand, 1, site::kRelaxed) + 1;
            DeviceWords::store(place.turn, turn, site::kRelaxed);
        }
        kept = slab + 1;
    } else {
        slab = take_slab(system, place);
    }
    if (slab != kNoSlab) DeviceWords::store(word, cursor_at(slab), site::kRelaxed);
    unlock(place.ring_busy);
    return slab != kNoSlab ? NextSlab::kBegun : NextSlab::kNone;
}

// How often a busy ring is tried again before frames are sought anywhere, which evicts pages while
// other frames are free. The holder is soon done: on a GPU in microseconds, or tens of them if its
// instructions come from memory. A lane of the same warp proceeds only while this one pauses.
#ifdef __CUDA_ARCH__
constexpr unsigned kRingTries = 1024;
PENSTOCK_BOTH inline void pause_for_ring() { __nanosleep(100); }
#else
constexpr unsigned kRingTries = 64;
PENSTOCK_BOTH inline void pause_for_ring() {}
#endif

// Returns up to `want` adjacent frames to try; none: look anywhere. If fewer than `least` are left
// at the end of a slab, they are skipped, unless they are the whole slab.
PENSTOCK_BOTH inline FrameRange ring_frames(FileSystemState& system, ReadaheadPlace& place,
                                            uint32_t want, uint32_t least, bool once) {
    uint64_t& word = once ? place.once_cursor : place.cursor;
    for (unsigned i = 0; i < kRingTries; ++i) {
        uint64_t cursor = DeviceWords::load(word, site::kRelaxed);
        const auto left = [&]() -> uint64_t {
            if (!has_slab(cursor)) return 0;
            const uint64_t size = frames_of_slab(system, slab_of(cursor));
            return used_of(cursor) < size ? size - used_of(cursor) : 0;
        };
        const bool whole = has_slab(cursor) && used_of(cursor) == 0;  // the last slab may be short
        if (left() >= least || whole) {
            cursor = DeviceWords::fetch_add(word, want, site::kRelaxed);
            if (const uint64_t count = left(); count > 0) {
                const uint64_t first = slab_of(cursor) * system.slab_frames + used_of(cursor);
                return {static_cast<FrameIndex>(first),
                        count < want ? static_cast<uint32_t>(count) : want};
            }
        }
        const NextSlab next = next_slab(system, place, once, cursor);
        if (next == NextSlab::kNone) break;
        if (next == NextSlab::kBusy) pause_for_ring();
    }
    return {};
}

PENSTOCK_BOTH inline FrameRange ring_frames(FileSystemState& system, ReadaheadPlace& place,
                                            uint32_t want, uint32_t least) {
    return ring_frames(system, place, want, least, place.once != ReadOnce::kNo);
}

// Returns up to `want` adjacent frames to try, by the policy of the file system. `once`: from the
// frames of the ring that take turns.
PENSTOCK_BOTH inline FrameRange next_frames(FileSystemState& system, ReadaheadPlace* place,
                                            uint32_t want, uint32_t least, bool once) {
    if (place != nullptr && system.policy == ReplacementPolicy::kRings) {
        const FrameRange range = ring_frames(system, *place, want, least, once);
        if (range.count > 0) return range;
    }
    const uint64_t hand = DeviceWords::fetch_add(system.clock_hand, want, site::kRelaxed);
    const auto first = static_cast<FrameIndex>(hand % system.frame_count);
    const uint32_t left = system.frame_count - first;
    return {first, left < want ? left : want};
}
PENSTOCK_BOTH inline FrameRange next_frames(FileSystemState& system, ReadaheadPlace* place,
                                            uint32_t want, uint32_t least) {
    const bool once = place != nullptr && place->once != ReadOnce::kNo;
    return next_frames(system, place, want, least, once);
}

}  // namespace penstock::device
