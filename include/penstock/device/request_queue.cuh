// GPU end of the GPU<->host request queue: take tickets, write slots.
//
// Many producers (teams), many consumers (src/request_queue/ring.h). The ring is larger than what
// can be outstanding, so a producer never waits for room and never looks at the head:
//   a team has at most kBatchPagesMax requests and waits for all of them before it takes more
//   tickets; the first team of a call takes those of the windows that all its teams pull. What a
//   team pulls keeps its slot until then, and no server claims Layout::tickets_behind_max tickets
//   ahead of one of those: (1 << shift) >= teams * kBatchPagesMax + tickets_behind_max
//   (src/page_cache/layout.cc).
// Between take_tickets() and a team's last submit() there must be no wait and no fault point:
// consumers stop at a ticket whose slot is not written.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/abi/orders.h"
#include "penstock/abi/request.h"

namespace penstock::device {

// One ring for all; or the seed's map, where a block's slot decides which worker it waits for.
PENSTOCK_DEVICE inline RingState& ring_of_block(FileSystemState& system, uint32_t block) {
    if (system.ring_count == 1) return system.rings[0];
    return system.rings[block % limits::kStaticSlots * system.ring_count / limits::kStaticSlots];
}

// Takes `count` tickets; the first of them.
template <class Words>
PENSTOCK_BOTH uint64_t take_tickets(typename Words::Word& tail, uint64_t count) {
    return Words::fetch_add(tail, count, site::kTicket);
}

// Writes the request of one ticket into its slot (four words). The first word makes it visible,
// last.
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
