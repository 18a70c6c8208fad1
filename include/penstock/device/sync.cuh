// Writing all of a file back: for sync, close and truncation.
//
// A walk over the leaves of a file, each team every so many of them, each lane some of their
// entries. First all dirty pages are asked to be written, then they are waited for, with nothing in
// hand. Pages that are written to meanwhile are written once, not until nobody writes.
#pragma once

#include "penstock/device/handle.h"
#include "penstock/device/write.cuh"

namespace penstock::device {

// The dirty page of an entry in the leaf that a directory word names, as one lane sees it; null:
// there is none.
PENSTOCK_DEVICE inline SeenPage see_dirty_page(const FileSystemState& system, uint32_t slot,
                                               PageIndex page) {
    const uint64_t leaf = leaf_word(system, system.files[slot], page);
    if (leaf == 0) return {};
    PageEntry* entry = entry_in_leaf(system, leaf, page);
    const uint64_t seen = DeviceWords::load(*entry, site::kLook);
    if (state_of(seen) != PageState::kValid || (seen & kDirtyBit) == 0) return {};
    return {entry, make_owner(slot, page), frame_of(seen)};
}

// Waits until what a page was written to so far is with the host, or could not be taken there. 0,
// or -errno of a wait.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline int wait_for_write(FileSystemState& system, uint32_t slot,
                                                            PageIndex index) {
    Wait wait(system);
    int64_t mine = -1;  // a write-back that began behind the call
    FrameIndex frame = 0;
    for (;;) {
        const SeenPage page = see_dirty_page(system, slot, index);
        if (page.entry == nullptr) return 0;
        if (mine >= 0 && page.frame != frame) return 0;
        frame = page.frame;
        const WriteBackWord word = DeviceWords::load(system.write_backs[frame], site::kRelaxed);
        const bool idle = phase_of(word) == WritePhase::kIdle;
        if (mine >= 0 && (idle || number_of(word) != static_cast<uint64_t>(mine))) return 0;
        const uint64_t& completion = system.write_completions[frame];
        const Completion seen = SystemWords::load(completion, site::kRelaxed);
        int error = 0;
        if (idle) {
            mine = begin_write(system, page);
            if (mine >= 0) ring(system.rings[0]);
            // As many are under way as may be: others are over perhaps, and nobody has seen it.
            if (mine < 0 && !write_some(system, system.frame_count, limits::kBatchPagesMax))
                error = wait.step(&system.write_backs[frame], word);
        } else if (phase_of(word) == WritePhase::kEnding) {
            error = wait.step(&system.write_backs[frame], word);
        } else if (end_if_written(system, page) == Written::kNot) {
            error = wait.step(&completion, seen);
        }
        if (error != 0) return error;
    }
}

// The pages of a file that may be dirty: those before its end.
PENSTOCK_DEVICE inline uint64_t pages_of_file(const FileSystemState& system,
                                              const FileState& file) {
    const uint64_t size = DeviceWords::load(file.size, site::kRelaxed);
    const uint64_t pages = (size + (1ull << system.page_shift) - 1) >> system.page_shift;
    const uint64_t room = DeviceWords::load(file.directory_count, site::kRelaxed) *
                          limits::kLeafEntries;
    return pages < room ? pages : room;
}

// Calls `visit(page)` for the team's part of the pages from `first` to before `stop` that have a
// leaf: every `teams`-th leaf, its pages by the team's lanes.
template <class Team, class Visit>
PENSTOCK_DEVICE void for_each_page(const Team& team, unsigned index, unsigned teams,
                                   const FileSystemState& system, uint32_t slot, PageIndex first,
                                   PageIndex stop, Visit visit) {
    const FileState& file = system.files[slot];
    for (uint64_t leaf = first / limits::kLeafEntries + index; leaf * limits::kLeafEntries < stop;
         leaf += teams) {
        const PageIndex begin = leaf * limits::kLeafEntries;
        if (leaf_word(system, file, begin) == 0) continue;
        for (unsigned i = team.lane(); i < limits::kLeafEntries; i += team.lanes()) {
            if (begin + i >= first && begin + i < stop) visit(begin + i);
        }
    }
    team.sync();
}

// One team's part of writing a file back. 0, or -errno of a wait: what could not be written is
// noted with the file.
template <class Team>
PENSTOCK_DEVICE int write_back_part(const Team& team, unsigned index, unsigned teams,
                                    FileSystemState& system, uint32_t slot) {
    const FileState& file = system.files[slot];
    uint64_t stop = pages_of_file(system, file);
    stop = team.broadcast(stop, 0);
    for_each_page(team, index, teams, system, slot, 0, stop, [&](PageIndex page) {
        const SeenPage seen = see_dirty_page(system, slot, page);
        if (seen.entry != nullptr) (void)tend_page(system, seen);
    });
    if (team.lane() == 0) ring(system.rings[0]);
    int result = 0;
    for_each_page(team, index, teams, system, slot, 0, stop, [&](PageIndex page) {
        const int error = result == 0 ? wait_for_write(system, slot, page) : 0;
        if (error != 0) result = error;
    });
    return result;
}

// Makes a page clean whatever is in its frame: nobody wants it any more. False: a write-back of it
// is under way.
PENSTOCK_DEVICE inline bool forget_writes(FileSystemState& system, const SeenPage& page) {
    const auto holds = [&](uint64_t seen) { return page.is_there(system, seen); };
    uint32_t number = 0;
    if (!begin_write_back<DeviceWords>(
            *page.entry, holds, system.write_backs[page.frame], marks_of_frame(system, page.frame),
            snapshot_of_frame(system, page.frame), system.mark_words, number))
        return false;
    DeviceWords::fetch_add(system.write_backs_begun, 1, site::kRelaxed);
    (void)end_write(system, page, make_completion(number, 0, 0));
    return true;
}

// The same for what lies in the file from page `first` on, waiting for write-backs under way; where
// `drops`, their frames are free then if nobody holds them. One team's part. 0, or -errno of a
// wait.
template <class Team>
PENSTOCK_DEVICE int forget_part(const Team& team, unsigned index, unsigned teams,
                                FileSystemState& system, uint32_t slot, PageIndex first,
                                PageIndex stop, bool drops) {
    int result = 0;
    for_each_page(team, index, teams, system, slot, first, stop, [&](PageIndex page) {
        Wait wait(system);
        while (result == 0) {
            const SeenPage seen = see_dirty_page(system, slot, page);
            if (seen.entry == nullptr || forget_writes(system, seen)) break;
            if (end_if_written(system, seen) != Written::kNot) continue;
            const uint64_t& completion = system.write_completions[seen.frame];
            result = wait.step(&completion, SystemWords::load(completion, site::kRelaxed));
        }
        if (drops) drop_page(system, system.files[slot], page);
    });
    return result;
}

// The page of a view that may be written, all of the view's bytes being written. One lane.
PENSTOCK_DEVICE inline SeenPage mark_view(FileSystemState& system, const View& view) {
    const uint64_t seen = DeviceWords::load(*view.entry, site::kRelaxed);
    const uint64_t at = static_cast<uint64_t>(view.data - system.frames);
    const uint64_t begin = at & ((1ull << system.page_shift) - 1);
    const PagePart part{begin, begin + static_cast<uint64_t>(view.size)};
    count_dirty(system, mark_page(system, {view.entry, seen}, part) ? 1 : 0);
    const uint64_t owner = DeviceWords::load(system.owners[frame_of(seen)], site::kRelaxed);
    return {view.entry, owner, frame_of(seen)};
}

// The error that write-backs of a file have left since somebody took it last: 0 or -errno. One
// lane.
PENSTOCK_DEVICE inline int take_error(FileState& file) {
    return -static_cast<int>(DeviceWords::fetch_and(file.error, 0, site::kRelaxed));
}

// Has what was written through a view written to the file. One lane. 0 or -errno.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline int write_view(FileSystemState& system, const View& view) {
    const SeenPage page = mark_view(system, view);
    const auto slot = static_cast<uint32_t>(page.owner >> 48);
    const int error = wait_for_write(system, slot, page.owner & ((1ull << 48) - 1));
    const int noted = take_error(system.files[slot]);
    return error != 0 ? error : noted;
}

// Writes an open file back, by a whole group, and takes the error that was noted since somebody
// took it last. `last`: nobody writes the file any more, so that what could not be written is
// forgotten; of a scratch file all is. 0 or -errno, in all threads.
template <class Group>
PENSTOCK_DEVICE int64_t write_back(DeviceFileSystem fs, Descriptor descriptor, bool last,
                                   Group group) {
    FileSystemState& system = *fs.state;
    const uint32_t slot = descriptor_slot(descriptor);
    FileState& file = system.files[slot];
    const bool scratch = (DeviceWords::load(file.writing, site::kRelaxed) & kWritesScratch) != 0;
    const auto begin = [](const auto&, unsigned) -> int64_t { return 0; };
    const auto end = [](int64_t) {};
    const auto write = [&system, slot](const auto& team, unsigned index, unsigned teams,
                                       int64_t) -> int64_t {
        return write_back_part(team, index, teams, system, slot);
    };
    const auto forget = [&system, slot, &file](const auto& team, unsigned index, unsigned teams,
                                               int64_t) -> int64_t {
        const uint64_t stop = team.broadcast(pages_of_file(system, file), 0);
        return forget_part(team, index, teams, system, slot, 0, stop, true);
    };
    int64_t error = scratch ? 0 : group.divide(begin, write, end);
    const int64_t noted = group.once([&]() -> int64_t { return take_error(file); });
    if (error == 0) error = noted;
    if (last && (error != 0 || scratch)) (void)group.divide(begin, forget, end);
    return error;
}

}  // namespace penstock::device
