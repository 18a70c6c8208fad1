// Windows that the teams of a call copy into their frames themselves, each team its part. These are
// the windows without which the call cannot go on, on a GPU
// (docs/design/0009-batches-to-a-gpu.md).
//
// The call holds `busy` of the place. All its teams call, before they do anything that may end
// early.
#pragma once

#include "penstock/device/answers.cuh"
#include "penstock/device/readahead.cuh"

namespace penstock::device {

// Copies the team's part of each of the call's pulled windows, and publishes it.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void pull_windows(const Team& team, unsigned index,
                                                    FileSystemState& system,
                                                    ReadaheadPlace& place) {
    const RingState& ring = ring_of_block(system, number_of_block());
    const uint32_t page_shift = system.page_shift;
    for (uint64_t i = 0; i < place.pull_count; ++i) {
        const WindowPull& pull = place.pulls[i];
        const uint64_t first = index * pull.part;
        if (first >= pull.count) continue;
        const uint64_t count = pull.count - first < pull.part ? pull.count - first : pull.part;
        const uint64_t frame = pull.frame + first;
        const uint64_t began = now_ns();
        uint64_t answer = 0;
        if (team.lane() == 0)
            answer = wait_for_answer(system, ring, pull.ticket + index, frame, pull.generation);
        const std::byte* from = team.broadcast(bytes_of_answer(answer), 0);
        team.sync();  // after this all lanes have acquired what lane 0 has
        const uint64_t answered = now_ns();
        if (from != nullptr) {
            team.copy(system.frames + (frame << page_shift), from, count << page_shift);
            team.sync();
            const Completion word = make_completion(static_cast<uint32_t>(pull.generation), 0,
                                                    1u << page_shift);
            for (uint64_t k = team.lane(); k < count; k += team.lanes())
                DeviceWords::store(system.completions[frame + k], word, site::kComplete);
            if (team.lane() == 0) give_answer_back(ring, pull.ticket + index);
        }
        if (team.lane() != 0) continue;
        ReadStream& stream = place.streams[place.current];
        const uint32_t slot = descriptor_slot(static_cast<Descriptor>(stream.file));
        add_count(counts_of(system, &place, slot).stalled_ns, answered - began);
        if (index == 0 && answer != 0)
            stream.ahead_left = waited_of_answer(answer) ? kAheadWindows : 0;
    }
}

}  // namespace penstock::device
