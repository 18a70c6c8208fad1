// Host end of the GPU<->host request queue: a run of ready requests, copied out and then claimed.
//
// Any number of workers; the head is theirs alone (host memory). A template over the word policies
// so that the weak-memory explorer runs the same lines; device/request_queue.cuh is the other half.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "penstock/abi/orders.h"
#include "penstock/abi/request.h"

namespace penstock::request_queue {

// Copies up to `max` requests that are ready into `out` and takes them: returns how many. 0:
// nothing is ready. Copy first, claim second: a slot is written again only after a later ticket
// completed, which no worker could have claimed before this one was; so what is copied before a
// successful claim is whole. `share` workers divide what is ready, about, but no worker takes fewer
// than `least` pages (neighbours merge into one read), nor more than `pages_max` if it takes two.
template <class SlotWords, class HeadWords>
size_t drain(typename HeadWords::Word& head, typename SlotWords::Word* slots, int ring_shift,
             Request* out, size_t max, size_t share = 1, size_t least = 1,
             size_t pages_max = SIZE_MAX) {
    const auto slot_of = [&](uint64_t ticket) {
        return slots + 4 * (ticket & ((1ull << ring_shift) - 1));
    };
    uint64_t first = HeadWords::load(head, site::kRelaxed);
    for (;;) {
        size_t ready = 0, pages = 0, enough = 0;  // `enough` of them have `least` pages
        bool full = true;  // more are ready than may be taken, for all that is known
        while (ready < max) {
            const uint64_t ticket = first + ready;
            typename SlotWords::Word* slot = slot_of(ticket);
            uint64_t words[4];
            words[0] = SlotWords::load(slot[0], site::kDrain);
            if ((words[0] & 0xff) != lap_of(ticket, ring_shift)) {
                full = false;
                break;
            }
            for (int i = 1; i < 4; ++i) words[i] = SlotWords::load(slot[i], site::kRelaxed);
            out[ready] = decode_request(words);
            out[ready].ticket = ticket;
            const size_t before = pages;
            pages += out[ready].page_count;
            if (ready > 0 && pages > pages_max) break;
            ++ready;
            if (before < least) enough = ready;
        }
        // Of what lies behind, every `ready`-th is looked at: a hint is enough.
        size_t all = ready;
        for (size_t i = 1; full && ready > 0 && i < share; ++i, all += ready) {
            const uint64_t ticket = first + all + ready - 1;
            if ((SlotWords::load(slot_of(ticket)[0], site::kRelaxed) & 0xff) !=
                lap_of(ticket, ring_shift))
                break;
        }
        size_t take = std::min(ready, std::max(enough, (all + share - 1) / share));
        // What belongs together stays so: its other requests come any moment.
        while (take > 0 && take < ready && out[take - 1].behind > 0) ++take;
        while (take > 0 && out[take - 1].behind > 0) --take;
        if (take == 0) {
            const uint64_t now = HeadWords::load(head, site::kRelaxed);
            if (now == first) return 0;
            first = now;
            continue;
        }
        if (HeadWords::compare_exchange(head, first, first + take, site::kClaimRun)) return take;
    }
}

// Whether the next ticket to take is ready: a hint, as it may be taken meanwhile.
template <class SlotWords, class HeadWords>
bool has_ready(const typename HeadWords::Word& head, const typename SlotWords::Word* slots,
               int ring_shift) {
    const uint64_t ticket = HeadWords::load(head, site::kRelaxed);
    const typename SlotWords::Word* slot = slots + 4 * (ticket & ((1ull << ring_shift) - 1));
    return (SlotWords::load(slot[0], site::kRelaxed) & 0xff) == lap_of(ticket, ring_shift);
}

}  // namespace penstock::request_queue
