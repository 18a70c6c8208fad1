// Windows shared by all blocks: pages in FETCHING, without pins, in adjacent frames.
//
// gadvise(kWillNeed) requests such windows. So do blocks that read a file in order together: block
// b takes pieces b, b + grid, ..., so that each block leaves gaps and all together leave none. The
// pages that follow are requested once, by whichever block finds a page of its own missing, and
// every block hits (docs/design/0013-grid-stride.md). One word for each file, FileTotals::frontier,
// says up to which page it was requested. It is read only when a page is missing, and changed by a
// compare-exchange, so hits do not touch it.
//
// The frames are of a ring that belongs to no block. An unread page in it carries kTouchedBit,
// which its first reader clears. So it has a second chance before its first use, and the bit shows
// whether the other blocks follow. The caller holds `busy` of the place; nothing here waits.
#pragma once

#include "penstock/device/window_requests.cuh"

namespace penstock::device {

// Returns a free word for one more request in flight; null: the place has as many as it may. The
// caller holds `busy` of the place; one lane calls.
PENSTOCK_DEVICE inline uint64_t* free_advised(FileSystemState& system, ReadaheadPlace& place) {
    for (uint64_t& word : place.advised) {
        if (word == 0) return &word;
        const Completion now = SystemWords::load(system.completions[word >> 32], site::kRelaxed);
        // That frame is complete, so its request has been copied out of its slot.
        if (completion_generation(now) != (word >> 1 & kGenerationMax)) return &word;
    }
    return nullptr;
}

// Submits one request for a window to the background ring, if the place may have one more. Returns
// whether it did. One lane calls.
PENSTOCK_DEVICE inline bool submit_advised(FileSystemState& system, ReadaheadPlace& place,
                                           uint64_t file, const Window& window) {
    uint64_t* word = free_advised(system, place);
    if (word == nullptr) return false;
    const Completion before = SystemWords::load(system.completions[window.frame], site::kRelaxed);
    *word = window.frame << 32 | uint64_t{completion_generation(before)} << 1 | 1;
    submit_window(system, file, window);
    return true;
}

// Returns whether a place may request one more window, which `teams` teams pull, or which goes to
// the background ring if `teams` is 0. One lane calls.
PENSTOCK_DEVICE inline bool may_ask(FileSystemState& system, ReadaheadPlace& place,
                                    unsigned teams) {
    return teams > 0 ? place.pull_count < limits::kSentWindowsMax
                     : free_advised(system, place) != nullptr;
}

// Fails pages that were claimed and cannot be requested, as if their file had been closed: a block
// that wants them requests them again.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void fail_pages(const Team& team, FileSystemState& system,
                                                  const Window& window) {
    const Completion word = make_completion(static_cast<uint32_t>(window.generation), kErrorClosed,
                                            0);
    for (uint64_t i = team.lane(); i < window.count; i += team.lanes())
        DeviceWords::store(system.completions[window.frame + i], word, site::kComplete);
    team.sync();
}

// The source of the frames of such a window.
struct FrameSource {
    ReadaheadPlace* place;  // the owner of the ring
    ReadOnce once;
};

// Pages that a team has claimed in adjacent frames. All of them are pinned until submit_claimed().
struct ClaimedPages {
    PageIndex first = 0;
    FrameRange frames;  // one for each page; none: there is no room now
    uint32_t generation = 0;
    uint64_t claimed = 0;  // bit i: page first + i was absent, and the team must request it
};

// Claims the absent pages among [first, first + count), as far as the ring has adjacent frames.
// Returns the same result in all lanes.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE ClaimedPages claim_window(const Team& team,
                                                            FileSystemState& system,
                                                            const FrameSource& source,
                                                            Descriptor descriptor, PageIndex first,
                                                            uint32_t count) {
    const uint32_t slot = descriptor_slot(descriptor);
    const FileState& file = system.files[slot];
    const uint64_t bits = source.place == &common_place(system) ? kTouchedBit : 0;
    ClaimedPages result;
    result.first = first;
    result.frames = take_adjacent_frames(team, system, *source.place, count, source.once);
    const FrameRange& frames = result.frames;
    if (frames.count == 0) return result;
    result.generation = common_generation(team, system, frames);
    if (team.lane() == 0) install_leaves(system, file, first, frames.count);
    team.sync();
    uint64_t held = 0, mine = 0;  // bit i: this lane has pinned page i; has claimed it
    for (uint32_t i = team.lane(); i < frames.count; i += team.lanes())
        if (pin_page(system, file, first + i, false).entry != nullptr) held |= 1ull << i;
    const uint64_t all = frames.count == 64 ? ~0ull : (1ull << frames.count) - 1;
    const bool pinned = team.unite(held) == all;
    // Once a page is pinned and the file seen open, its slot cannot be reused.
    if (team.any(find_file(system, descriptor) == nullptr) || !pinned) {
        for (uint32_t i = team.lane(); i < frames.count; i += team.lanes()) {
            if ((held >> i & 1) != 0) unpin<DeviceWords>(*held_page(system, file, first + i).entry);
            give_frame_back(system, frames.first + i);
        }
        team.sync();
        result.frames.count = 0;
        return result;
    }
    for (uint32_t i = team.lane(); i < frames.count; i += team.lanes()) {
        PinnedEntry page = held_page(system, file, first + i);
        const FrameIndex frame = frames.first + i;
        if (!claim<DeviceWords>(*page.entry, page.seen, frame, result.generation, bits)) continue;
        DeviceWords::store(system.owners[frame], make_owner(slot, first + i), site::kRelaxed);
        mine |= 1ull << i;
    }
    team.sync();  // what lanes stored for the frames comes before what lane 0 submits
    result.claimed = team.unite(mine);
    return result;
}

// Requests each run of claimed pages: all lanes call `submit(window)`, which returns false if there
// is no room for the request. Then unpins the pages, and frees frames whose pages other teams had
// claimed first.
template <class Team, class Submit>
PENSTOCK_DEVICE void submit_claimed(const Team& team, FileSystemState& system,
                                    Descriptor descriptor, const ClaimedPages& pages,
                                    const Submit& submit) {
    const FileState& file = system.files[descriptor_slot(descriptor)];
    for (uint64_t rest = pages.claimed; rest != 0;) {
        const Stretch stretch = first_stretch(rest);
        Window window{};
        window.first = pages.first + stretch.first;
        window.run = 1;
        window.step = 1;
        window.count = stretch.count;
        window.frame = pages.frames.first + stretch.first;
        window.generation = pages.generation;
        if (!submit(window)) fail_pages(team, system, window);
        const uint64_t ones = stretch.count == 64 ? ~0ull : (1ull << stretch.count) - 1;
        rest &= ~(ones << stretch.first);
    }
    for (uint32_t i = team.lane(); i < pages.frames.count; i += team.lanes()) {
        unpin<DeviceWords>(*held_page(system, file, pages.first + i).entry);
        if ((pages.claimed >> i & 1) == 0) give_frame_back(system, pages.frames.first + i);
    }
    team.sync();
}

// Returns the first stretch of absent pages in [first, first + count), relative to `first`.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE Stretch find_absent(const Team& team,
                                                      const FileSystemState& system,
                                                      const FileState& file, PageIndex first,
                                                      uint32_t count) {
    uint64_t absent = 0;
    AbsenceWalk walk;
    for (uint32_t i = team.lane(); i < count; i += team.lanes())
        if (walk.is_absent(system, file, first + i)) absent |= 1ull << i;
    return first_stretch(team.unite(absent));
}

// --- Blocks that read together ---

// Whether a page is absent, in flight or in the cache.
enum class Presence : uint32_t { kAbsent, kComing, kThere };
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline Presence presence_of(const FileSystemState& system,
                                                              const FileState& file, PageIndex page,
                                                              bool* unread = nullptr) {
    const uint64_t leaf = leaf_word(system, file, page);
    if (leaf == 0) return Presence::kAbsent;
    const uint64_t seen = DeviceWords::load(*entry_in_leaf(system, leaf, page), site::kRelaxed);
    const PageState state = state_of(seen);
    if (state == PageState::kEmpty || state == PageState::kRetired) return Presence::kAbsent;
    const FrameIndex frame = frame_of(seen);
    if (unread != nullptr) *unread = (seen & kTouchedBit) != 0 && in_common_ring(system, frame);
    if (state != PageState::kFetching) return Presence::kThere;
    const Completion now = SystemWords::load(system.completions[frame], site::kRelaxed);
    return completion_generation(now) == generation_of(seen) ? Presence::kThere : Presence::kComing;
}

// FileTotals::frontier, from the low end: a page 48, and a flag. The flag says that some block has
// found that other blocks do not follow. Then shared windows are requested again only when the gaps
// of a block are seen to be read.
constexpr uint64_t kFrontierLeft = 1ull << 63;

constexpr uint64_t kSamples = 8;  // pages that are checked to tell whether blocks read together

// An estimate for pages [first, first + count), from a few of them: how many are absent, and how
// many of the others are unread.
struct SampledPages {
    uint32_t absent = 0, unread = 0;
};
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline SampledPages sample_pages(const FileSystemState& system,
                                                                   const FileState& file,
                                                                   PageIndex first,
                                                                   uint64_t count) {
    SampledPages result;
    for (uint64_t i = 0; i < kSamples; ++i) {
        bool unread = false;
        const PageIndex page = first + (2 * i + 1) * count / (2 * kSamples);
        if (presence_of(system, file, page, &unread) == Presence::kAbsent) ++result.absent;
        if (unread) ++result.unread;
    }
    return result;
}

// Returns whether a stream's distance is that of a grid in which every block reads one piece of
// each round, and all blocks are resident, as far as the device tells. Then the gaps will be read.
PENSTOCK_DEVICE inline bool is_grid_stride(const FileSystemState& system,
                                           const ReadStream& stream) {
    const uint64_t blocks = uint64_t{gridDim.x} * gridDim.y * gridDim.z;
#ifdef __CUDA_ARCH__
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned warps = (threads + kWarpSize - 1) / kWarpSize;
#else
    const unsigned warps = limits::kWarpsPerBlock;
#endif
    return static_cast<uint64_t>(stream.delta) == blocks * stream.size &&
           blocks * warps <= system.place_count;
}

// Returns whether a read belongs to a stream with gaps that other blocks may read.
PENSTOCK_DEVICE inline bool may_share(const FileSystemState& system, const ReadStream& stream) {
    if (stream.delta <= static_cast<int64_t>(stream.size) || stream.streak < stream.needed / 2 ||
        system.readahead.prefetch_pages != 0 || system.policy != ReplacementPolicy::kRings)
        return false;
    return stream.streak >= 1 || is_grid_stride(system, stream);
}

// Returns how many pages the frontier may lie ahead of a reader. The ring must keep requested pages
// until the other blocks come, and as many behind them.
PENSTOCK_DEVICE inline uint64_t common_reach(const FileSystemState& system) {
    const uint64_t most = system.readahead.frames_max;
    if (DeviceWords::load(system.fresh_hand, site::kRelaxed) < system.slab_count) return most;
    const ReadaheadPlace& common = common_place(system);
    const uint64_t half = DeviceWords::load(common.slab_count, site::kRelaxed) *
                          system.slab_frames / 2;
    const uint64_t least = 2 * system.readahead.window_pages_max;
    return half < most ? (half > least ? half : least < most ? least : most) : most;
}

// What a read's block should do about shared windows.
struct CommonRequest {
    bool together = false;  // blocks read together; this one needs no windows of its own
    PageIndex first = 0;
    uint32_t count = 0;  // pages to request; 0: none
    uint64_t lead = 0;   // pages that may lie ahead of a reader
};

// Returns whether all blocks have read the grid's round before the last one, judged by a few pages.
PENSTOCK_DEVICE inline bool is_round_there(const FileSystemState& system, const FileState& file,
                                           const StreamRead& read, uint64_t distance) {
    if (read.first < 2 * distance) return false;
    const PageIndex before = read.first - 2 * distance;
    const SampledPages round = sample_pages(system, file, before, distance);
    return round.absent + round.unread <= 1;
}

struct CommonLimits {
    uint64_t ahead;  // pages that should lie ahead of a whole round of the blocks; 0: a window is
                     // requested when the read itself must wait
    bool room;       // there is room for a request
};

// Returns what to request, for a read that is about to be served. One lane calls.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline CommonRequest next_common(
    FileSystemState& system, const FileState& file, uint64_t& word, const ReadStream& stream,
    const StreamRead& read, const CommonLimits& limits) {
    const uint64_t page_size = 1ull << system.page_shift;
    const uint64_t distance = (static_cast<uint64_t>(stream.delta) + page_size - 1) >>
                              system.page_shift;
    const uint64_t reach = common_reach(system);
    const uint64_t window = system.readahead.window_pages_max;
    const PageIndex end = read.last + 1;
    if (2 * distance > reach) return {};
    const Presence first = presence_of(system, file, read.first);
    const Presence last = read.last == read.first ? first : presence_of(system, file, read.last);
    const Presence least = first < last ? first : last;
    if (limits.ahead == 0 && least == Presence::kThere) return {true};
    uint64_t frontier = DeviceWords::load(word, site::kRelaxed);
    const bool left = (frontier & kFrontierLeft) != 0;
    const PageIndex reached = frontier & ~kFrontierLeft;
    const bool near = !left && reached + 2 * distance >= end && reached <= end + reach + window;
    // A new pass over a file whose last pass requested this page long ago.
    const bool anew = least == Presence::kAbsent && stream.streak <= 2 &&
                      reached > end + distance + 4 * window;
    const bool grid = is_grid_stride(system, stream);
    const bool followed = (grid && !left && (near || anew || reached == 0)) ||
                          is_round_there(system, file, read, distance);
    // The first block of a grid waits for the others page by page, for a while.
    if (!followed) return {grid && read.first < reached + reach};
    if (!near || anew) {
        const PageIndex begin = read.last + 1;
        if (least != Presence::kAbsent) return {};
        if (!DeviceWords::compare_exchange(word, frontier, begin, site::kRelaxed)) return {};
        frontier = begin;
    }
    // One window for each block that may have to wait, because it brings one meanwhile.
    const uint64_t rings = DeviceWords::load(system.rings_in_use, site::kRelaxed) + 1;
    const uint64_t wanted = !grid               ? distance + window
                            : limits.ahead == 0 ? distance + rings * window
                                                : distance + limits.ahead;
    const uint64_t limit = wanted < reach ? wanted : reach;
    if (frontier >= read.page_count || frontier >= end + limit) return {least != Presence::kAbsent};
    if (!limits.room) return {true};
    // If other blocks do not follow, they would read none of it before it is evicted.
    const uint64_t behind = grid ? reach / 4 * 3 + distance : 3 * distance;
    if (read.first > behind &&
        sample_pages(system, file, read.first - behind, distance).unread > 1) {
        (void)DeviceWords::compare_exchange(word, frontier, read.first | kFrontierLeft,
                                            site::kRelaxed);
        return {grid};
    }
    // If another block was first, it has requested that window: a waiting block brings the next.
    constexpr unsigned kTries = 4;
    for (unsigned tries = 0; tries < kTries; ++tries) {
        const uint64_t rest = read.page_count - frontier;
        const auto count = static_cast<uint32_t>(rest < window ? rest : window);
        if (DeviceWords::compare_exchange(word, frontier, frontier + count, site::kRelaxed))
            return {true, frontier, count, limit};
        if (frontier >= read.page_count || frontier >= end + limit) break;
    }
    return {true};
}

// Requests the pages of a shared window that no block has requested. If `teams` is not 0, that many
// teams will pull them. Returns whether there was room.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE bool open_common_window(
    const Team& team, FileSystemState& system, ReadaheadPlace& place, Descriptor descriptor,
    const StreamRead& read, const CommonRequest& wanted, unsigned teams) {
    const uint32_t slot = descriptor_slot(descriptor);
    const FileState& file = system.files[slot];
    const auto submit = [&](const Window& window) {
        bool room = false;
        if (team.lane() == 0) {
            room = teams > 0 ? may_ask(system, place, teams)
                             : submit_advised(system, place, read.file, window);
            add_count(counts_of(system, &place, slot).prefetched, window.count);
        }
        room = team.broadcast(room ? 1u : 0u, 0) != 0;
        if (room && teams > 0) submit_pull(team, system, place, read, window, teams);
        team.sync();
        return room;
    };
    // As for a block whose stream is longer than its ring: pages that are read once stay in a few
    // slabs, if those hold all that lies ahead of the blocks.
    const uint64_t turning = system.readahead.once_slabs * system.slab_frames;
    const bool once = teams == 0 && 4 * wanted.lead <= turning &&
                      outruns_ring(system, common_place(system), wanted.first);
    const FrameSource source{&common_place(system), once ? ReadOnce::kOutrun : ReadOnce::kNo};
    for (uint32_t at = 0; at < wanted.count;) {
        Stretch stretch = find_absent(team, system, file, wanted.first + at, wanted.count - at);
        if (stretch.count == 0) break;
        at += stretch.first;
        bool room = true;  // other blocks may have left many gaps
        if (team.lane() == 0) room = may_ask(system, place, teams);
        if (team.any(!room)) return false;
        const ClaimedPages pages = claim_window(team, system, source, descriptor, wanted.first + at,
                                                stretch.count);
        if (pages.frames.count == 0) return false;
        submit_claimed(team, system, descriptor, pages, submit);
        at += pages.frames.count;
    }
    return true;
}

}  // namespace penstock::device
