// The host end of the request queue between GPU and host. It copies out a run of ready requests and
// then claims it.
//
// Any number of workers may use it. Only they use the head, which is in host memory. It is a
// template over the word policies, so that the weak-memory explorer runs the same lines.
// device/request_queue.cuh is the other half.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "penstock/abi/orders.h"
#include "penstock/abi/request.h"

namespace penstock::request_queue {

// Copies up to `max` ready requests into `out` and claims them. Returns how many; 0 if none is
// ready. It copies first and claims second. A slot is written again only after a later ticket has
// completed, and no worker can have claimed that one before this one was claimed. So what is copied
// before a successful claim is whole. `share` workers divide what is ready, approximately. But a
// worker takes at least `least` pages (neighbours merge into one read), and at most `pages_max` if
// it takes two requests.
template <class SlotWords, class HeadWords>
size_t drain(typename HeadWords::Word& head, typename SlotWords::Word* slots, int ring_shift,
             Request* out, size_t max, size_t share = 1, size_t least = 1,
             size_t pages_max = SIZE_MAX) {
    const auto slot_of = [&](uint64_t ticket) {
        return slots + 4 * (ticket & ((1ull << ring_shift) - 1));
    };
    uint64_t first = HeadWords::load(head, site::kRelaxed);
    for (;;) {
        size_t ready = 0, pages = 0, enough = 0;  // the first `enough` requests have `least` pages
        bool full = true;                         // more may be ready than this worker may take
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
        // Looks at every `ready`-th request behind those, because a hint is enough.
        size_t all = ready;
        for (size_t i = 1; full && ready > 0 && i < share; ++i, all += ready) {
            const uint64_t ticket = first + all + ready - 1;
            if ((SlotWords::load(slot_of(ticket)[0], site::kRelaxed) & 0xff) !=
                lap_of(ticket, ring_shift))
                break;
        }
        size_t take = std::min(ready, std::max(enough, (all + share - 1) / share));
        // Requests that belong together are not separated: the missing ones arrive soon.
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

// Returns whether the next ticket is ready. This is a hint, because another worker may take it
// meanwhile.
template <class SlotWords, class HeadWords>
bool has_ready(const typename HeadWords::Word& head, const typename SlotWords::Word* slots,
               int ring_shift) {
    const uint64_t ticket = HeadWords::load(head, site::kRelaxed);
    const typename SlotWords::Word* slot = slots + 4 * (ticket & ((1ull << ring_shift) - 1));
    return (SlotWords::load(slot[0], site::kRelaxed) & 0xff) == lap_of(ticket, ring_shift);
}

}  // namespace penstock::request_queue
