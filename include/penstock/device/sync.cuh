// Writing all of a file back: for sync, close and truncation.
//
// A walk over the leaves of a file, each team every so many of them, each lane some of their
// entries. First all dirty pages are asked to be written, then they are waited for, with nothing in
// hand. Pages that are written to meanwhile are written once, not until nobody writes.
#pragma once

#include "penstock/device/handle.h"
#include "penstock/device/write.cuh"

namespace penstock::device {

// The dirty page of an entry in the leaf that a directory word names, as one lane sees it, with its
// dirty bit or while somebody ends its write-back; null: there is none.
PENSTOCK_DEVICE inline SeenPage see_dirty_page(const FileSystemState& system, uint32_t slot,
                                               PageIndex page) {
    const uint64_t leaf = leaf_word(system, system.files[slot], page);
    if (leaf == 0) return {};
    PageEntry* entry = entry_in_leaf(system, leaf, page);
    const auto word_of = [&](FrameIndex frame) -> const uint64_t& {
        return system.write_backs[frame];
    };
    uint64_t seen = 0;
    if (!is_dirty<DeviceWords>(*entry, word_of, seen)) return {};
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
        // With the error that was noted before it ended.
        const WriteBackWord word = DeviceWords::load(system.write_backs[frame], site::kBeginWrite);
        const bool idle = phase_of(word) == WritePhase::kIdle;
        if (mine >= 0 && (idle || number_of(word) != static_cast<uint64_t>(mine))) return 0;
        const uint64_t& completion = system.write_completions[frame];
        const Completion seen = SystemWords::load(completion, site::kRelaxed);
        int error = 0;
        if (idle) {
            mine = begin_write(system, page);
            // No more could be under way when its turn came: nor could its neighbours. Those of a
            // file that fails would fail again for each page.
            const FileState& file = system.files[slot];
            const uint64_t failed = DeviceWords::load(file.error, site::kRelaxed);
            if (mine >= 0 && (failed & kFileErrnoMask) == 0) (void)begin_group(system, page);
            if (mine >= 0) ring(system.rings[0]);
            // As many are under way as may be: others are over perhaps, and nobody has seen it.
            if (mine < 0 && !end_writes(system, limits::kBatchPagesMax) &&
                !write_some(system, system.frame_count, limits::kBatchPagesMax))
                error = wait.step(&system.write_backs[frame], word);
        } else if (phase_of(word) != WritePhase::kUnderWay) {
            error = wait.step(&system.write_backs[frame], word);
        } else if (end_if_written(system, page) == Written::kNot) {
            error = wait.step(&completion, seen);
        }
        if (error != 0) return error;
    }
}

// The pages that a file may have in the cache. Some may be dirty that lie beyond its end: whoever
// wrote them was overtaken by a truncation.
PENSTOCK_DEVICE inline uint64_t pages_of_file(const FileState& file) {
    return DeviceWords::load(file.directory_count, site::kRelaxed) * limits::kLeafEntries;
}

// Calls `visit(page)` for the team's part of the pages from `first` to before `stop` that have a
// leaf: every `teams`-th leaf, its pages by the team's lanes. Most of a file that may grow has
// none: the lanes look at a directory word each. kBehindCut: as has_leaf().
constexpr bool kBehindCut = true;
template <bool kIsBehindCut = false, class Team, class Visit>
PENSTOCK_DEVICE void for_each_page(const Team& team, unsigned index, unsigned teams,
                                   FileSystemState& system, uint32_t slot, PageIndex first,
                                   PageIndex stop, Visit visit) {
    constexpr uint64_t kEntries = limits::kLeafEntries;
    const FileState& file = system.files[slot];
    const uint64_t step = uint64_t{team.lanes()} * teams;
    for (uint64_t leaf = first / kEntries + index; leaf * kEntries < stop; leaf += step) {
        const PageIndex mine = (leaf + uint64_t{team.lane()} * teams) * kEntries;
        const bool has = mine < stop && (kIsBehindCut ? has_leaf(system, file, mine)
                                                      : leaf_word(system, file, mine) != 0);
        if (!team.any(has)) continue;
        for (unsigned lane = 0; lane < team.lanes(); ++lane) {
            if (!team.broadcast(has, lane)) continue;
            const PageIndex begin = (leaf + uint64_t{lane} * teams) * kEntries;
            for (unsigned i = team.lane(); i < kEntries; i += team.lanes()) {
                if (begin + i >= first && begin + i < stop) visit(begin + i);
            }
        }
    }
    team.sync();
}

// 0, or the result of the first lane that has another, in all lanes: of a group's parts the result
// of one lane counts.
template <class Team>
PENSTOCK_DEVICE int result_of_lanes(const Team& team, int result) {
    if (!team.any(result != 0)) return 0;
    for (unsigned lane = 0; lane < team.lanes(); ++lane) {
        const int one = team.broadcast(result, lane);
        if (one != 0) return one;
    }
    return 0;
}

// One team's part of writing a file back. 0, or -errno of a wait: what could not be written is
// noted with the file.
template <class Team>
PENSTOCK_DEVICE int write_back_part(const Team& team, unsigned index, unsigned teams,
                                    FileSystemState& system, uint32_t slot) {
    const FileState& file = system.files[slot];
    const uint64_t stop = team.broadcast(pages_of_file(file), 0);
    for_each_page(team, index, teams, system, slot, 0, stop, [&](PageIndex page) {
        const SeenPage seen = see_dirty_page(system, slot, page);
        if (seen.entry != nullptr) tend_page(system, seen);
    });
    if (team.lane() == 0) ring(system.rings[0]);
    int result = 0;
    for_each_page(team, index, teams, system, slot, 0, stop, [&](PageIndex page) {
        const int error = result == 0 ? wait_for_write(system, slot, page) : 0;
        if (error != 0) result = error;
    });
    return result_of_lanes(team, result);
}

// Holds a file: nobody begins a write-back of it until its lock is given back; those that began
// before can be waited for. One lane; waits for who has it. 0 or -errno.
PENSTOCK_DEVICE inline int lock_file(FileSystemState& system, FileState& file) {
    Wait wait(system);
    while (!try_lock(file.held)) {
        if (const int error = wait.step(&file.held, 1); error != 0) return error;
    }
    return 0;
}

// Takes the write-back of a dirty page, which nobody else begins or ends until release_writes: what
// was marked so far is in its snapshot. False: a write-back of it is under way.
PENSTOCK_DEVICE inline bool hold_writes(FileSystemState& system, const SeenPage& page) {
    const auto holds = [&](uint64_t seen) { return page.is_there(system, seen); };
    uint64_t& word = system.write_backs[page.frame];
    uint32_t number = 0;
    if (!begin_write_back<DeviceWords>(*page.entry, holds, word, marks_of_frame(system, page.frame),
                                       snapshot_of_frame(system, page.frame), system.mark_words,
                                       number))
        return false;
    DeviceWords::fetch_add(system.write_backs_begun, 1, site::kRelaxed);
    // No completion has this number: under way, nobody ends it.
    DeviceWords::store(word, make_write_back(number, WritePhase::kHeld), site::kRelaxed);
    return true;
}

// Ends that, for who held it: what was marked is as written where it is `forgotten`, else as
// before. False: it is not held.
PENSTOCK_DEVICE inline bool release_writes(FileSystemState& system, const SeenPage& page,
                                           bool forgotten) {
    uint64_t& word = system.write_backs[page.frame];
    const WriteBackWord seen = DeviceWords::load(word, site::kRelaxed);
    if (phase_of(seen) != WritePhase::kHeld) return false;
    const uint32_t number = number_of(seen);
    DeviceWords::store(word, make_write_back(number, WritePhase::kUnderWay), site::kRelaxed);
    const uint32_t error = forgotten ? 0 : static_cast<uint32_t>(kErrorWithdrawn);
    (void)end_write(system, page, make_completion(number, error, 0));
    return true;
}

// Holds the write-backs of all dirty pages of a file from `first` on, waiting for those under way.
// One team's part, of one group for each file at a time. 0, or -errno of a wait.
template <class Team>
PENSTOCK_DEVICE int hold_part(const Team& team, unsigned index, unsigned teams,
                              FileSystemState& system, uint32_t slot, PageIndex first) {
    const uint64_t stop = team.broadcast(pages_of_file(system.files[slot]), 0);
    int result = 0;
    for_each_page(team, index, teams, system, slot, first, stop, [&](PageIndex page) {
        Wait wait(system);
        while (result == 0) {
            const SeenPage seen = see_dirty_page(system, slot, page);
            if (seen.entry == nullptr || hold_writes(system, seen)) break;
            if (end_if_written(system, seen) != Written::kNot) continue;
            const uint64_t& completion = system.write_completions[seen.frame];
            result = wait.step(&completion, SystemWords::load(completion, site::kRelaxed));
        }
    });
    return result_of_lanes(team, result);
}

// Ends that: pages from `forgotten` on are clean, and `visit(page)` is called for each.
template <class Team, class Visit>
PENSTOCK_DEVICE void release_part(const Team& team, unsigned index, unsigned teams,
                                  FileSystemState& system, uint32_t slot, PageIndex first,
                                  PageIndex forgotten, const Visit& visit) {
    const uint64_t stop = team.broadcast(pages_of_file(system.files[slot]), 0);
    for_each_page(team, index, teams, system, slot, first, stop, [&](PageIndex page) {
        const SeenPage seen = see_dirty_page(system, slot, page);
        if (seen.entry == nullptr) return;
        if (release_writes(system, seen, page >= forgotten) && page >= forgotten) visit(seen);
    });
}

// Whether a page that GPU threads have changed will be written to its file: a view may be older
// than the last close.
PENSTOCK_DEVICE inline bool is_for_writing(const FileSystemState& system, const SeenPage& page) {
    const FileState& file = system.files[page.owner >> 48];
    return (DeviceWords::load(file.generation, site::kRelaxed) & 1) != 0 &&
           (DeviceWords::load(file.writing, site::kRelaxed) & kHasWriters) != 0;
}

// The page of a view that may be written: marks all of the view's bytes as written that the file
// has still. False: it is not is_for_writing(), and nothing is marked. One lane.
PENSTOCK_DEVICE inline bool mark_view(FileSystemState& system, const View& view, SeenPage& page) {
    const uint64_t seen = DeviceWords::load(*view.entry, site::kRelaxed);
    const uint64_t at = static_cast<uint64_t>(view.data - system.frames);
    const uint64_t begin = at & ((1ull << system.page_shift) - 1);
    const uint64_t owner = DeviceWords::load(system.owners[frame_of(seen)], site::kRelaxed);
    page = {view.entry, owner, frame_of(seen)};
    if (!is_for_writing(system, page)) return false;
    const uint64_t size = DeviceWords::load(system.files[owner >> 48].size, site::kRelaxed);
    const uint64_t first = (owner & ((1ull << 48) - 1)) << system.page_shift;
    uint64_t end = begin + static_cast<uint64_t>(view.size);
    if (size < first + end) end = size > first ? size - first : 0;
    if (end > begin)
        count_dirty(system, mark_page(system, {view.entry, seen}, {begin, end}) ? 1 : 0);
    return true;
}

PENSTOCK_DEVICE inline bool is_scratch(const FileState& file) {
    return (DeviceWords::load(file.writing, site::kRelaxed) & kWritesScratch) != 0;
}
PENSTOCK_DEVICE inline uint64_t failures_of(const FileState& file) {
    return DeviceWords::load(file.error, site::kRelaxed) / kFileFailure;
}

// The error that write-backs of a file have left since somebody took it last; else, if one failed
// since there were `failures`, whose error another has taken, that one's. 0 or -errno. One lane.
PENSTOCK_DEVICE inline int take_error(FileState& file, uint64_t failures) {
    const uint64_t taken = DeviceWords::fetch_and(file.error, ~kFileErrnoMask, site::kRelaxed);
    uint64_t error = taken & kFileErrnoMask;
    if (error == 0 && taken / kFileFailure != failures)
        error = taken / kFileLastErrno & kFileErrnoMask;
    return -static_cast<int>(error);
}

// Has what was written through a view written to the file. One lane. 0 or -errno.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline int write_view(FileSystemState& system, const View& view) {
    const uint64_t seen = DeviceWords::load(*view.entry, site::kRelaxed);
    const uint64_t owner = DeviceWords::load(system.owners[frame_of(seen)], site::kRelaxed);
    FileState& file = system.files[owner >> 48];
    const uint64_t failures = failures_of(file);
    SeenPage page;
    if (!mark_view(system, view, page)) return -kErrorBadDescriptor;
    const int error = wait_for_write(system, static_cast<uint32_t>(owner >> 48),
                                     owner & ((1ull << 48) - 1));
    const int noted = take_error(file, failures);
    return error != 0 ? error : noted;
}

// Has each team of a group do `part(team, index, teams)`. 0, or -errno of one, in all threads.
template <class Group, class Part>
PENSTOCK_DEVICE int64_t each_part(Group group, const Part& part) {
    return group.divide([](const auto&, unsigned, unsigned) -> int64_t { return 0; },
                        [&](const auto& team, unsigned index, unsigned teams, int64_t) -> int64_t {
                            return part(team, index, teams);
                        },
                        [](int64_t) {});
}

// Writes an open file back, by a whole group, and takes the error that was noted since somebody
// took it last; a scratch file stays as it is. 0 or -errno, in all threads: also if a write-back
// failed meanwhile whose error another has taken.
template <class Group>
PENSTOCK_DEVICE int64_t write_back(DeviceFileSystem fs, Descriptor descriptor, Group group) {
    FileSystemState& system = *fs.state;
    const uint32_t slot = descriptor_slot(descriptor);
    FileState& file = system.files[slot];
    struct Before {
        uint64_t failures;
        bool scratch;
    };
    const Before before = group.once([&]() -> Before {
        return {failures_of(file), is_scratch(file)};
    });
    if (before.scratch) return 0;
    const int64_t error = each_part(
        group, [&](const auto& team, unsigned index, unsigned teams) -> int64_t {
            return write_back_part(team, index, teams, system, slot);
        });
    return group.once([&]() -> int64_t {
        const int64_t noted = take_error(file, before.failures);
        return error != 0 ? error : noted;
    });
}

// Ends hold_file(): of what was held, pages from `forgotten` on are clean now, and `visit(page)` is
// called for each, the others as dirty as before; then each team does `then(team, index, teams)`.
// 0, or -errno of one of those.
template <class Group, class Visit, class Then>
PENSTOCK_DEVICE int64_t release_file(DeviceFileSystem fs, Descriptor descriptor, PageIndex first,
                                     PageIndex forgotten, Group group, const Visit& visit,
                                     const Then& then) {
    FileSystemState& system = *fs.state;
    const uint32_t slot = descriptor_slot(descriptor);
    const int64_t error = each_part(
        group, [&](const auto& team, unsigned index, unsigned teams) -> int64_t {
            release_part(team, index, teams, system, slot, first, forgotten, visit);
            return then(team, index, teams);
        });
    return group.once([&]() -> int64_t {
        unlock(system.files[slot].held);
        return error;
    });
}

// Holds a file, and all that is dirty of it from page `first` on: nothing of that is written before
// the release. By a whole group; waits for what is under way, and for who holds it. 0, or -errno of
// a wait: then nothing is held.
template <class Group>
PENSTOCK_DEVICE int64_t hold_file(DeviceFileSystem fs, Descriptor descriptor, PageIndex first,
                                  Group group) {
    FileSystemState& system = *fs.state;
    const uint32_t slot = descriptor_slot(descriptor);
    const int64_t locked = group.once(
        [&]() -> int64_t { return lock_file(system, system.files[slot]); });
    if (locked != 0) return locked;
    const int64_t held = each_part(
        group, [&](const auto& team, unsigned index, unsigned teams) -> int64_t {
            return hold_part(team, index, teams, system, slot, first);
        });
    if (held != 0)
        (void)release_file(
            fs, descriptor, first, ~0ull, group, [](const SeenPage&) {},
            [](const auto&, unsigned, unsigned) -> int64_t { return 0; });
    return held;
}

}  // namespace penstock::device
