// What gadvise does at once: pages that are asked for, pages that give up their frames.
//
// Pages that are asked for by kWillNeed are everybody's from the start: FETCHING, pinned by nobody,
// in adjacent frames, so that a stretch is one request in the background ring. A team remembers by
// the completion word of its first frame whether the host has taken such a request; more than
// kAdvisedMax of them it does not put into the ring, and it never waits.
#pragma once

#include "penstock/device/read.cuh"

namespace penstock::device {

struct AdvisedRange {
    Descriptor descriptor;
    int64_t offset;  // of kStrided: the distance
    uint64_t size;   // bytes; of kStrided: of a read
    Advice advice;
};

// 0, or -EINVAL.
PENSTOCK_BOTH inline int check_advice(const AdvisedRange& range) {
    if (range.advice > Advice::kStrided) return -kErrorInvalid;
    if (range.advice != Advice::kStrided) return range.offset < 0 ? -kErrorInvalid : 0;
    const bool fits = range.offset <= kAdviceStrideMax && range.offset >= -kAdviceStrideMax;
    return fits && range.offset != 0 ? 0 : -kErrorInvalid;
}

// Advice for the whole file: the last counts.
PENSTOCK_DEVICE inline void keep_advice(FileState& file, const AdvisedRange& range) {
    Advice advice = range.advice;
    if (advice == Advice::kWillNeed || advice == Advice::kDontNeed) return;
    int64_t stride = 0;
    if (advice == Advice::kStrided) {
        // Reads that touch, or leave no gap, are one behind the other.
        const bool dense = range.offset > 0 && static_cast<uint64_t>(range.offset) <= range.size;
        if (dense) advice = Advice::kSequential;
        if (!dense) stride = range.offset;
    }
    DeviceWords::store(file.advice,
                       make_advice(advice, descriptor_generation(range.descriptor), stride),
                       site::kRelaxed);
}

// The pages of a range: those that lie in it, wholly or also in part. `stop` is one past the last.
struct PageRange {
    PageIndex first, stop;
};
PENSTOCK_BOTH inline PageRange pages_of_range(const AdvisedRange& range, uint64_t file_size,
                                              unsigned page_shift, bool wholly) {
    const uint64_t in_page = (1ull << page_shift) - 1;
    const auto first = static_cast<uint64_t>(range.offset);
    if (first >= file_size) return {0, 0};
    const bool to_end = range.size == 0 || range.size >= file_size - first;
    const uint64_t end = to_end ? file_size : first + range.size;
    // The last page of the file lies in the range wholly if all that the file has of it does.
    const uint64_t stop = (wholly && !to_end ? end : end + in_page) >> page_shift;
    return {(wholly ? first + in_page : first) >> page_shift, stop};
}

// A place for one more request that is on its way; null: there are as many as there may be. Of a
// place whose `busy` the caller has; one lane.
PENSTOCK_DEVICE inline uint64_t* free_advised(FileSystemState& system, ReadaheadPlace& place) {
    for (uint64_t& word : place.advised) {
        if (word == 0) return &word;
        const Completion now = SystemWords::load(system.completions[word >> 32], site::kRelaxed);
        // Somebody has completed that frame: the request was copied out of its slot before.
        if (completion_generation(now) != (word >> 1 & kGenerationMax)) return &word;
    }
    return nullptr;
}

// Claims the first pages of a stretch, without a gap, into adjacent frames of the caller's; returns
// how many. All are pinned; one lane.
PENSTOCK_DEVICE inline uint32_t claim_stretch(FileSystemState& system, uint32_t file_slot,
                                              PageIndex first, const FrameRange& frames,
                                              uint32_t generation) {
    for (uint32_t i = 0; i < frames.count; ++i) {
        PinnedEntry page = held_page(system, system.files[file_slot], first + i);
        if (!claim<DeviceWords>(*page.entry, page.seen, frames.first + i, generation)) return i;
        DeviceWords::store(system.owners[frames.first + i], make_owner(file_slot, first + i),
                           site::kRelaxed);
    }
    return frames.count;
}

// Asks for one stretch of absent pages in [first, stop), at most a window. Returns the page to go
// on with; `stop`: there is no more to do, or no room.
template <class Team>
PENSTOCK_DEVICE PageIndex ask_for_stretch(const Team& team, FileSystemState& system,
                                          ReadaheadPlace& place, Descriptor descriptor,
                                          PageIndex first, PageIndex stop, bool& asked) {
    const uint32_t slot = descriptor_slot(descriptor);
    const FileState& file = system.files[slot];
    const uint64_t most = system.readahead.window_pages_max;
    const auto count = static_cast<uint32_t>(stop - first < most ? stop - first : most);
    uint64_t absent = 0;
    for (uint32_t i = team.lane(); i < count; i += team.lanes())
        if (is_absent(system, file, first + i)) absent |= 1ull << i;
    const Stretch stretch = first_stretch(team.unite(absent));
    if (stretch.count == 0) return first + count;
    const PageIndex begin = first + stretch.first;
    uint64_t* word = nullptr;
    if (team.lane() == 0) word = free_advised(system, place);
    word = team.broadcast(word, 0);
    if (word == nullptr) return stop;
    FrameRange frames = take_adjacent_frames(team, system, place, stretch.count);
    if (frames.count == 0) return stop;
    const uint32_t generation = common_generation(team, system, frames);
    if (team.lane() == 0) install_leaves(system, file, begin, frames.count);
    team.sync();
    bool pinned = true;
    uint64_t held = 0;  // bit i: this lane has pinned page i
    for (uint32_t i = team.lane(); i < frames.count; i += team.lanes()) {
        const bool got = pin_page(system, file, begin + i, false).entry != nullptr;
        if (got) held |= 1ull << i;
        pinned = pinned && got;
    }
    // Once a page is pinned and the file seen open, its slot cannot change hands.
    const bool open = !team.any(find_file(system, descriptor) == nullptr);
    uint32_t claimed = 0;
    team.sync();  // what lanes stored of the frames comes before what lane 0 does
    if (!team.any(!pinned) && open && team.lane() == 0) {
        const Completion before = SystemWords::load(system.completions[frames.first],
                                                    site::kRelaxed);
        claimed = claim_stretch(system, slot, begin, frames, generation);
        if (claimed > 0) {
            Window window{};
            window.first = begin;
            window.run = 1;
            window.step = 1;
            window.count = claimed;
            window.frame = frames.first;
            window.generation = generation;
            submit_window(system, file_of_stream(descriptor), window);
            *word = uint64_t{frames.first} << 32 | uint64_t{completion_generation(before)} << 1 | 1;
            add_count(system.totals[slot].advised, claimed);
        }
    }
    claimed = team.broadcast(claimed, 0);
    asked = asked || claimed > 0;
    for (uint32_t i = team.lane(); i < frames.count; i += team.lanes()) {
        if ((held >> i & 1) != 0) unpin<DeviceWords>(*held_page(system, file, begin + i).entry);
        if (i >= claimed) give_frame_back(system, frames.first + i);
    }
    team.sync();
    return claimed == 0 ? stop : begin + claimed;
}

// Asks for the pages of a range that nobody has asked for, as far as there is room. The first team.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void ask_for_range(const Team& team, FileSystemState& system,
                                                     unsigned index, const FileState& file,
                                                     const AdvisedRange& range) {
    if (system.places == nullptr || system.readahead.frames_max == 0) return;
    ReadaheadPlace& place = system.places[index % system.place_count];
    if (!team.any(team.lane() == 0 && try_lock(place.busy))) return;
    uint64_t file_size = DeviceWords::load(file.size, site::kRelaxed);
    file_size = team.broadcast(file_size, 0);
    PageRange pages = pages_of_range(range, file_size, system.page_shift, false);
    // More would push out of the cache what it has asked for itself.
    const uint64_t most = system.readahead.frames_max;
    if (pages.stop > pages.first + most) pages.stop = pages.first + most;
    // As the reads of the file would.
    if (team.lane() == 0 && given_advice(file).advice == Advice::kNoReuse)
        place.once = ReadOnce::kAdvised;
    team.sync();
    bool asked = false;
    while (pages.first < pages.stop)
        pages.first = ask_for_stretch(team, system, place, range.descriptor, pages.first,
                                      pages.stop, asked);
    team.sync();
    if (team.lane() != 0) return;
    place.once = ReadOnce::kNo;
    if (asked) announce_windows(system, file_of_stream(range.descriptor));
    unlock(place.busy);
}

// The first team: what is done once. The file; null: it is not open.
template <class Team>
PENSTOCK_DEVICE FileState* begin_advice(const Team& team, FileSystemState& system, unsigned place,
                                        const AdvisedRange& range) {
    FileState* file = find_file(system, range.descriptor);
    if (team.any(file == nullptr)) return nullptr;
    if (check_advice(range) != 0) return file;
    if (team.lane() == 0) keep_advice(*file, range);
    if (range.advice == Advice::kWillNeed) ask_for_range(team, system, place, *file, range);
    return file;
}

// One team's part of the rest. 0 or -errno.
template <class Team>
PENSTOCK_DEVICE int advise_part(const Team& team, unsigned index, unsigned teams,
                                FileSystemState& system, const FileState* file,
                                const AdvisedRange& range) {
    if (file == nullptr) return -kErrorBadDescriptor;
    if (const int error = check_advice(range); error != 0) return error;
    if (range.advice != Advice::kDontNeed) return 0;
    const uint64_t file_size = DeviceWords::load(file->size, site::kRelaxed);
    const PageRange pages = pages_of_range(range, file_size, system.page_shift, true);
    PageIndex page = pages.first + index * team.lanes() + team.lane();
    for (; page < pages.stop; page += uint64_t{teams} * team.lanes())
        (void)drop_page(system, *file, page);
    return 0;
}

}  // namespace penstock::device
