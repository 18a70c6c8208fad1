// Writing through the page cache, as one team does it. It holds a run of pages, copies the bytes
// into their frames, and marks them there for a write-back.
//
// The calls of file.cuh use it; its form is that of reading (read.cuh). Any team of a group;
// nothing here synchronizes with other teams. A page needs no reading if the write leaves none of
// the host's bytes in it: the team that claims it fills the frame, and waits for nothing before
// that.
//
// The order: pages are held and not absent; the write sequence counts up; bytes; the file's size;
// marks; the dirty bit; unpin. A thread that takes marks has seen bytes and size. A thread that
// finds a page absent and the sequence unchanged has the file's bytes (write_sequence.cuh).
#pragma once

#include "penstock/device/read.cuh"
#include "penstock/device/write_once.cuh"

namespace penstock::device {

// Sets `request` to the write of [offset, offset + size). Returns 1, or the result of the call: 0
// or -errno. `offset` is the place of the write: for a descriptor that appends, from take_place().
template <class Team>
PENSTOCK_DEVICE int64_t prepare_write(const Team& team, FileSystemState& system,
                                      Descriptor descriptor, int64_t offset, uint64_t size,
                                      const void* buffer, RangeRequest& request) {
    const FileState* file = find_file(system, descriptor);
    const bool open = !team.any(file == nullptr);
    const auto first = static_cast<uint64_t>(offset);
    // The const_cast is safe: a write only copies from these bytes.
    auto* bytes = static_cast<std::byte*>(const_cast<void*>(buffer));
    request = {descriptor, first, 0, first, bytes};
    if (!open || (descriptor & kMayWrite) == 0) return -kErrorBadDescriptor;
    if (offset < 0) return -kErrorInvalid;
    if (size == 0) return 0;
    if (buffer == nullptr) return -kErrorFault;
    const uint64_t leaves = DeviceWords::load(file->directory_count, site::kRelaxed);
    const uint64_t end_max = leaves * limits::kLeafEntries << system.page_shift;
    if (size > end_max || first > end_max - size) return -kErrorFileTooBig;
    request.size = size;
    request.end = first + size;
    return 1;
}

// Returns the place of a write: `offset`, or for a descriptor that appends the end of the file,
// where it reserves the range. One lane calls.
PENSTOCK_DEVICE inline int64_t append_offset(FileSystemState& system, Descriptor descriptor,
                                             int64_t offset, uint64_t size) {
    if ((descriptor & kAppends) == 0 || offset < 0) return offset;
    FileState* file = find_file(system, descriptor);
    if (file == nullptr) return offset;
    const uint64_t end_max = DeviceWords::load(file->directory_count, site::kRelaxed) *
                                 limits::kLeafEntries
                             << system.page_shift;
    uint64_t end = DeviceWords::load(file->size, site::kRelaxed);
    while (size <= end_max && end <= end_max - size &&
           !DeviceWords::compare_exchange(file->size, end, end + size, site::kRelaxed)) {
    }
    return static_cast<int64_t>(end);  // if that is too large, the write is refused
}

// The same for a team, once for a call. A null buffer, which is refused, reserves no range.
template <class Team>
PENSTOCK_DEVICE int64_t take_place(const Team& team, FileSystemState& system, Descriptor descriptor,
                                   int64_t offset, uint64_t size, const void* buffer) {
    if (buffer == nullptr) return offset;
    if (team.lane() == 0) offset = append_offset(system, descriptor, offset, size);
    return team.broadcast(offset, 0);
}

// The part of a page that a request writes: bytes [begin, end) of it.
struct PagePart {
    uint64_t begin, end;
};
PENSTOCK_BOTH inline PagePart part_of_page(const RangeRequest& request, PageIndex page,
                                           unsigned page_shift) {
    const uint64_t first = page << page_shift, size = 1ull << page_shift;
    const uint64_t begin = request.offset > first ? request.offset - first : 0;
    return {begin, request.end - first < size ? request.end - first : size};
}

// Records which of the batch's pages the team fills where they are absent: pages of which the host
// has no bytes, or of which the write leaves none; and all pages of a file that is written once.
// The pages are pinned, so `stored` includes what was written back before.
template <class Team>
PENSTOCK_DEVICE void note_own_pages(const Team& team, const FileSystemState& system,
                                    const FileState& file, const RangeRequest& request,
                                    Batch<Team>& batch) {
    const uint64_t stored = DeviceWords::load(file.stored, site::kRelaxed);
    const bool once = is_written_once(file);
    batch.own = batch.filled = 0;
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        const unsigned i = batch.index_of(team, k);
        if (i >= batch.count) break;
        const PageIndex page = batch.first + i;
        const PagePart part = part_of_page(request, page, system.page_shift);
        const uint64_t first = page << system.page_shift;
        const uint64_t there = stored > first ? stored - first : 0;
        const uint64_t size = 1ull << system.page_shift;
        const bool covers = part.begin == 0 && part.end >= (there < size ? there : size);
        if (once || there == 0 || covers) batch.own |= 1ull << k;
    }
}

// Marks a part of a page. Requires that its bytes are in the frame, and that the file's size counts
// them. Returns whether the page was clean. One lane calls.
PENSTOCK_DEVICE inline bool mark_page(FileSystemState& system, const PinnedEntry& page,
                                      const PagePart& part) {
    uint64_t* marks = marks_of_frame(system, frame_of(page.seen));
    for (uint64_t i = part.begin >> kMarkShift; i <= (part.end - 1) >> kMarkShift; ++i)
        mark<DeviceWords>(marks[i], marks_of(part.begin, part.end, i));
    return set_dirty<DeviceWords>(*page.entry);
}

PENSTOCK_DEVICE inline void count_dirty(FileSystemState& system, uint64_t pages) {
    if (pages != 0) DeviceWords::fetch_add(system.dirty_pages, pages, site::kRelaxed);
}

// Fills the frames of the pages that the team has claimed for that: writes the request's part of
// each, zeros the rest, and publishes them.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void fill_pages(const Team& team, FileSystemState& system,
                                                  FileState& file, const RangeRequest& request,
                                                  Batch<Team>& batch, unsigned count) {
    const uint64_t page_size = 1ull << system.page_shift;
    for (unsigned i = 0; i < count; ++i) {
        const unsigned owner = i % team.lanes(), k = i / team.lanes();
        const bool mine = team.lane() == owner && (batch.filled >> k & 1) != 0;
        if (!team.any(mine)) continue;
        PinnedEntry& page = batch.pages[Team::kPagesPerLane == 1 ? 0 : k];
        const uint64_t seen = team.broadcast(page.seen, owner);
        std::byte* frame = system.frames + (uint64_t{frame_of(seen)} << system.page_shift);
        const PageIndex index = batch.first + i;
        const PagePart part = part_of_page(request, index, system.page_shift);
        const uint64_t first = index << system.page_shift;
        team.sync();  // the frame's last readers are done: the lane that took it has acquired that
        team.zero(frame, part.begin);
        team.copy(frame + part.begin, request.buffer + (first + part.begin - request.offset),
                  part.end - part.begin);
        team.zero(frame + part.end, page_size - part.end);
        team.sync();
        if (!mine) continue;
        const Completion word = make_completion(generation_of(seen), 0,
                                                static_cast<uint32_t>(page_size));
        uint64_t& completion = system.completions[frame_of(seen)];
        DeviceWords::store(completion, word, site::kComplete);
        page.seen = publish<DeviceWords>(*page.entry, seen, word);
        notify(completion);
        raise_to(file.size, first + part.end);
        count_dirty(system, mark_page(system, page, part) ? 1 : 0);
    }
    team.sync();
}

// Pins the batch's pages, fills those that need no reading, and requests the others that are
// missing. Returns 0, or -EBADF with nothing held, as hold_pages does.
template <class Team>
PENSTOCK_DEVICE int hold_to_write(const Team& team, FileSystemState& system,
                                  const RangeRequest& request, Batch<Team>& batch) {
    const uint32_t slot = descriptor_slot(request.descriptor);
    FileState& file = system.files[slot];
    bool valid = false;
    if (const int error = pin_open_pages(team, system, request.descriptor, nullptr, batch, valid);
        error != 0)
        return error;
    note_own_pages(team, system, file, request, batch);
    const unsigned count = batch.count;
    unsigned missing = count;
    if (!valid) missing = claim_pages(team, system, slot, request.place, batch, true);
    team.sync();
    if (team.lane() == 0) count_write(system, file, batch.first, count);
    team.sync();
    if (team.any(batch.filled != 0)) fill_pages(team, system, file, request, batch, count);
    if (team.any(batch.owed != 0)) pull_pages(team, system, slot, request.place, batch);
    if (missing < count) shorten(team, system, batch, missing);
    return 0;
}

// Does the first half of that, for a page that is written later: pins it, and requests it if it
// must be read first. Holds no page that the second half can fill. Returns 0 or -EBADF.
template <class Team>
PENSTOCK_DEVICE int hold_to_write_later(const Team& team, FileSystemState& system,
                                        const RangeRequest& request, Batch<Team>& batch) {
    const uint32_t slot = descriptor_slot(request.descriptor);
    bool valid = false;
    if (const int error = pin_open_pages(team, system, request.descriptor, nullptr, batch, valid);
        error != 0)
        return error;
    note_own_pages(team, system, system.files[slot], request, batch);
    if (team.any(batch.own != 0)) unpin_pages(team, batch, 0);
    if (batch.count != 0 && !valid) fetch_pages(team, system, slot, request.place, batch, false);
    return 0;
}

// Marks what was copied into the batch's frames. Returns how many pages were clean before the call,
// with those that fill_pages() has marked.
template <class Team>
PENSTOCK_DEVICE uint64_t mark_pages(const Team& team, FileSystemState& system, FileState& file,
                                    const RangeRequest& request, const Batch<Team>& batch) {
    const uint64_t stop = (batch.first + batch.count) << system.page_shift;
    if (team.lane() == 0) raise_to(file.size, stop < request.end ? stop : request.end);
    team.sync();
    unsigned dirtied = 0, filled = 0, total = 0, filled_total = 0;
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        const unsigned i = batch.index_of(team, k);
        if (i >= batch.count) continue;
        if ((batch.filled >> k & 1) != 0) {
            ++filled;
            continue;
        }
        const PagePart part = part_of_page(request, batch.first + i, system.page_shift);
        dirtied += mark_page(system, batch.pages[k], part);
    }
    (void)team.count_before(dirtied, total);
    if (team.lane() == 0) count_dirty(system, total);
    (void)team.count_before(filled, filled_total);
    return total + filled_total;
}

// Begins some write-backs, a page for a page, if so much of the cache is dirty that calls which
// need frames would soon wait for writes.
constexpr uint64_t kDirtyShare = 4;  // a quarter
PENSTOCK_DEVICE inline void write_behind(FileSystemState& system, uint64_t pages) {
    const auto dirty = static_cast<int64_t>(DeviceWords::load(system.dirty_pages, site::kRelaxed));
    if (dirty * static_cast<int64_t>(kDirtyShare) <= static_cast<int64_t>(system.frame_count))
        return;
    (void)end_writes(system, 2 * pages);
    (void)write_some(system, 4 * pages, 2 * pages);
    ring(system.rings[0]);
    constexpr uint64_t kStarted = 64;  // least number to start, if a block must do them itself
    if (DeviceWords::load(system.write_backs_begun, site::kRelaxed) >= kStarted)
        start_reads(system.rings[0]);
}

// Returns whether only pages failed to be read that the team need not read: another team had
// requested them.
template <class Team>
PENSTOCK_DEVICE bool only_own_failed(const Team& team, const Batch<Team>& batch) {
    bool own = false, other = false;
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        if (batch.index_of(team, k) >= batch.count) continue;
        const uint64_t seen = DeviceWords::load(*batch.pages[k].entry, site::kLook);
        if (state_of(seen) != PageState::kFailed) continue;
        ((batch.own >> k & 1) != 0 ? own : other) = true;
    }
    return team.any(own) && !team.any(other);
}

// Writes a run of pages, of which at most one is held. Uses `run` up. Returns 0 or -errno; then it
// holds nothing.
template <class Team>
PENSTOCK_DEVICE int write_run(const Team& team, FileSystemState& system,
                              const RangeRequest& request, PageRun& run) {
    FileState& file = system.files[descriptor_slot(request.descriptor)];
    Batch<Team> batch;
    RoomWait room(system);
    unsigned closed = 0, failed = 0;
    unsigned most = system.one_by_one != 0 ? 1 : team.lanes() * Team::kPagesPerLane;
    while (run.first < run.stop) {
        int error = 0;
        const bool begun = begin_batch(team, system, file, run, most, batch);
        if (begun) {
            if (team.lane() == 0) count_write(system, file, batch.first, batch.count);
            team.sync();
        } else {
            error = hold_to_write(team, system, request, batch);
            if (error != 0) return error;
        }
        if (batch.count == 0) {
            most = 1;  // as for a read: page by page from here on
            if (team.lane() == 0) {
                give_up_windows(system, request.place);
                error = room.step();
            }
            error = team.broadcast(error, 0);
            if (error != 0) return error;
            continue;
        }
        const unsigned count = batch.count;
        error = copy_pages<Direction::kIn>(team, system, request, batch);
        if (error == 0) {
            const uint64_t dirtied = mark_pages(team, system, file, request, batch);
            if (team.lane() == 0) write_behind(system, dirtied + 1);
        }
        const bool again = error != 0 && !begun && failed < kClosedMax &&
                           only_own_failed(team, batch);
        unpin_pages(team, batch, 0);
        if (again) {
            ++failed;
            continue;
        }
        if (error == -static_cast<int>(kErrorClosed)) {
            const bool open = !team.any(find_file(system, request.descriptor) == nullptr);
            if (open && ++closed < kClosedMax) continue;
            error = -kErrorBadDescriptor;
        }
        if (error != 0) return error;
        run.first += count;
    }
    return 0;
}

// Does one team's part of a write, as read_part. Returns the bytes of the whole write, or -errno.
template <class Team>
PENSTOCK_DEVICE int64_t write_part(const Team& team, unsigned index, unsigned teams,
                                   FileSystemState& system, const RangeRequest& request) {
    RangeRequest paged = request;  // the part of it that goes through pages
    if (is_written_once(system.files[descriptor_slot(request.descriptor)])) {
        paged = whole_granules(request);
        const int64_t error = index == 0 ? write_edges(team, system, request) : 0;
        if (error != 0 || paged.size == 0)
            return error != 0 ? error : static_cast<int64_t>(request.size);
    }
    const int error = each_run<Team>(system, paged, index, teams, [&](PageRun& run) {
        return write_run(team, system, paged, run);
    });
    if (error != 0) return error;
    return static_cast<int64_t>(request.size);
}

}  // namespace penstock::device
