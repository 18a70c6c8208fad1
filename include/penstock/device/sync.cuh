// Writes all of a file back: for sync, close and truncation.
//
// The teams of a group walk over the leaves of a file: each team takes every n-th leaf, and its
// lanes share the entries. First they request the write-back of all dirty pages; then they wait for
// them, without holding anything. A page that is written to meanwhile is written back once, not
// until its writers stop.
#pragma once

#include "penstock/device/handle.h"
#include "penstock/device/write.cuh"

namespace penstock::device {

// Returns the dirty page of an entry in the leaf that a directory word names, as one lane sees it.
// A page is dirty with its dirty bit, and while a thread ends its write-back. Null: it is not
// dirty.
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

// Waits until the host has what was written to a page so far, or could not take it. Returns 0, or
// -errno of a wait.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline int wait_for_write(FileSystemState& system, uint32_t slot,
                                                            PageIndex index) {
    Wait wait(system);
    int64_t mine = -1;  // a write-back that began after the call
    FrameIndex frame = 0;
    for (;;) {
        const SeenPage page = see_dirty_page(system, slot, index);
        if (page.entry == nullptr) return 0;
        if (mine >= 0 && page.frame != frame) return 0;
        frame = page.frame;
        // Acquires also the error that was recorded before the write-back ended.
        const WriteBackWord word = DeviceWords::load(system.write_backs[frame], site::kBeginWrite);
        const bool idle = phase_of(word) == WritePhase::kIdle;
        if (mine >= 0 && (idle || number_of(word) != static_cast<uint64_t>(mine))) return 0;
        const uint64_t& completion = system.write_completions[frame];
        const Completion seen = SystemWords::load(completion, site::kRelaxed);
        int error = 0;
        if (idle) {
            mine = begin_write(system, page);
            // The limit kept this page and its neighbours from beginning earlier. In a file with an
            // error, each page would make all its neighbours fail once more.
            const uint64_t noted = DeviceWords::load(system.files[slot].error, site::kRelaxed);
            if (mine >= 0 && (noted & kFileErrnoMask) == 0) (void)begin_group(system, page);
            if (mine >= 0) ring(system.rings[0]);
            // As many are in flight as may be. Perhaps some are over, which no thread has seen.
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

// Returns the number of pages that a file may have in the cache. Dirty pages may lie beyond its end
// if a truncation overtook their writer.
PENSTOCK_DEVICE inline uint64_t pages_of_file(const FileState& file) {
    return DeviceWords::load(file.directory_count, site::kRelaxed) * limits::kLeafEntries;
}

// Calls `visit(page)` for the team's part of the pages from `first` to before `stop` that have a
// leaf: every `teams`-th leaf, whose pages the team's lanes share. Most of a file that may grow has
// no leaf, so each lane checks a directory word. kBehindCut: as for has_leaf().
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

// Returns, in all lanes, 0 or the first lane's result that is not 0. A group uses the result of one
// lane of each part.
template <class Team>
PENSTOCK_DEVICE int result_of_lanes(const Team& team, int result) {
    if (!team.any(result != 0)) return 0;
    for (unsigned lane = 0; lane < team.lanes(); ++lane) {
        const int one = team.broadcast(result, lane);
        if (one != 0) return one;
    }
    return 0;
}

// Does one team's part of writing a file back. Returns 0, or -errno of a wait. Failed writes are
// recorded in the file.
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

// Holds a file: no write-back of it begins until the lock is released. Write-backs that began
// before can be waited for. One lane calls; waits for another holder. Returns 0 or -errno.
PENSTOCK_DEVICE inline int lock_file(FileSystemState& system, FileState& file) {
    Wait wait(system);
    while (!try_lock(file.held)) {
        if (const int error = wait.step(&file.held, 1); error != 0) return error;
    }
    return 0;
}

// Takes the write-back of a dirty page: no other thread begins or ends one until release_writes.
// The snapshot has what was marked so far. Returns false if a write-back of the page is in flight.
PENSTOCK_DEVICE inline bool hold_writes(FileSystemState& system, const SeenPage& page) {
    const auto holds = [&](uint64_t seen) { return page.is_there(system, seen); };
    uint64_t& word = system.write_backs[page.frame];
    uint32_t number = 0;
    if (!begin_write_back<DeviceWords>(*page.entry, holds, word, marks_of_frame(system, page.frame),
                                       snapshot_of_frame(system, page.frame), system.mark_words,
                                       number))
        return false;
    DeviceWords::fetch_add(system.write_backs_begun, 1, site::kRelaxed);
    // No completion has this number, so no other thread ends the write-back before this.
    DeviceWords::store(word, make_write_back(number, WritePhase::kHeld), site::kRelaxed);
    return true;
}

// Ends hold_writes(), for its caller. If `forgotten`, the marks count as written; else they are as
// before. Returns false if the write-back is not held.
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

// Holds the write-backs of all dirty pages of a file from `first` on; waits for those in flight.
// Does one team's part; one group at a time for each file. Returns 0, or -errno of a wait.
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

// Ends hold_part(): pages from `forgotten` on are clean, and `visit(page)` is called for each.
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

// Returns whether a page that GPU threads have changed will be written to its file. A view may be
// older than the last close.
PENSTOCK_DEVICE inline bool is_for_writing(const FileSystemState& system, const SeenPage& page) {
    const FileState& file = system.files[page.owner >> 48];
    return (DeviceWords::load(file.generation, site::kRelaxed) & 1) != 0 &&
           (DeviceWords::load(file.writing, site::kRelaxed) & kHasWriters) != 0;
}

// Marks as written all bytes of a view that the file still has, and sets `page` to the view's page.
// The view may be written. Returns false, with nothing marked, if not is_for_writing(). One lane
// calls.
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

// Takes the error that write-backs of a file have left since it was last taken. If another caller
// took it, but a write-back has failed since there were `failures`, returns the error of the last
// failure. Returns 0 or -errno. One lane calls.
PENSTOCK_DEVICE inline int take_error(FileState& file, uint64_t failures) {
    const uint64_t taken = DeviceWords::fetch_and(file.error, ~kFileErrnoMask, site::kRelaxed);
    uint64_t error = taken & kFileErrnoMask;
    if (error == 0 && taken / kFileFailure != failures)
        error = taken / kFileLastErrno & kFileErrnoMask;
    return -static_cast<int>(error);
}

// Writes to the file what was written through a view. One lane calls. Returns 0 or -errno.
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

// Runs `part(team, index, teams)` in each team of a group. Returns 0, or -errno of one team, in all
// threads.
template <class Group, class Part>
PENSTOCK_DEVICE int64_t each_part(Group group, const Part& part) {
    return group.divide([](const auto&, unsigned, unsigned) -> int64_t { return 0; },
                        [&](const auto& team, unsigned index, unsigned teams, int64_t) -> int64_t {
                            return part(team, index, teams);
                        },
                        [](int64_t) {});
}

// Writes an open file back, and takes the error that was recorded since it was last taken. A whole
// group calls. A scratch file stays as it is. Returns 0 or -errno, in all threads. It also returns
// the error of a write-back that failed meanwhile if another caller has taken that error.
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

// Ends hold_file(). Of the held pages, those from `forgotten` on are clean now, and `visit(page)`
// is called for each; the others are as dirty as before. Then each team runs `then(team, index,
// teams)`. Returns 0, or -errno of one of these.
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

// Holds a file, and all its dirty pages from page `first` on: none of them is written back before
// the release. A whole group calls; waits for write-backs in flight, and for another holder.
// Returns 0, or -errno of a wait: then nothing is held.
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
