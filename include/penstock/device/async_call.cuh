// Reads and writes in two halves: a call begins one, and gwait completes it later, for any group
// that has the handle.
//
// The first half pins pages and requests those that no call has requested. A record in device
// memory (abi/async_call.h) says which. A read holds its first pages, one run for each team. A
// write holds the pages that must be read before a part of them is written; only its first and last
// page can be such pages. The second half works as every read and write (read_run, write_run). It
// reads or writes all pages that are not held: pages beyond kAsyncPagesMax, pages that found no
// room, and pages that a write need not read.
//
// Invariants: 1. A record belongs to its taker until gwait has given it back. 2. The pages that
// records hold are counted in held_pins before they are pinned, and so few that a frame for each
// permit is left. 3. The first half waits only for requests of pages that found no frame.
#pragma once

#include "penstock/device/write.cuh"

namespace penstock::device {

PENSTOCK_BOTH constexpr AsyncHandle make_async_handle(uint64_t index, uint64_t state) {
    return static_cast<AsyncHandle>((state >> 1 << kAsyncIndexBits | index) & (~0ull >> 1));
}

PENSTOCK_DEVICE inline AsyncHandle handle_of(const FileSystemState& system, const AsyncCall& call) {
    return make_async_handle(static_cast<uint64_t>(&call - system.async_calls),
                             DeviceWords::load(call.state, site::kRelaxed));
}

// Takes a free record of the team at `place`. Returns null if the team has as many as it may. On a
// device with more teams than records for all, teams share records, and any free record will do. So
// do they while blocks are outside with records of places where other blocks run now. One lane
// calls.
PENSTOCK_DEVICE inline AsyncCall* take_async_call(FileSystemState& system, unsigned place) {
    const uint64_t wanted = uint64_t{system.place_count} * limits::kAsyncCallsMax;
    const uint64_t first = uint64_t{place} * limits::kAsyncCallsMax % system.async_count;
    const bool shares = wanted > system.async_count ||
                        DeviceWords::load(system.calls_outside, site::kRelaxed) != 0;
    const uint32_t tries = shares ? system.async_count : limits::kAsyncCallsMax;
    for (uint32_t i = 0; i < tries; ++i) {
        AsyncCall& call = system.async_calls[(first + i) % system.async_count];
        uint64_t state = DeviceWords::load(call.state, site::kRelaxed);
        if ((state & 1) == 0 &&
            DeviceWords::compare_exchange(call.state, state, state + 3, site::kLockPort))
            return &call;
    }
    return nullptr;
}

// Takes over the record of a handle, if no gwait has taken it yet; otherwise returns null. One lane
// calls.
PENSTOCK_DEVICE inline AsyncCall* find_async_call(FileSystemState& system, AsyncHandle handle) {
    if (handle < 0) return nullptr;
    const auto index = static_cast<uint64_t>(handle) & ((1ull << kAsyncIndexBits) - 1);
    if (index >= system.async_count) return nullptr;
    AsyncCall& call = system.async_calls[index];
    uint64_t state = DeviceWords::load(call.state, site::kRelaxed);
    if ((state & 1) == 0 || make_async_handle(index, state) != handle) return nullptr;
    // The number changes: the handle is invalid from now on.
    return DeviceWords::compare_exchange(call.state, state, state + 2, site::kLockPort) ? &call
                                                                                        : nullptr;
}

PENSTOCK_DEVICE inline void give_async_call_back(AsyncCall& call) {
    const uint64_t state = DeviceWords::load(call.state, site::kRelaxed);
    DeviceWords::store(call.state, state + 1, site::kUnlockPort);
}

// Counts `count` pages as held, or as many as there is room for, and returns the number. One lane.
PENSTOCK_DEVICE inline uint64_t reserve_async_pages(FileSystemState& system, uint64_t count) {
    const uint64_t held = DeviceWords::fetch_add(system.held_pins, count * kAsyncPin,
                                                 site::kRelaxed);
    const uint64_t async = async_pages_held(held), all = pages_held(held);
    uint64_t room = system.async_pages_max > async ? system.async_pages_max - async : 0;
    // Other teams may have counted more than there is room for, and be about to take it back.
    const uint64_t left = system.held_max > all ? system.held_max - all : 0;
    if (room > left) room = left;
    if (room >= count) return count;
    DeviceWords::fetch_sub(system.held_pins, (count - room) * kAsyncPin, site::kRelaxed);
    return room;
}

PENSTOCK_BOTH inline RangeRequest request_of(const AsyncCall& call) {
    return {call.descriptor, call.offset, call.size, call.offset + call.size, call.buffer};
}

// Returns the part of a request that lies in pages [first, stop).
PENSTOCK_BOTH inline RangeRequest part_of_request(const RangeRequest& request, PageIndex first,
                                                  PageIndex stop, unsigned page_shift) {
    RangeRequest part = request;
    if (part.offset < first << page_shift) part.offset = first << page_shift;
    if (part.end > stop << page_shift) part.end = stop << page_shift;
    if (part.end < part.offset) part.end = part.offset;
    part.size = part.end - part.offset;
    part.buffer += part.offset - request.offset;
    return part;
}

PENSTOCK_BOTH inline PageRun run_of(const AsyncCall& call, uint64_t index, unsigned page_shift) {
    const uint64_t before = index * call.run_pages;
    if (before >= call.page_count) return {0, 0};
    const uint64_t left = call.page_count - before;
    const PageIndex first = (call.offset >> page_shift) + index * call.run_step;
    return {first, first + (left < call.run_pages ? left : call.run_pages)};
}

// Returns the part of a call that is in none of its runs: of a read the part behind them, of a
// write the part between them.
PENSTOCK_BOTH inline RangeRequest rest_of(const AsyncCall& call, unsigned page_shift) {
    const RangeRequest all = request_of(call);
    if (all.size == 0) return all;
    const PageIndex first = all.offset >> page_shift;
    const PageIndex stop = ((all.end - 1) >> page_shift) + 1;
    if (call.direction == Direction::kOut)
        return part_of_request(all, first + call.page_count, stop, page_shift);
    return part_of_request(all, first + (call.page_count > 0), stop - (call.page_count > 1),
                           page_shift);
}

// Returns the most pages that a call may hold.
template <Direction kDirection, class Team>
PENSTOCK_BOTH uint64_t held_pages_max(const RangeRequest& request, unsigned teams,
                                      unsigned page_shift) {
    if constexpr (kDirection == Direction::kIn) {
        const uint64_t in_page = (1ull << page_shift) - 1;
        return ((request.offset | request.end) & in_page) != 0 ? 2 : 0;
    } else {
        const uint64_t pages = uint64_t{teams} * Batch<Team>::kPages;
        return pages < limits::kAsyncPagesMax ? pages : limits::kAsyncPagesMax;
    }
}

// Fills in the record of a call, and counts the pages that it may hold. One lane calls.
template <Direction kDirection, class Team>
PENSTOCK_DEVICE void plan_call(FileSystemState& system, const RangeRequest& request, unsigned teams,
                               AsyncCall& call) {
    const unsigned shift = system.page_shift;
    uint64_t all = 0, held = 0;
    if (request.end > request.offset) {
        all = ((request.end - 1) >> shift) - (request.offset >> shift) + 1;
        held = held_pages_max<kDirection, Team>(request, teams, shift);
        if (held > all) held = all;
        const FileState& file = system.files[descriptor_slot(request.descriptor)];
        if (kDirection == Direction::kIn && is_written_once(file)) held = 0;  // nothing is read
        if (held > 0) held = reserve_async_pages(system, held);
    }
    call.descriptor = request.descriptor;
    call.offset = request.offset;
    call.size = request.end - request.offset;
    call.buffer = request.buffer;
    call.place = nullptr;
    call.direction = kDirection;
    call.page_count = held;
    if constexpr (kDirection == Direction::kOut) {
        call.run_count = held == 0 ? 0 : teams;
        call.run_pages = static_cast<uint32_t>((held + teams - 1) / teams);
        call.run_step = call.run_pages;
    } else {
        call.run_count = static_cast<uint32_t>(held);
        call.run_pages = 1;
        call.run_step = all > 0 ? all - 1 : 0;
    }
}

// Tells readahead about a part of a call. The first team calls.
template <class Team>
PENSTOCK_DEVICE void begin_part(const Team& team, FileSystemState& system, unsigned place,
                                const RangeRequest& part, AsyncCall& call) {
    ReadaheadPlace* ahead = nullptr;
    if (part.size > 0) {
        ahead = begin_read(team, system, place, part.descriptor, static_cast<int64_t>(part.offset),
                           part.size);
    }
    if (team.lane() == 0) call.place = ahead;
    team.sync();
}

// A call that has begun, or the error if `call` is null.
struct Issue {
    AsyncCall* call;
    int64_t error;
};

// Takes a record, then calls `prepare(team, request)`, which works as prepare_read. For a read it
// tells readahead about the pages that will be held. The first team calls.
template <Direction kDirection, class Team, class Prepare>
PENSTOCK_DEVICE Issue begin_issue(const Team& team, FileSystemState& system, unsigned place,
                                  unsigned teams, const Prepare& prepare) {
    AsyncCall* call = nullptr;
    if (team.lane() == 0) call = take_async_call(system, place);
    call = team.broadcast(call, 0);
    if (call == nullptr) return {nullptr, -kErrorAgain};
    RangeRequest request;
    const int64_t answer = prepare(team, request);
    if (answer < 0) {
        if (team.lane() == 0) give_async_call_back(*call);
        return {nullptr, answer};
    }
    if (team.lane() == 0) plan_call<kDirection, Team>(system, request, teams, *call);
    team.sync();
    if constexpr (kDirection == Direction::kOut) {
        const PageIndex first = request.offset >> system.page_shift;
        begin_part(team, system, place,
                   part_of_request(request, first, first + call->page_count, system.page_shift),
                   *call);
    }
    return {call, 0};
}

// The completion word of a page that has not arrived, and its value; null: all have.
struct Missing {
    const uint64_t* word;
    uint64_t seen;
};

// Looks for a page that a call holds and that has not arrived. The first `checked` pages have; the
// function counts on. After an abort, and for an unknown handle, nothing is missing: gwait returns
// the error. No other thread may wait for the call. One GPU thread calls, or the host where it can
// address device memory.
PENSTOCK_BOTH inline Missing first_missing(FileSystemState& system, AsyncHandle handle,
                                           uint64_t& checked) {
    const auto index = static_cast<uint64_t>(handle) & ((1ull << kAsyncIndexBits) - 1);
    if (handle < 0 || index >= system.async_count) return {nullptr, 0};
    if (is_aborted(system)) return {nullptr, 0};
    const AsyncCall& call = system.async_calls[index];
    const uint64_t state = DeviceWords::load(call.state, site::kRelaxed);
    if ((state & 1) == 0 || make_async_handle(index, state) != handle) return {nullptr, 0};
    const FileState& file = system.files[descriptor_slot(call.descriptor)];
    uint64_t number = 0;
    for (uint32_t r = 0; r < call.run_count; ++r) {
        const PageRun run = run_of(call, r, system.page_shift);
        for (uint64_t k = 0; k < call.held[r]; ++k) {
            if (number++ < checked) continue;
            PageEntry& entry = *held_page(system, file, run.first + k).entry;
            const uint64_t seen = publish_if_complete(system, entry,
                                                      DeviceWords::load(entry, site::kLook));
            if (state_of(seen) == PageState::kFetching) {
                const uint64_t* word = &system.completions[frame_of(seen)];
                return {word, SystemWords::load(*word, site::kCompletion)};
            }
            ++checked;
        }
    }
    return {nullptr, 0};
}

// Returns whether one more asynchronous call may hold a page, with its own pin counted.
PENSTOCK_BOTH inline bool may_hold(uint64_t seen) { return pins_of(seen) <= limits::kAsyncPinsMax; }

// Issues a run of an asynchronous call: pins its pages, and requests those that no call has.
template <Direction kDirection, class Team>
PENSTOCK_DEVICE void issue_run(const Team& team, unsigned index, FileSystemState& system,
                               AsyncCall& call) {
    const PageRun run = run_of(call, index, system.page_shift);
    const uint64_t wanted = run.stop - run.first;
    if (wanted == 0) return;
    Batch<Team> batch;
    batch.first = run.first;
    batch.count = static_cast<unsigned>(wanted);
    const unsigned in_hand = system.one_by_one != 0 ? 1 : team.lanes() * Team::kPagesPerLane;
    if (batch.count > in_hand) batch.count = in_hand;
    int error = 0;
    if constexpr (kDirection == Direction::kOut) {
        error = hold_pages(team, system, call.descriptor, call.place, batch, false);
    } else {
        error = hold_to_write_later(team, system, request_of(call), batch);
    }
    if (error != 0) batch.count = 0;
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
        call.held[index] = static_cast<uint8_t>(batch.count);
        const uint64_t unheld = wanted - batch.count;
        if (unheld > 0)
            DeviceWords::fetch_sub(system.held_pins, unheld * kAsyncPin, site::kRelaxed);
    }
}

// Takes over a call to wait for it. For a read it tells readahead about the pages that are not
// held. Returns null if there is no such call, or if another gwait has it. The first team calls.
template <class Team>
PENSTOCK_DEVICE AsyncCall* begin_wait(const Team& team, FileSystemState& system, unsigned place,
                                      AsyncHandle handle) {
    AsyncCall* call = nullptr;
    if (team.lane() == 0) call = find_async_call(system, handle);
    call = team.broadcast(call, 0);
    if (call == nullptr) return nullptr;
    team.sync();  // after this all lanes have acquired what lane 0 has
    if (call->direction == Direction::kOut)
        begin_part(team, system, place, rest_of(*call, system.page_shift), *call);
    return call;
}

// End a call's first and second half. One lane calls, when all teams are done.
PENSTOCK_DEVICE inline void end_issue(AsyncCall* call) {
    if (call != nullptr) end_read(call->place);
}
PENSTOCK_DEVICE inline void end_wait(AsyncCall* call) {
    if (call == nullptr) return;
    end_read(call->place);
    give_async_call_back(*call);
}

// Does one team's part of the second half: every `teams`-th run that was issued, and the pages that
// were not issued. Returns as read_part and write_part.
template <Direction kDirection, class Team>
PENSTOCK_DEVICE int64_t wait_part(const Team& team, unsigned index, unsigned teams,
                                  FileSystemState& system, const AsyncCall& call) {
    constexpr bool kReads = kDirection == Direction::kOut;
    const FileState& file = system.files[descriptor_slot(call.descriptor)];
    const RangeRequest all = request_of(call);
    const bool open = !team.any(find_file(system, call.descriptor) == nullptr);
    int error = open ? 0 : -kErrorBadDescriptor;
    for (unsigned r = index; r < call.run_count; r += teams) {
        PageRun run = run_of(call, r, system.page_shift);
        if (run.first == run.stop) break;
        run.held = call.held[r];
        if (error != 0) {
            release_held_pages(team, system, file, run.first, run.held);
        } else if constexpr (kReads) {
            error = read_run(team, system, all, run);
        } else {
            error = write_run(team, system, all, run);
        }
        if (team.lane() == 0)
            DeviceWords::fetch_sub(system.held_pins, call.held[r] * kAsyncPin, site::kRelaxed);
    }
    if (error != 0) return error;
    RangeRequest rest = rest_of(call, system.page_shift);
    rest.place = call.place;
    int64_t count = 0;
    if constexpr (kReads) {
        if (rest.size > 0) count = read_part(team, index, teams, system, rest);
        return count < 0 ? count : good_bytes(file, all);
    } else {
        if (rest.size > 0) count = write_part(team, index, teams, system, rest);
        return count < 0 ? count : static_cast<int64_t>(all.size);
    }
}

// The same for a write. It is a separate function, so that kernels which only read need no
// registers for it.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE int64_t wait_write_part(const Team& team, unsigned index,
                                                          unsigned teams, FileSystemState& system,
                                                          const AsyncCall& call) {
    return wait_part<Direction::kIn>(team, index, teams, system, call);
}

// Does the first half of a call. A whole group calls. Returns a handle, or -errno, in all threads.
// `prepare` is as for begin_issue.
template <Direction kDirection, class Group, class Prepare>
PENSTOCK_DEVICE AsyncHandle issue(FileSystemState& system, Group group, const Prepare& prepare) {
    const auto begin = [&system, prepare](const auto& team, unsigned place,
                                          unsigned count) -> Issue {
        return begin_issue<kDirection>(team, system, place, count, prepare);
    };
    const auto work = [&system](const auto& team, unsigned index, unsigned teams,
                                const Issue& begun) -> int64_t {
        if (begun.call == nullptr) return begun.error;
        for (unsigned r = index; r < begun.call->run_count; r += teams)
            issue_run<kDirection>(team, r, system, *begun.call);
        return handle_of(system, *begun.call);
    };
    const auto end = [](const Issue& begun) { end_issue(begun.call); };
    const AsyncHandle handle = group.divide(begin, work, end);
    group.meet();  // from here on another group may wait for it and own the record
    return handle;
}

// Does the second half of a call by `work`. A whole group calls. `buffer` takes the place of the
// one that the call was begun with, unless it is null.
template <class Group, class Work>
PENSTOCK_DEVICE int64_t end_call(FileSystemState& system, AsyncHandle handle, std::byte* buffer,
                                 Group group, Work work) {
    const auto begin = [&system, handle, buffer](const auto& team, unsigned place, unsigned) {
        AsyncCall* call = begin_wait(team, system, place, handle);
        if (call != nullptr && buffer != nullptr) {
            if (team.lane() == 0) call->buffer = buffer;
            team.sync();
        }
        return call;
    };
    const auto part = [work](const auto& team, unsigned index, unsigned teams,
                             AsyncCall* call) -> int64_t {
        return call == nullptr ? -kErrorInvalid : work(team, index, teams, *call);
    };
    return group.divide(begin, part, [](AsyncCall* call) { end_wait(call); });
}

template <class Group>
PENSTOCK_DEVICE int64_t wait_for_call(FileSystemState& system, AsyncHandle handle, Group group) {
    const auto work = [&system](const auto& team, unsigned index, unsigned teams,
                                AsyncCall& call) -> int64_t {
        return call.direction == Direction::kIn
                   ? wait_write_part(team, index, teams, system, call)
                   : wait_part<Direction::kOut>(team, index, teams, system, call);
    };
    return end_call(system, handle, nullptr, group, work);
}

// The same for a read, whose bytes go to `buffer`. It carries no code of writes.
template <class Group>
PENSTOCK_DEVICE int64_t wait_for_read(FileSystemState& system, AsyncHandle handle,
                                      std::byte* buffer, Group group) {
    const auto work = [&system](const auto& team, unsigned index, unsigned teams,
                                AsyncCall& call) -> int64_t {
        return wait_part<Direction::kOut>(team, index, teams, system, call);
    };
    return end_call(system, handle, buffer, group, work);
}

}  // namespace penstock::device
