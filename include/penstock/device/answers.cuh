// Answers: the addresses in the host's memory of bytes that a team waits for and copies itself.
//
// This is the GPU end of kPullPage and kPullWindow (abi/request.h, docs/abi.md); the host's end is
// service/answer_sender.h. A team pulls in the order of its tickets, before it waits for anything
// else, because the host needs its memory back.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/wait.cuh"

namespace penstock::device {

// Waits for the answer to a ticket. One lane calls. Returns 0 if the page of `frame` arrived
// through its completion word, with that generation, or if the wait ended with an error. Such an
// error ends every wait from then on. No team takes an answer that comes later, so the page stays
// in FETCHING and the host's memory stays lent.
PENSTOCK_DEVICE inline uint64_t wait_for_answer(FileSystemState& system, const RingState& ring,
                                                uint64_t ticket, uint64_t frame,
                                                uint64_t generation) {
    const uint64_t index = ticket & ((1ull << ring.shift) - 1);
    const uint64_t& word = system.completions[frame];
    Wait wait(system);
    for (;;) {
        const uint64_t answer = SystemWords::load(ring.answers[index], site::kCompletion);
        if (lap_of_answer(answer) == lap_of(ticket, ring.shift)) return answer;
        const Completion completion = SystemWords::load(word, site::kRelaxed);
        if (completion_generation(completion) == generation) return 0;
        const int error = wait.step(&ring.answers[index], answer, &word, completion);
        if (error == 0) continue;
        SystemWords::store(system.host->abort, static_cast<uint64_t>(-error), site::kRelaxed);
        return 0;
    }
}

// Returns the host's memory: the bytes of the answer have been copied, and the host may reuse it.
PENSTOCK_DEVICE inline void give_answer_back(const RingState& ring, uint64_t ticket) {
    const uint64_t slot = ticket & ((1ull << ring.shift) - 1);
    SystemWords::store(ring.slots[4 * slot], 0, site::kPulled);
}

}  // namespace penstock::device
