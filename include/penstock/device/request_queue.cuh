// GPU end of the request queue between GPU and host: takes tickets and writes slots.
//
// Many producers (teams), many consumers (src/request_queue/ring.h). The ring is larger than all
// requests that can be in flight, so a producer never waits for room and never reads the head:
//   A team has at most kBatchPagesMax requests and waits for all of them before it takes more
//   tickets. The first team of a call takes those of the windows that all its teams pull. A pulled
//   request keeps its slot until it is copied, and no worker claims Layout::tickets_behind_max
//   tickets ahead of it: (1 << shift) >= teams * kBatchPagesMax + tickets_behind_max
//   (src/page_cache/layout.cc).
// Between take_tickets() and a team's last submit() there must be no wait and no fault point,
// because consumers stop at a ticket whose slot is not written.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/abi/orders.h"
#include "penstock/abi/request.h"

namespace penstock::device {

// Returns the ring of a block: the one ring, or in the seed's map the ring of the block's slot. The
// slot decides which worker the block waits for.
PENSTOCK_DEVICE inline RingState& ring_of_block(FileSystemState& system, uint32_t block) {
    if (system.ring_count == 1) return system.rings[0];
    return system.rings[block % limits::kStaticSlots * system.ring_count / limits::kStaticSlots];
}

// Takes `count` tickets and returns the first.
template <class Words>
PENSTOCK_BOTH uint64_t take_tickets(typename Words::Word& tail, uint64_t count) {
    return Words::fetch_add(tail, count, site::kTicket);
}

// Writes the request of one ticket into its slot (four words). The first word is stored last and
// makes the request visible.
template <class Words>
PENSTOCK_BOTH void submit(typename Words::Word* slots, int ring_shift, uint64_t ticket,
                          const Request& request) {
    const uint64_t index = ticket & ((1ull << ring_shift) - 1);
    typename Words::Word* slot = slots + 4 * index;
    uint64_t words[4];
    encode_request(request, lap_of(ticket, ring_shift), words);
    for (int i = 1; i < 4; ++i) Words::store(slot[i], words[i], site::kRelaxed);
    Words::store(slot[0], words[0], site::kSubmit);
}

}  // namespace penstock::device
