// Answers a server's requests from teams that copy pages themselves, and limits how far its claims
// run ahead of teams that have not yet copied. server.h states the threads.
#include <algorithm>

#include "penstock/device/atomic.cuh"
#include "service/server.h"

namespace penstock::service {

using device::DeviceWords;

void Server::tell_oldest(uint64_t ticket) {
    oldest_->ticket.store(ticket, std::memory_order_release);
}

// A slot says whether its team has pulled, and its answer lies beside it, until a later lap. So no
// ticket may be claimed that lies too far ahead of the oldest one that a server still has. The wait
// ends: some server has the oldest ticket, and its team waits for nothing else.
bool Server::may_claim(uint32_t ring_index) {
    if (shared_.boards[ring_index] == nullptr) return true;
    const uint64_t stretch_size = (shared_.tickets_behind_max - limits::kDrainMax) / 2;
    const uint64_t head = DeviceWords::load(shared_.heads[ring_index].ticket, site::kRelaxed);
    oldest_->ring.store(ring_index, std::memory_order_relaxed);
    tell_oldest(std::min(head, sender_->oldest_lent()));
    // Orders tell_oldest() before the claim: a server that sees the later head also sees this
    // ticket.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint64_t stretch = head / stretch_size;
    if (stretch == stretch_) return true;
    for (const Shared::Oldest& other : shared_.oldest) {
        const uint64_t ticket = other.ticket.load(std::memory_order_acquire);
        if (ticket == PageSender::kNone || other.ring.load(std::memory_order_relaxed) != ring_index)
            continue;
        if (ticket / stretch_size + 1 < stretch) return false;
    }
    stretch_ = stretch;
    return true;
}

// Tells the team where the bytes lie. Null: its pages come with their completion words.
void Server::answer(const Request& request, const std::byte* bytes, bool waited) {
    const uint64_t slot = request.ticket & ((uint64_t{1} << ring_->shift) - 1);
    board_->put(slot, make_answer(bytes, lap_of(request.ticket, ring_->shift), waited));
    if (bytes != nullptr) sender_->lend(*ring_, request.ticket);
    const bool first = answered_begin_ == answered_end_;
    answered_begin_ = first ? slot : std::min(answered_begin_, slot);
    answered_end_ = first ? slot + 1 : std::max(answered_end_, slot + 1);
}

// Answers that there is nothing to copy. Each request of a ring with answers gets one, so an answer
// in a slot is never older than a lap. A team that waits for an answer gets one even if its page
// was read and evicted meanwhile.
void Server::answer_nothing(const Run& run) {
    if (run.background || board_ == nullptr) return;
    for (size_t i = run.first; i < run.first + run.count; ++i) answer(requests_[i], nullptr, false);
}

void Server::send_answers() {
    if (answered_begin_ == answered_end_) return;
    board_->publish(answered_begin_, answered_end_);
    answered_begin_ = answered_end_ = 0;
    activity_.store(Activity::kStorage, std::memory_order_release);
    if (!board_->flush().ok()) stop_sending();
    activity_.store(Activity::kServing, std::memory_order_release);
}

}  // namespace penstock::service
