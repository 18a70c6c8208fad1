// Reading through the page cache, as one team does it. A run of pages is issued: pinned, and
// requested if no call has requested them. Then it is copied out as the pages arrive, and unpinned.
//
// The calls of file.cuh use it. A call that waits does both halves at once; gread_async and gwait
// (async_call.cuh) do one each. Any team of a group; nothing here synchronizes with other teams.
#pragma once

#include "penstock/abi/async_call.h"
#include "penstock/device/errors.cuh"
#include "penstock/device/page_cache.cuh"
#include "penstock/device/window_pulls.cuh"

namespace penstock {

// A pinned piece of a file in the page cache. It is valid from gmmap to gmunmap.
struct View {
    const std::byte* data = nullptr;  // device memory; aligned as its offset modulo the page size
    int64_t size = 0;            // bytes that may be read, or a negative errno (then data is null)
    PageEntry* entry = nullptr;  // the entry that the view pins; for gmunmap
    std::byte* writable = nullptr;  // `data` if the file is open for writing
};

namespace device {

// Pins the batch's pages (see pin_pages) and stores in `valid` whether all are VALID already.
// Returns 0, or -EBADF with nothing pinned: the file was closed meanwhile, and its slot may belong
// to another file by now. Once a page is pinned and the file seen open, its slot cannot be reused.
template <class Team>
PENSTOCK_DEVICE int pin_open_pages(const Team& team, FileSystemState& system, Descriptor descriptor,
                                   ReadaheadPlace* place, Batch<Team>& batch, bool& valid) {
    valid = pin_pages(team, system, system.files[descriptor_slot(descriptor)], place, batch);
    if (!team.any(find_file(system, descriptor) == nullptr)) return 0;
    unpin_pages(team, batch, 0);
    return -kErrorBadDescriptor;
}

// Pins the batch's pages and requests those that are missing (see fetch_pages). Returns as
// pin_open_pages.
template <class Team>
PENSTOCK_DEVICE int hold_pages(const Team& team, FileSystemState& system, Descriptor descriptor,
                               ReadaheadPlace* place, Batch<Team>& batch, bool waits) {
    bool valid = false;
    const int error = pin_open_pages(team, system, descriptor, place, batch, valid);
    if (error == 0 && !valid)
        fetch_pages(team, system, descriptor_slot(descriptor), place, batch, waits);
    return error;
}

// How often a page is requested again because its file was closed before the request was served.
// Beyond that limit, the device was not told that this descriptor is closed.
constexpr unsigned kClosedMax = 64;

// A range of a file that is read into a buffer, or written from it.
struct RangeRequest {
    Descriptor descriptor;
    uint64_t offset;  // first byte in the file
    uint64_t size;    // bytes as asked for, the same for all teams; may reach beyond the file
    uint64_t end;  // one past the last byte; for a read, as one team saw the file, which may shrink
    std::byte* buffer;
    ReadaheadPlace* place = nullptr;  // place of the block; null: none for this call
};

// Sets `request` to the read of [offset, offset + size), cut at the end of the file. Returns 1, or
// the result of the call: 0 if there is nothing to read, or -errno. The view of lane 0 counts for
// the team. The file may be closed or cut at this moment, and lanes with different views would
// diverge.
template <class Team>
PENSTOCK_DEVICE int64_t prepare_read(const Team& team, FileSystemState& system,
                                     Descriptor descriptor, int64_t offset, uint64_t size,
                                     void* buffer, RangeRequest& request) {
    constexpr uint64_t kClosed = ~0ull;
    const FileState* file = find_file(system, descriptor);
    uint64_t file_size = file == nullptr ? kClosed : DeviceWords::load(file->size, site::kRelaxed);
    file_size = team.broadcast(file_size, 0);
    const uint64_t first = static_cast<uint64_t>(offset);
    request = {descriptor, first, 0, first, static_cast<std::byte*>(buffer)};
    if (file_size == kClosed || (descriptor & kMayNotRead) != 0) return -kErrorBadDescriptor;
    if (offset < 0) return -kErrorInvalid;
    if (size == 0) return 0;
    if (buffer == nullptr) return -kErrorFault;
    if (first >= file_size) return 0;
    request.size = size;
    request.end = size < file_size - first ? first + size : file_size;
    return 1;
}

// Returns how many pages a team takes at a time: as many as it can, or fewer so that every team has
// a part. All teams must compute the same number, or some pages would be read twice or not at all.
// So it depends on nothing that may change during the call.
PENSTOCK_BOTH constexpr unsigned pages_of_run(const RangeRequest& request, unsigned page_shift,
                                              unsigned teams, unsigned most) {
    const uint64_t many = uint64_t{teams} * most;
    if (request.size >> page_shift >= many) return most;
    const uint64_t page_size = 1ull << page_shift;
    const uint64_t bytes = (request.offset & (page_size - 1)) + request.size;
    const uint64_t count = (bytes + page_size - 1) >> page_shift;
    return count >= many ? most : static_cast<unsigned>((count + teams - 1) / teams);
}
static_assert(pages_of_run({0, 0, 1 << 20, 1 << 20, nullptr}, 16, 8, 32) == 2);
static_assert(pages_of_run({0, 1, 1 << 20, 1 << 20, nullptr}, 16, 8, 32) == 3);  // 17 pages
static_assert(pages_of_run({0, 4095, 2, 4097, nullptr}, 12, 8, 32) == 1);
static_assert(pages_of_run({0, 4095, ~0ull, 4097, nullptr}, 12, 8, 32) == 32);

// Bytes that lie in adjacent frames, and their address in a request's buffer.
struct CopyRun {
    std::byte* frames = nullptr;
    std::byte* buffer = nullptr;
    size_t size = 0;
};
template <Direction kDirection, class Team>
PENSTOCK_DEVICE void copy_run(const Team& team, CopyRun& run) {
    if (run.size == 0) return;
    if constexpr (kDirection == Direction::kOut) {
        team.copy(run.buffer, run.frames, run.size);
    } else {
        team.copy(run.frames, run.buffer, run.size);
    }
    run.size = 0;
}

// Waits for page `i` of a batch, which belongs to lane `owner` and was not VALID. Returns 0 or
// -errno; after an error none of the pages behind it is in flight.
template <class Team>
PENSTOCK_DEVICE int await_page(const Team& team, FileSystemState& system, Batch<Team>& batch,
                               unsigned i, uint64_t& stalled_ns) {
    const unsigned owner = i % team.lanes(), k = i / team.lanes();
    int error = 0;
    if (team.lane() == owner) {
        PinnedEntry& page = batch.pages[k];
        page.seen = publish_if_complete(system, *page.entry,
                                        DeviceWords::load(*page.entry, site::kLook));
        if (state_of(page.seen) != PageState::kValid) {
            const uint64_t began = now_ns();
            error = wait_for_page(system, *page.entry, page.seen);
            stalled_ns += now_ns() - began;
        }
    }
    error = team.broadcast(error, owner);
    if (error != 0) settle_pages(team, system, batch, i + 1);
    return error;
}

// Copies the batch's part of the request out of its frames, waiting for each page in turn, or into
// its frames. Before it copies in it waits for all pages, so that a write that fails leaves no page
// with bytes that are not marked. It skips pages that the team has filled. Returns 0 or -errno.
template <Direction kDirection, class Team>
PENSTOCK_DEVICE int copy_pages(const Team& team, FileSystemState& system,
                               const RangeRequest& request, Batch<Team>& batch) {
    const uint64_t page_size = 1ull << system.page_shift;
    uint64_t stalled_ns = 0;
    CopyRun run;
    if constexpr (kDirection == Direction::kIn) {
        for (unsigned i = 0; i < batch.count; ++i) {
            const unsigned owner = i % team.lanes(), k = i / team.lanes();
            const PinnedEntry& page = batch.pages[Team::kPagesPerLane == 1 ? 0 : k];
            const uint64_t seen = team.broadcast(page.seen, owner);
            if (state_of(seen) == PageState::kValid) continue;
            const int error = await_page(team, system, batch, i, stalled_ns);
            if (error != 0) return error;
        }
    }
    team.sync();  // votes and shuffles order no memory: after this all lanes have acquired what the
                  // pinning lane has
    for (unsigned i = 0; i < batch.count; ++i) {
        const unsigned owner = i % team.lanes(), k = i / team.lanes();
        uint64_t seen = team.broadcast(batch.pages[Team::kPagesPerLane == 1 ? 0 : k].seen, owner);
        if (state_of(seen) != PageState::kValid) {
            copy_run<kDirection>(team, run);
            const int error = await_page(team, system, batch, i, stalled_ns);
            if (error != 0) return error;
            seen = team.broadcast(batch.pages[k].seen, owner);
            team.sync();  // as above, for the lane that waited
        }
        if constexpr (kDirection == Direction::kIn) {
            if (team.broadcast(batch.filled >> k & 1, owner) != 0) continue;
        }
        const uint64_t page_first = (batch.first + i) << system.page_shift;
        const uint64_t first = page_first > request.offset ? page_first : request.offset;
        const uint64_t end = page_first + page_size < request.end ? page_first + page_size
                                                                  : request.end;
        std::byte* piece = system.frames + (uint64_t{frame_of(seen)} << system.page_shift) +
                           (first - page_first);
        if (run.size > 0 && piece == run.frames + run.size &&
            (kDirection == Direction::kOut ||
             request.buffer + (first - request.offset) == run.buffer + run.size)) {
            run.size += end - first;
            continue;
        }
        copy_run<kDirection>(team, run);
        run = {piece, request.buffer + (first - request.offset), end - first};
    }
    copy_run<kDirection>(team, run);
    if (stalled_ns != 0) {
        const uint32_t slot = descriptor_slot(request.descriptor);
        add_count(counts_of(system, request.place, slot).stalled_ns, stalled_ns);
    }
    team.sync();
    return 0;
}

// Reads up to `most` pages from `first` on that lie in a window, without a check of each page;
// waits for them if they are in flight. Returns their number; 0 if they must be read as other
// pages; or -errno: -EBADF if the file was closed, or as Wait::step. It is a separate function:
// inlined, it would make nvcc use more than the 128 registers at which two blocks of 256 threads
// are resident.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE int64_t copy_from_window(const Team& team,
                                                           FileSystemState& system,
                                                           const RangeRequest& request,
                                                           PageIndex first, uint64_t most) {
    ReadaheadPlace& place = *request.place;
    const uint32_t slot = descriptor_slot(request.descriptor);
    WindowRun run;
    if (!begin_run(team, system, place, system.files[slot], first, most, run)) {
        const int waited = wait_for_run(team, system, place, slot, first, most);
        if (waited <= 0) return waited;
        if (!begin_run(team, system, place, system.files[slot], first, most, run)) return 0;
        // For windows that the call pulls, this was counted at their request.
        if (team.lane() == 0 && place.pull_count == 0)
            count_pages<Team>(system, place, slot, &FileCounts::late, run.count);
    }
    // The slot cannot be reused while an entry of it is pinned.
    const bool open = !team.any(find_file(system, request.descriptor) == nullptr);
    const uint32_t shift = system.page_shift;
    const uint64_t page_begin = first << shift, page_end = (first + run.count) << shift;
    const uint64_t begin = page_begin > request.offset ? page_begin : request.offset;
    const uint64_t end = page_end < request.end ? page_end : request.end;
    const std::byte* frames = system.frames + ((run.window->frame + run.place) << shift);
    if (open) {
        team.copy(request.buffer + (begin - request.offset), frames + (begin - page_begin),
                  end - begin);
    }
    end_run(team, system, place, slot, first, run);
    return open ? static_cast<int64_t>(run.count) : -kErrorBadDescriptor;
}

// Finds the pages of a batch again that are pinned already.
template <class Team>
PENSTOCK_DEVICE void find_held_pages(const Team& team, FileSystemState& system,
                                     const FileState& file, Batch<Team>& batch) {
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        const unsigned i = batch.index_of(team, k);
        batch.pages[k] = {};
        if (i < batch.count) batch.pages[k] = held_page(system, file, batch.first + i);
    }
}

// Unpins `count` pages from `first` on that are pinned and in no batch.
template <class Team>
PENSTOCK_DEVICE void release_held_pages(const Team& team, FileSystemState& system,
                                        const FileState& file, PageIndex first, uint64_t count) {
    for (uint64_t i = team.lane(); i < count; i += team.lanes())
        unpin<DeviceWords>(*held_page(system, file, first + i).entry);
}

// Adjacent pages of a team.
struct PageRun {
    PageIndex first, stop;  // one past the last
    uint64_t held = 0;      // how many of the first pages are pinned and requested already
};

// Moves the next pages of a run into the batch, at most `most`. Held pages are found again. Returns
// whether the pages are held; if not, the caller must hold them.
template <class Team>
PENSTOCK_DEVICE bool begin_batch(const Team& team, FileSystemState& system, const FileState& file,
                                 PageRun& run, unsigned most, Batch<Team>& batch) {
    const uint64_t count = run.held != 0 ? run.held : run.stop - run.first;
    batch.first = run.first;
    batch.count = count < most ? static_cast<unsigned>(count) : most;
    if (run.held == 0) return false;
    find_held_pages(team, system, file, batch);
    run.held -= batch.count;
    return true;
}

// Reads a run: issues the pages that are not held, and copies all out. Uses `run` up. Returns 0 or
// -errno; then it holds nothing.
template <class Team>
PENSTOCK_DEVICE int read_run(const Team& team, FileSystemState& system, const RangeRequest& request,
                             PageRun& run) {
    const FileState& file = system.files[descriptor_slot(request.descriptor)];
    Batch<Team> batch;
    RoomWait room(system);
    unsigned closed = 0;
    const bool windows = request.place != nullptr && request.place->current != kNoStream;
    unsigned most = system.one_by_one != 0 ? 1 : team.lanes() * Team::kPagesPerLane;
    while (run.first < run.stop) {
        if (windows && run.held == 0) {
            const int64_t read = copy_from_window(team, system, request, run.first,
                                                  run.stop - run.first);
            if (read < 0) return static_cast<int>(read);
            run.first += static_cast<uint64_t>(read);
            if (read > 0) continue;
        }
        int error = 0;
        if (!begin_batch(team, system, file, run, most, batch)) {
            error = hold_pages(team, system, request.descriptor, request.place, batch, true);
            if (error != 0) return error;
        }
        if (batch.count == 0) {
            // No frame or leaf is free now. Other teams hold them and will release them; or this
            // team did, with later pages. So it continues page by page.
            most = 1;
            if (team.lane() == 0) {
                const uint64_t began = now_ns();
                give_up_windows(system, request.place);
                error = room.step();
                const uint32_t slot = descriptor_slot(request.descriptor);
                add_count(counts_of(system, request.place, slot).stalled_ns, now_ns() - began);
            }
            error = team.broadcast(error, 0);
            if (error != 0) return error;
            continue;
        }
        error = copy_pages<Direction::kOut>(team, system, request, batch);
        const uint64_t count = batch.count;
        unpin_pages(team, batch, 0);
        if (error != 0 && run.held != 0) {
            release_held_pages(team, system, file, run.first + count, run.held);
            run.held = 0;
        }
        if (error == -static_cast<int>(kErrorClosed)) {
            // The page was requested through a descriptor that was closed since.
            const bool open = !team.any(find_file(system, request.descriptor) == nullptr);
            if (open && ++closed < kClosedMax) continue;
            error = -kErrorBadDescriptor;
        }
        if (error != 0) return error;
        run.first += count;
    }
    return 0;
}

// Returns the result of a read whose pages could all be read: the valid bytes from its start. A
// read that finds the file shorter stores that in the file's size before it publishes any page.
PENSTOCK_DEVICE inline int64_t good_bytes(const FileState& file, const RangeRequest& request) {
    const uint64_t size = DeviceWords::load(file.size, site::kRelaxed);
    if (size >= request.end) return static_cast<int64_t>(request.end - request.offset);
    return size > request.offset ? static_cast<int64_t>(size - request.offset) : 0;
}

// Calls `step(run)` for one team's runs of a request: every `teams`-th run from the `index`-th on.
// Stops when `step` returns other than 0, and returns that.
template <class Team, class Step>
PENSTOCK_DEVICE int each_run(const FileSystemState& system, const RangeRequest& request,
                             unsigned index, unsigned teams, const Step& step) {
    const PageIndex last = (request.end - 1) >> system.page_shift;
    // kPages is used even if the last warp has fewer lanes.
    const unsigned pages = pages_of_run(request, system.page_shift, teams, Batch<Team>::kPages);
    PageIndex first = (request.offset >> system.page_shift) + uint64_t{index} * pages;
    for (; first <= last; first += uint64_t{teams} * pages) {
        PageRun run{first, first + pages - 1 < last ? first + pages : last + 1};
        const int error = step(run);
        if (error != 0) return error;
    }
    return 0;
}

// Does one team's part of a read. Returns the valid bytes from the request's start as far as this
// team can tell (all, unless the file became shorter), or -errno.
template <class Team>
PENSTOCK_DEVICE int64_t read_part(const Team& team, unsigned index, unsigned teams,
                                  FileSystemState& system, const RangeRequest& request) {
    const int error = each_run<Team>(system, request, index, teams, [&](PageRun& run) {
        return read_run(team, system, request, run);
    });
    if (error != 0) return error;
    return good_bytes(system.files[descriptor_slot(request.descriptor)], request);
}

// Does the first team's part of a read, which is readahead (readahead.cuh). `teams` is as for
// look_ahead. Returns null if there is no readahead.
template <class Team>
PENSTOCK_DEVICE ReadaheadPlace* begin_read(const Team& team, FileSystemState& system,
                                           unsigned place, Descriptor descriptor, int64_t offset,
                                           uint64_t size, unsigned teams = 0) {
    const FileState* file = find_file(system, descriptor);
    uint64_t file_size = file == nullptr ? 0 : DeviceWords::load(file->size, site::kRelaxed);
    file_size = team.broadcast(file_size, 0);
    const uint64_t first = static_cast<uint64_t>(offset);
    if (first >= file_size || size == 0) return nullptr;
    const uint64_t end = size < file_size - first ? first + size : file_size;
    ReadaheadPlace* mine = look_ahead(team, system, place, descriptor, first, end, file_size,
                                      teams);
    if (mine == nullptr && team.lane() == 0) {
        const uint64_t pages = ((end - 1) >> system.page_shift) - (first >> system.page_shift) + 1;
        add_count(system.totals[descriptor_slot(descriptor)].counts.pages, pages);
    }
    return mine;
}

// Pins one page for a view. One lane calls.
PENSTOCK_DEVICE inline View map_page(FileSystemState& system, Descriptor descriptor,
                                     uint64_t offset, uint64_t size, ReadaheadPlace* place) {
    View view;
    const FileState& file = system.files[descriptor_slot(descriptor)];
    const uint64_t file_size = DeviceWords::load(file.size, site::kRelaxed);
    if (offset >= file_size || size == 0) return view;
    const uint64_t held = DeviceWords::fetch_add(system.held_pins, kViewPin, site::kRelaxed);
    if (views_held(held) >= system.views_max || pages_held(held) >= system.held_max) {
        DeviceWords::fetch_sub(system.held_pins, kViewPin, site::kRelaxed);
        view.size = -kErrorNoMemory;
        return view;
    }
    const LoneTeam<1> team;
    Batch<LoneTeam<1>> batch;
    RoomWait room(system);
    unsigned closed = 0;
    int error = 0;
    for (;;) {
        batch.first = offset >> system.page_shift;
        batch.count = 1;
        error = hold_pages(team, system, descriptor, place, batch, true);
        if (error != 0) break;
        if (batch.count == 0) {
            give_up_windows(system, place);
            error = room.step();
            if (error != 0) break;
            continue;
        }
        if (state_of(batch.pages[0].seen) != PageState::kValid) {
            const uint64_t began = now_ns();
            error = wait_for_page(system, *batch.pages[0].entry, batch.pages[0].seen);
            const uint32_t slot = descriptor_slot(descriptor);
            add_count(counts_of(system, place, slot).stalled_ns, now_ns() - began);
        }
        if (error != -static_cast<int>(kErrorClosed)) break;
        unpin_pages(team, batch, 0);  // requested through a descriptor that was closed since
        error = -kErrorBadDescriptor;
        if (++closed == kClosedMax) break;
    }
    if (error != 0) {
        unpin_pages(team, batch, 0);
        DeviceWords::fetch_sub(system.held_pins, kViewPin, site::kRelaxed);
        view.size = error;
        return view;
    }
    const uint64_t in_page = offset & ((1ull << system.page_shift) - 1);
    uint64_t length = (1ull << system.page_shift) - in_page;
    const uint64_t now = DeviceWords::load(file.size, site::kRelaxed);
    const uint64_t left = now > offset ? now - offset : 0;
    if (length > left) length = left;
    if (length > size) length = size;
    if (length == 0) {  // the file was cut meanwhile
        unpin_pages(team, batch, 0);
        DeviceWords::fetch_sub(system.held_pins, kViewPin, site::kRelaxed);
        return view;
    }
    view.data = system.frames + (uint64_t{frame_of(batch.pages[0].seen)} << system.page_shift) +
                in_page;
    view.size = static_cast<int64_t>(length);
    view.entry = batch.pages[0].entry;
    return view;
}

}  // namespace device
}  // namespace penstock
