// Limits how far a worker's claims run ahead of teams that have not yet pulled their pages.
//
// A slot says whether its team has pulled, and its answer lies beside it, until a later lap. So no
// ticket may be claimed that lies too far ahead of the oldest one that a worker still has. The wait
// ends: some worker has the oldest ticket, and its team waits for nothing else. Each worker has
// one; one thread at a time.
#pragma once

#include <cstdint>

#include "service/shared.h"

namespace penstock::service {

class ClaimLimit {
public:
    explicit ClaimLimit(Shared& shared) : shared_(shared), mine_(shared.oldest.emplace_back()) {}

    // Tells the other workers the oldest ticket whose pages this one lends.
    void tell_oldest(uint64_t ticket) { mine_.ticket.store(ticket, std::memory_order_release); }
    // Returns whether tickets of that ring may be claimed. Tells the others that the worker may
    // soon have the ring's next ticket.
    [[nodiscard]] bool may_claim(uint32_t ring, uint64_t oldest_lent);

private:
    Shared& shared_;
    Shared::Oldest& mine_;
    uint64_t stretch_ = 0;  // range of tickets in which claims were last found safe
};

}  // namespace penstock::service
