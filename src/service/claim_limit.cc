#include "service/claim_limit.h"

#include <algorithm>

#include "penstock/device/atomic.cuh"
#include "service/page_sender.h"

namespace penstock::service {

using device::DeviceWords;

bool ClaimLimit::may_claim(uint32_t ring, uint64_t oldest_lent) {
    const uint64_t stretch_size = (shared_.tickets_behind_max - limits::kDrainMax) / 2;
    const uint64_t head = DeviceWords::load(shared_.heads[ring].ticket, site::kRelaxed);
    mine_.ring.store(ring, std::memory_order_relaxed);
    tell_oldest(std::min(head, oldest_lent));
    // Orders tell_oldest() before the claim: a worker that sees the later head also sees this
    // ticket.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint64_t stretch = head / stretch_size;
    if (stretch == stretch_) return true;
    for (const Shared::Oldest& other : shared_.oldest) {
        const uint64_t ticket = other.ticket.load(std::memory_order_acquire);
        if (ticket == PageSender::kNone || other.ring.load(std::memory_order_relaxed) != ring)
            continue;
        if (ticket / stretch_size + 1 < stretch) return false;
    }
    stretch_ = stretch;
    return true;
}

}  // namespace penstock::service
