// Reads in two halves: issued now, waited for and copied out later, by whoever has the handle.
//
// Issuing pins the first pages of the read, one run for each team, and asks for those that nobody
// has; a record in device memory (abi/async_read.h) says which. Waiting goes the way of every read
// from there (read_run). What could not be held - pages beyond kAsyncPagesMax, or that found no
// room - is read then.
//
// Invariants: 1. a record is its taker's until gwait has given it back; 2. the pages that records
// hold are counted in held_pins before they are pinned, and are so few that a frame for each permit
// is left; 3. nothing here waits while it issues but for requests of pages that found no frame.
#pragma once

#include "penstock/device/read.cuh"

namespace penstock::device {

PENSTOCK_BOTH constexpr AsyncHandle make_async_handle(uint64_t index, uint64_t state) {
    return static_cast<AsyncHandle>((state >> 1 << kAsyncIndexBits | index) & (~0ull >> 1));
}

PENSTOCK_DEVICE inline AsyncHandle handle_of(const FileSystemState& system, const AsyncRead& read) {
    return make_async_handle(static_cast<uint64_t>(&read - system.async_reads),
                             DeviceWords::load(read.state, site::kRelaxed));
}

// A free record of the team at `place`, taken; null: it has as many as it may. One lane.
PENSTOCK_DEVICE inline AsyncRead* take_async_read(FileSystemState& system, unsigned place) {
    const uint64_t first = uint64_t{place} * limits::kAsyncReadsMax % system.async_count;
    for (uint32_t i = 0; i < limits::kAsyncReadsMax; ++i) {
        AsyncRead& read = system.async_reads[(first + i) % system.async_count];
        uint64_t state = DeviceWords::load(read.state, site::kRelaxed);
        if ((state & 1) == 0 &&
            DeviceWords::compare_exchange(read.state, state, state + 3, site::kLockPort))
            return &read;
    }
    return nullptr;
}

// The record of a handle, if it is one that nobody has waited for yet. One lane; it has it then.
PENSTOCK_DEVICE inline AsyncRead* find_async_read(FileSystemState& system, AsyncHandle handle) {
    if (handle < 0) return nullptr;
    const auto index = static_cast<uint64_t>(handle) & ((1ull << kAsyncIndexBits) - 1);
    if (index >= system.async_count) return nullptr;
    AsyncRead& read = system.async_reads[index];
    uint64_t state = DeviceWords::load(read.state, site::kRelaxed);
    if ((state & 1) == 0 || make_async_handle(index, state) != handle) return nullptr;
    // Another number: the handle is worth nothing from now on.
    return DeviceWords::compare_exchange(read.state, state, state + 2, site::kLockPort) ? &read
                                                                                        : nullptr;
}

PENSTOCK_DEVICE inline void give_async_read_back(AsyncRead& read) {
    const uint64_t state = DeviceWords::load(read.state, site::kRelaxed);
    DeviceWords::store(read.state, state + 1, site::kUnlockPort);
}

// Counts `count` pages as held, or as many as there is room for. One lane.
PENSTOCK_DEVICE inline uint64_t reserve_async_pages(FileSystemState& system, uint64_t count) {
    const uint64_t held = DeviceWords::fetch_add(system.held_pins, count * kAsyncPin,
                                                 site::kRelaxed);
    const uint64_t async = async_pages_held(held), all = pages_held(held);
    uint64_t room = system.async_pages_max > async ? system.async_pages_max - async : 0;
    if (room > system.held_max - all) room = system.held_max > all ? system.held_max - all : 0;
    if (room >= count) return count;
    DeviceWords::fetch_sub(system.held_pins, (count - room) * kAsyncPin, site::kRelaxed);
    return room;
}

PENSTOCK_BOTH inline RangeRequest request_of(const AsyncRead& read) {
    return {read.descriptor, read.offset, read.size, read.offset + read.size, read.buffer};
}

// The part of a request that its first pages are.
PENSTOCK_BOTH inline RangeRequest first_pages(const RangeRequest& request, uint64_t pages,
                                              unsigned page_shift) {
    RangeRequest part = request;
    if (pages == 0) {
        part.end = part.offset;
        part.size = 0;
        return part;
    }
    const uint64_t stop = ((request.offset >> page_shift) + pages) << page_shift;
    if (part.end > stop) part.end = stop;
    part.size = part.end - part.offset;
    return part;
}

// Takes a record for a read that is not empty, and tells readahead of the pages that it will hold.
// Null: there is no more to be had. The first team.
template <class Team>
PENSTOCK_DEVICE AsyncRead* begin_issue(const Team& team, FileSystemState& system, unsigned place,
                                       unsigned teams, const RangeRequest& request) {
    const unsigned shift = system.page_shift;
    AsyncRead* read = nullptr;
    uint64_t pages = 0;
    if (team.lane() == 0) read = take_async_read(system, place);
    if (!team.any(team.lane() == 0 && read != nullptr)) return nullptr;
    read = team.broadcast(read, 0);
    if (team.lane() == 0 && request.size > 0) {
        pages = ((request.end - 1) >> shift) - (request.offset >> shift) + 1;
        uint64_t most = uint64_t{teams} * Batch<Team>::kPages;
        if (most > limits::kAsyncPagesMax) most = limits::kAsyncPagesMax;
        if (pages > most) pages = most;
        pages = reserve_async_pages(system, pages);
    }
    pages = team.broadcast(pages, 0);
    RangeRequest part = first_pages(request, pages, shift);
    ReadaheadPlace* ahead = nullptr;
    if (pages > 0) {
        ahead = begin_read(team, system, place, request.descriptor,
                           static_cast<int64_t>(part.offset), part.size);
    }
    if (team.lane() == 0) {
        read->descriptor = request.descriptor;
        read->offset = request.offset;
        read->size = request.end - request.offset;
        read->buffer = request.buffer;
        read->place = ahead;
        read->run_count = pages == 0 ? 0 : teams;
        read->run_pages = pages == 0 ? 0 : (pages + teams - 1) / teams;
        read->page_count = pages;
    }
    team.sync();
    return read;
}

// Whether a page may be held by one more asynchronous read, this one's pin counted.
PENSTOCK_BOTH inline bool may_hold(uint64_t seen) { return pins_of(seen) <= limits::kAsyncPinsMax; }

// A team's run of an asynchronous read: pinned, and asked for where nobody has it.
template <class Team>
PENSTOCK_DEVICE void issue_run(const Team& team, unsigned index, FileSystemState& system,
                               AsyncRead& read) {
    const PageIndex first = read.offset >> system.page_shift;
    const uint64_t begin = index * read.run_pages;
    if (begin >= read.page_count) return;
    const uint64_t left = read.page_count - begin;
    const uint64_t wanted = left < read.run_pages ? left : read.run_pages;
    Batch<Team> batch;
    batch.first = first + begin;
    batch.count = static_cast<unsigned>(wanted);
    const unsigned in_hand = system.one_by_one != 0 ? 1 : team.lanes() * Team::kPagesPerLane;
    if (batch.count > in_hand) batch.count = in_hand;
    if (hold_pages(team, system, read.descriptor, read.place, batch, false) != 0) batch.count = 0;
    unsigned most = batch.count;
    for (unsigned k = 0, mine = batch.mine(team); k < mine; ++k) {
        const unsigned i = batch.index_of(team, k);
        if (i < most && !may_hold(batch.pages[k].seen)) most = i;
    }
    most = team.lowest(most);
    if (most < batch.count) {
        settle_pages(team, system, batch, most);
        unpin_pages(team, batch, most);
    }
    if (team.lane() == 0) {
        read.held[index] = static_cast<uint8_t>(batch.count);
        const uint64_t unheld = wanted - batch.count;
        if (unheld > 0)
            DeviceWords::fetch_sub(system.held_pins, unheld * kAsyncPin, site::kRelaxed);
    }
}

// Takes a read over to wait for it, and tells readahead of what it does not hold. Null: there is no
// such read, or somebody waits for it already. The first team.
template <class Team>
PENSTOCK_DEVICE AsyncRead* begin_wait(const Team& team, FileSystemState& system, unsigned place,
                                      AsyncHandle handle) {
    AsyncRead* read = nullptr;
    if (team.lane() == 0) read = find_async_read(system, handle);
    read = team.broadcast(read, 0);
    if (read == nullptr) return nullptr;
    team.sync();  // what lane 0 has acquired, all have
    RangeRequest all = request_of(*read);
    const uint64_t done = first_pages(all, read->page_count, system.page_shift).size;
    ReadaheadPlace* ahead = nullptr;
    if (done < all.size) {
        ahead = begin_read(team, system, place, all.descriptor,
                           static_cast<int64_t>(all.offset + done), all.size - done);
    }
    if (team.lane() == 0) read->place = ahead;
    team.sync();
    return read;
}

// One lane, when all teams are done.
PENSTOCK_DEVICE inline void end_issue(AsyncRead* read) {
    if (read != nullptr) end_read(read->place);
}
PENSTOCK_DEVICE inline void end_wait(AsyncRead* read) {
    if (read == nullptr) return;
    end_read(read->place);
    give_async_read_back(*read);
}

// One team's part of waiting: every `teams`-th run that was issued, and what nobody issued. As
// read_part.
template <class Team>
PENSTOCK_DEVICE int64_t wait_part(const Team& team, unsigned index, unsigned teams,
                                  FileSystemState& system, const AsyncRead& read) {
    const unsigned shift = system.page_shift;
    const FileState& file = system.files[descriptor_slot(read.descriptor)];
    const RangeRequest all = request_of(read);
    const RangeRequest issued = first_pages(all, read.page_count, shift);
    const PageIndex first = read.offset >> shift;
    const bool open = !team.any(find_file(system, read.descriptor) == nullptr);
    int error = open ? 0 : -kErrorBadDescriptor;
    for (uint64_t r = index; r < read.run_count; r += teams) {
        const uint64_t begin = r * read.run_pages;
        if (begin >= read.page_count) break;
        const uint64_t left = read.page_count - begin;
        PageRun run{first + begin, first + begin};
        run.stop += left < read.run_pages ? left : read.run_pages;
        run.held = read.held[r];
        if (error != 0) {
            release_held_pages(team, system, file, run.first, run.held);
        } else {
            error = read_run(team, system, issued, run);
        }
        if (team.lane() == 0)
            DeviceWords::fetch_sub(system.held_pins, read.held[r] * kAsyncPin, site::kRelaxed);
    }
    if (error != 0) return error;
    if (issued.size < all.size) {
        RangeRequest rest = all;
        rest.offset += issued.size;
        rest.size -= issued.size;
        rest.buffer += issued.size;
        rest.place = read.place;
        const int64_t count = read_part(team, index, teams, system, rest);
        if (count < 0) return count;
    }
    return good_bytes(file, all);
}

}  // namespace penstock::device
