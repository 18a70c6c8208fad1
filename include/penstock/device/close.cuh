// Closes a file that GPU threads have written. The caller is a kernel, the host, or the host when
// it reclaims what kernels have left open.
//
// The last descriptor that may write a file writes it back first. Pages that cannot be written, and
// a scratch file, are discarded. For that the file is held, so that no write-back of it is in
// flight; the host refuses opens of it; dirty pages are marked clean and dropped; then the host
// closes it. One group of one kernel does all of that. So a thread that waits for a held file never
// waits for a kernel that has not started.
#pragma once

#include "penstock/device/control_port.cuh"
#include "penstock/device/sync.cuh"

namespace penstock::device {

// How often to wait for a pin of a page that must be dropped: reads end, but views may stay.
constexpr unsigned kDropTurnsMax = 64;

// Drops a page that was marked clean, waiting a while for its readers. One lane calls.
PENSTOCK_DEVICE inline bool drop_forgotten(FileSystemState& system, const SeenPage& page) {
    Wait wait(system);
    for (unsigned turn = 0; !drop_seen(system, page); ++turn) {
        const uint64_t seen = DeviceWords::load(*page.entry, site::kRelaxed);
        if (turn == kDropTurnsMax || wait.step(page.entry, seen) != 0) return false;
    }
    return true;
}

// Ends hold_file() for the last close of a descriptor that may write the file. The host has said
// meanwhile whether dirty pages are `forgotten`. Returns whether all of them were dropped.
template <class Group>
PENSTOCK_DEVICE bool give_up_file(DeviceFileSystem fs, Descriptor descriptor, bool forgotten,
                                  Group group) {
    FileSystemState& system = *fs.state;
    bool dropped = true;  // of this lane
    const auto drop = [&](const SeenPage& page) {
        if (!drop_forgotten(system, page)) dropped = false;
    };
    return release_file(fs, descriptor, 0, forgotten ? 0 : ~0ull, group, drop,
                        [&](const auto& team, unsigned, unsigned) -> int64_t {
                            return team.any(!dropped) ? -kErrorBusy : 0;
                        }) == 0;
}

// The result of closing a file.
struct Closed {
    int64_t written = 0;  // 0, or -errno of pages that could not be written back
    int64_t answer = 0;   // 0, or -errno: the file is not closed
};

// Closes a descriptor. A whole group calls; `opener` says on whose behalf.
template <class Group>
PENSTOCK_DEVICE Closed close_file(DeviceFileSystem fs, Descriptor file, Opener opener,
                                  Group group) {
    const auto ask = [&](Closing how) -> int64_t {
        return group.once([&]() -> int64_t {
            if (find_file(*fs.state, file) == nullptr) return -kErrorBadDescriptor;
            return control_call(*fs.state,
                                {ControlCall::kClose, file, nullptr, make_close(how, opener)});
        });
    };
    Closed closed;
    closed.answer = ask(Closing::kAsks);
    while (closed.answer == kWriteBackFirst) {
        const int64_t left = write_back(fs, file, group);
        if (closed.written == 0) closed.written = left;
        const Closing next = left == 0 ? Closing::kHasWritten : Closing::kCannotWrite;
        const bool scratch = group.once(
            [&]() -> bool { return is_scratch(fs.state->files[descriptor_slot(file)]); });
        if (left == 0 && !scratch) {
            closed.answer = ask(next);
            continue;
        }
        const int64_t held = hold_file(fs, file, 0, group);
        closed.answer = held != 0 ? held : ask(next);
        if (held != 0) break;
        const bool forgets = closed.answer == kForgetFirst;
        const bool dropped = give_up_file(fs, file, forgets, group);
        if (forgets) closed.answer = ask(dropped ? Closing::kHasForgotten : Closing::kHasLeft);
    }
    return closed;
}

}  // namespace penstock::device
