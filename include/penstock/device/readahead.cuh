// Readahead on the GPU: windows of pages are requested before any call reads them.
//
// Each team that can be resident has a place (abi/readahead.h). Once for each call, the call's
// first team finds the stream to which the read belongs (read_streams.cuh), and requests the
// windows that should be in flight. Then the teams take pages out of them where they would
// otherwise request one from the host (window_runs.cuh): one compare-exchange of an entry, no copy.
// Other teams neither see a window nor wait for it. Source: seed 000, section 4.1, whose window is
// a private buffer of one size that is filled while the block waits.
//
// Nothing here waits. A team that waits for room first drops its windows, so that all windows
// together cannot exhaust the frames.
#pragma once

#include "penstock/device/common_windows.cuh"
#include "penstock/device/wait.cuh"
#include "penstock/device/write_sequence.cuh"

namespace penstock::device {

// Drops windows that seem abandoned, when windows hold all frames that they may: those of this
// place's other streams, and those of one other place. The next caller can use the frames. One
// lane.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline void drop_idle_windows(FileSystemState& system,
                                                                ReadaheadPlace& place,
                                                                const ReadStream& current) {
    const auto all = [](const Window&) { return true; };
    for (ReadStream& stream : place.streams) {
        if (&stream != &current && place.calls - stream.used_at > kIdleReads)
            (void)drop_windows(system, place, stream, all);
    }
    const uint64_t hand = DeviceWords::fetch_add(system.ring_hand, 1, site::kRelaxed);
    ReadaheadPlace& other = system.places[hand % system.place_count];
    if (&other == &place || !try_lock(other.busy)) return;
    for (ReadStream& stream : other.streams) {
        // The stream has not been read since the last visit of a thread here.
        if (stream.seen_at == stream.used_at) (void)drop_windows(system, other, stream, all);
        stream.seen_at = stream.used_at;
    }
    unlock(other.busy);
}

// Counts `count` more frames for windows, if windows may hold that many. One lane calls.
PENSTOCK_DEVICE inline bool may_hold(FileSystemState& system, ReadaheadPlace& place,
                                     const ReadStream& stream, uint32_t count) {
    const uint64_t held = DeviceWords::fetch_add(system.window_frames, count, site::kRelaxed);
    if (held + count <= system.readahead.frames_max) return true;
    DeviceWords::fetch_sub(system.window_frames, count, site::kRelaxed);
    drop_idle_windows(system, place, stream);
    return false;
}

// For a file that is open for writing: takes the stamp of a new window, then checks whether its
// pages are still absent. If not, removes the window and frees its frames.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE bool stamp_window(const Team& team, FileSystemState& system,
                                                    const FileState& file, ReadStream& stream) {
    Window& window = window_of(stream, stream.window_count - 1);
    if (team.lane() == 0) window.stamp = window_stamp<site::kTakeCounts>(system, file, window);
    team.sync();
    bool present = false;
    for (uint64_t p = team.lane(); p < window.count; p += team.lanes())
        present = present || !is_absent(system, file, page_of(window, p));
    if (!team.any(present)) return true;
    for (uint64_t p = team.lane(); p < window.count; p += team.lanes())
        give_frame_back(system, static_cast<FrameIndex>(window.frame + p));
    team.sync();
    if (team.lane() == 0) {
        DeviceWords::fetch_sub(system.window_frames, window.count, site::kRelaxed);
        window = {};
        --stream.window_count;
    }
    team.sync();
    return false;
}

// Takes frames for the pages wanted, and requests them. If `teams` is not 0, that many teams will
// pull the window. Returns false if that is not possible now.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE bool open_window(const Team& team, FileSystemState& system,
                                                   ReadaheadPlace& place, ReadStream& stream,
                                                   const StreamRead& read,
                                                   const WindowRequest& wanted, unsigned teams) {
    const FileState& file = system.files[descriptor_slot(static_cast<Descriptor>(read.file))];
    Window shape{};  // no pages yet
    // What was dropped before this point was dropped before these pages are read.
    shape.stamp = window_stamp<site::kTakeCounts>(system, file, shape);
    const bool written = team.any((shape.stamp & 1) != 0);
    shape.first = wanted.first;
    shape.step = wanted.step;
    shape.run = wanted.run;
    uint64_t mine = 0;
    AbsenceWalk walk;
    for (uint32_t p = team.lane(); p < wanted.count; p += team.lanes()) {
        if (walk.is_absent(system, file, page_of(shape, p))) mine |= 1ull << p;
    }
    Stretch stretch = first_stretch(team.unite(mine));
    // Only whole runs.
    const uint32_t cut = (wanted.run - stretch.first % wanted.run) % wanted.run;
    stretch.first += cut;
    stretch.count = stretch.count > cut ? (stretch.count - cut) / wanted.run * wanted.run : 0;
    bool room = stretch.count > 0;
    if (room && team.lane() == 0) room = may_hold(system, place, stream, stretch.count);
    room = team.broadcast(room, 0);
    FrameRange frames;
    if (room) {
        frames = take_adjacent_frames(team, system, place, stretch.count, place.once);
        const uint32_t whole = frames.count / wanted.run * wanted.run;
        for (uint32_t i = whole + team.lane(); i < frames.count; i += team.lanes())
            give_frame_back(system, frames.first + i);
        frames.count = whole;
    }
    const uint32_t generation = common_generation(team, system, frames);
    team.sync();  // after this lane 0 has acquired what the lanes that took the frames have
    if (team.lane() == 0) {
        const uint32_t covered = frames.count > 0    ? stretch.first + frames.count
                                 : stretch.count > 0 ? stretch.first
                                                     : wanted.count;
        stream.frontier = page_of(shape, covered);
        if (room && frames.count < stretch.count) {
            DeviceWords::fetch_sub(system.window_frames, stretch.count - frames.count,
                                   site::kRelaxed);
        }
        if (frames.count > 0) {
            Window& window = window_of(stream, stream.window_count++);
            window = shape;
            window.first = page_of(shape, stretch.first);
            window.count = frames.count;
            window.frame = frames.first;
            window.generation = generation;
            window.left = frames.count == 64 ? ~0ull : (1ull << frames.count) - 1;
        }
    }
    team.sync();
    if (frames.count == 0 || (written && !stamp_window(team, system, file, stream))) return false;
    if (team.lane() == 0) {
        Window& window = window_of(stream, stream.window_count - 1);
        if (teams == 0) submit_window(system, read.file, window);
        const uint32_t slot = descriptor_slot(static_cast<Descriptor>(read.file));
        add_count(counts_of(system, &place, slot).prefetched, frames.count);
        fetch_next_window(team, system, file, stream.frontier,
                          static_cast<FrameIndex>(frames.first + frames.count), frames.count);
    }
    team.sync();
    if (teams > 0) {
        const Window& window = window_of(stream, stream.window_count - 1);
        submit_pull(team, system, place, read, window, teams);
    }
    team.sync();
    return true;
}

// Returns whether the reader is past a window.
PENSTOCK_DEVICE inline bool is_passed(const Window& window, const StreamRead& read) {
    const PageIndex last = page_of(window, window.count - 1);
    return window.step < 0 ? last > read.last : last < read.first;
}

// Makes the decisions of one lane at the start of a read. Returns the stream, or kNoStream for no
// readahead.
PENSTOCK_DEVICE inline uint64_t begin_stream(FileSystemState& system, ReadaheadPlace& place,
                                             const StreamRead& read, const GivenAdvice& given) {
    ++place.calls;
    place.once = given.advice == Advice::kNoReuse ? ReadOnce::kAdvised : ReadOnce::kNo;
    place.shares = 0;
    if (system.readahead.enabled == 0 || given.advice == Advice::kRandom) return kNoStream;
    if (given.advice == Advice::kNormal && !is_watched(place)) return kNoStream;
    const uint64_t current = follow(system, place, read, given);
    if (current == kNoStream) return current;
    if (place.once == ReadOnce::kNo && judge_outrun(system, place, place.streams[current], read))
        place.once = ReadOnce::kOutrun;
    const bool vain = place.streams[current].streak == 0 && place.streams[current].needed != 0;
    place.vain = static_cast<uint16_t>(!vain                     ? 0
                                       : place.vain < kVainReads ? place.vain + 1
                                                                 : kVainReads);
    place.shares = may_share(system, place.streams[current]) ? 1 : 0;
    (void)drop_windows(system, place, place.streams[current],
                       [&](const Window& window) { return is_passed(window, read); });
    return current;
}

// From this number of blocks on, windows that are pulled when they are needed keep the link busier
// than windows that are requested ahead, if storage need not be waited for
// (docs/design/0009-batches-to-a-gpu.md).
constexpr unsigned kPullersMin = 12;
// Windows that are requested ahead after storage was waited for. Then one is pulled again, to test
// whether storage must still be waited for.
// whether it still is.
constexpr uint32_t kAheadWindows = 16;

// Requests shared windows, for a read whose block may be one of many that read a file in order
// together. Returns whether the read is one of those and wants no windows of its own.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE bool look_ahead_together(
    const Team& team, FileSystemState& system, ReadaheadPlace& place, Descriptor descriptor,
    const StreamRead& read, unsigned pullers) {
    if (team.broadcast(place.shares, 0) == 0) return false;
    bool together = false, submitted = false;
    // If the waiting team requests the window, one is enough for each read.
    bool more = true;
    for (unsigned tries = 0; more && tries < limits::kAdvisedMax; ++tries) {
        CommonRequest wanted;
        if (team.lane() == 0) {
            const uint32_t slot = descriptor_slot(descriptor);
            const FileState& file = system.files[slot];
            const bool missing = DeviceWords::load(file.missing, site::kRelaxed) != 0;
            const uint64_t ahead = pullers > 0 ? 0
                                   : missing   ? system.readahead.ahead_pages_missing
                                               : system.readahead.ahead_pages_max;
            more = ahead != 0;
            wanted = next_common(system, file, system.totals[slot].frontier,
                                 place.streams[place.current], read,
                                 {ahead, may_ask(system, place, pullers)});
        }
        more = team.broadcast(more ? 1u : 0u, 0) != 0;
        together = team.broadcast(wanted.together ? 1u : 0u, 0) != 0 || together;
        wanted.count = team.broadcast(wanted.count, 0);
        if (wanted.count == 0) break;
        wanted.first = team.broadcast(wanted.first, 0);
        const bool room = open_common_window(team, system, place, descriptor, read, wanted,
                                             pullers);
        submitted = submitted || pullers == 0;
        if (!room) break;
    }
    if (team.lane() == 0) {
        if (submitted) announce_windows(system, read.file);
        if (together && place.streams[place.current].window_count == 0 && place.pull_count == 0)
            place.current = kNoStream;
    }
    team.sync();
    return together;
}

// Requests the block's own windows.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void look_ahead_alone(const Team& team, FileSystemState& system,
                                                        ReadaheadPlace& place,
                                                        const StreamRead& read,
                                                        unsigned pullers_max) {
    ReadStream& stream = place.streams[place.current];
    bool asked = false, submitted = false;
    for (unsigned tries = 0; tries < stream.windows_max; ++tries) {
        WindowRequest wanted;
        unsigned pullers = 0;
        if (team.lane() == 0) {
            wanted = next_window(system, stream, read, asked);
            // Nothing is requested while the pages that are read are present.
            const FileState& file = system
                                        .files[descriptor_slot(static_cast<Descriptor>(read.file))];
            const PageIndex page = stream.delta < 0 ? read.first : read.last;
            const bool needed = wanted.count == 0 || stream.frontier > read.last ||
                                is_absent(system, file, page);
            if (!needed) wanted.count = 0;
            if (pullers_max > 0 && wanted.count > 0 && wanted.step == 1) {
                if (wanted.first <= read.last) {
                    pullers = pullers_max;
                } else if (stream.ahead_left > 0) {
                    --stream.ahead_left;
                } else if (gridDim.x * gridDim.y * gridDim.z >= kPullersMin) {
                    wanted.count = 0;
                }
            }
        }
        wanted.count = team.broadcast(wanted.count, 0);
        if (wanted.count == 0) break;
        wanted.first = team.broadcast(wanted.first, 0);
        wanted.step = team.broadcast(wanted.step, 0);
        wanted.run = team.broadcast(wanted.run, 0);
        pullers = team.broadcast(pullers, 0);
        if (!open_window(team, system, place, stream, read, wanted, pullers)) break;
        asked = true;
        submitted = submitted || pullers == 0;
    }
    if (team.lane() == 0) {
        // Once for all windows: adjacent ones are read together.
        if (submitted) announce_windows(system, read.file);
        if (stream.window_count == 0) place.current = kNoStream;
    }
    team.sync();
}

// Takes the place of a team and finds the stream that a read continues: place->current. Returns
// null if another block has the place.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE ReadaheadPlace* find_stream(const Team& team,
                                                              FileSystemState& system,
                                                              unsigned index,
                                                              const StreamRead& read) {
    if (system.places == nullptr) return nullptr;
    ReadaheadPlace& place = system.places[index % system.place_count];
    if (!team.any(team.lane() == 0 && try_lock(place.busy))) return nullptr;
    if (team.lane() == 0) {
        const uint32_t slot = descriptor_slot(static_cast<Descriptor>(read.file));
        begin_counts(system, place, slot, read.last - read.first + 1);
        place.current = begin_stream(system, place, read, given_advice(system.files[slot]));
        place.pull_count = 0;
    }
    team.sync();  // all lanes see what lane 0 wrote
    return &place;
}

// Prepares a read of [offset, end), not empty, of a file of `file_size` bytes: finds the stream
// that the read continues, and requests what should be in flight. `teams`: how many read together
// and will call pull_windows(); 0: none will. Returns the place, which must be passed to end_read,
// or null if another block has it. Never waits. It is inlined, and not a function that calls the
// others, because nvcc gives a function registers above those of its callers.
template <class Team>
PENSTOCK_DEVICE ReadaheadPlace* look_ahead(const Team& team, FileSystemState& system,
                                           unsigned index, Descriptor descriptor, uint64_t offset,
                                           uint64_t end, uint64_t file_size, unsigned teams) {
    const uint32_t shift = system.page_shift;
    const StreamRead read{file_of_stream(descriptor),
                          offset,
                          end - offset,
                          offset >> shift,
                          (end - 1) >> shift,
                          (file_size + (1ull << shift) - 1) >> shift};
    ReadaheadPlace* place = find_stream(team, system, index, read);
    if (place == nullptr || team.broadcast(place->current, 0) == kNoStream) return place;
    const unsigned pullers = system.rings[0].answers != nullptr ? teams : 0;
    if (look_ahead_together(team, system, *place, descriptor, read, pullers)) return place;
    look_ahead_alone(team, system, *place, read, pullers);
    return place;
}

// Ends what look_ahead() began. One lane calls, when all teams are done.
PENSTOCK_DEVICE inline void end_read(ReadaheadPlace* place) {
    if (place == nullptr) return;
    place->once = ReadOnce::kNo;  // advice and writes concern other pages
    place->shares = 0;
    unlock(place->busy);
}

}  // namespace penstock::device
