// The immediate effects of gadvise: pages that are requested, and pages that give up their frames.
//
// Pages that kWillNeed requests are available to all teams from the start: FETCHING, without pins,
// in adjacent frames, so that a stretch is one request in the background ring. The completion word
// of a request's first frame tells the team whether the host has taken the request. A team has at
// most kAdvisedMax such requests in the ring, and it never waits.
#pragma once

#include "penstock/device/read.cuh"

namespace penstock::device {

struct AdvisedRange {
    Descriptor descriptor;
    int64_t offset;  // kStrided: the distance
    uint64_t size;   // bytes; kStrided: size of a read
    Advice advice;
};

// Returns 0 or -EINVAL.
PENSTOCK_BOTH inline int check_advice(const AdvisedRange& range) {
    if (range.advice > Advice::kStrided) return -kErrorInvalid;
    if (range.advice != Advice::kStrided) return range.offset < 0 ? -kErrorInvalid : 0;
    const bool fits = range.offset <= kAdviceStrideMax && range.offset >= -kAdviceStrideMax;
    return fits && range.offset != 0 ? 0 : -kErrorInvalid;
}

// Stores advice for the whole file; the last advice counts.
PENSTOCK_DEVICE inline void keep_advice(FileState& file, const AdvisedRange& range) {
    Advice advice = range.advice;
    if (advice == Advice::kWillNeed || advice == Advice::kDontNeed) return;
    int64_t stride = 0;
    if (advice == Advice::kStrided) {
        // Reads that touch or overlap are sequential.
        const bool dense = range.offset > 0 && static_cast<uint64_t>(range.offset) <= range.size;
        if (dense) advice = Advice::kSequential;
        if (!dense) stride = range.offset;
    }
    DeviceWords::store(file.advice,
                       make_advice(advice, descriptor_generation(range.descriptor), stride),
                       site::kRelaxed);
}

// The pages of a range: those that lie in it wholly, or also in part. `stop` is one past the last.
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
    // The last page of the file lies in the range wholly if all its bytes in the file do.
    const uint64_t stop = (wholly && !to_end ? end : end + in_page) >> page_shift;
    return {(wholly ? first + in_page : first) >> page_shift, stop};
}

// Requests one stretch of absent pages in [first, stop), at most a window. Returns the page to
// continue with, or `stop` if nothing is left to do or there is no room.
template <class Team>
PENSTOCK_DEVICE PageIndex ask_for_stretch(const Team& team, FileSystemState& system,
                                          ReadaheadPlace& place, Descriptor descriptor,
                                          PageIndex first, PageIndex stop, bool& asked) {
    const uint32_t slot = descriptor_slot(descriptor);
    const FileState& file = system.files[slot];
    const uint64_t most = system.readahead.window_pages_max;
    const auto count = static_cast<uint32_t>(stop - first < most ? stop - first : most);
    const Stretch stretch = find_absent(team, system, file, first, count);
    if (stretch.count == 0) return first + count;
    const PageIndex begin = first + stretch.first;
    bool room = true;
    if (team.lane() == 0) room = free_advised(system, place) != nullptr;
    if (team.any(!room)) return stop;
    const auto submit = [&](const Window& window) {
        bool done = false;
        if (team.lane() == 0) {
            done = submit_advised(system, place, file_of_stream(descriptor), window);
            if (done) add_count(system.totals[slot].advised, window.count);
        }
        return !team.any(team.lane() == 0 && !done);
    };
    const ClaimedPages pages = claim_window(team, system, {&place, place.once}, descriptor, begin,
                                            stretch.count);
    if (pages.frames.count == 0) return stop;
    submit_claimed(team, system, descriptor, pages, submit);
    asked = true;
    return begin + pages.frames.count;
}

// Requests the absent pages of a range, as far as there is room. The first team calls.
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
    // More pages would evict pages that this call has requested.
    const uint64_t most = system.readahead.frames_max;
    if (pages.stop > pages.first + most) pages.stop = pages.first + most;
    // As reads of the file would do.
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

// Does the part that is done once. The first team calls. Returns the file; null: it is not open.
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

// Does one team's part of the rest. Returns 0 or -errno.
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
