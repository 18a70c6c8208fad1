// State shared by all workers of one file system. Only the heads and `oldest` change.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/abi/limits.h"
#include "service/answer_sender.h"
#include "service/file_table.h"
#include "service/launch_prefetcher.h"
#include "service/log.h"
#include "service/progress.h"

namespace penstock::service {

struct Shared {
    backend::Device* device = nullptr;
    FileSystemState* state = nullptr;  // as the host sees it
    FileTable* files = nullptr;
    LaunchPrefetcher* prefetcher = nullptr;                // null: no learning
    Log* log = nullptr;                                    // null: no log
    AnswerSender* answer_senders[limits::kRingsMax] = {};  // by ring; null: teams pull no pages
    // Used if teams pull. tickets_behind_max: how far behind the head of its ring a request may lie
    // whose team has not yet pulled, as its slot says. oldest: each worker's oldest such request.
    uint64_t tickets_behind_max = 0;
    struct alignas(64) Oldest {
        std::atomic<uint64_t> ticket{~uint64_t{0}};
        std::atomic<uint32_t> ring{0};  // the only ring that the worker serves
    };
    std::deque<Oldest> oldest;
    unsigned workers = 1;  // workers that divide ready requests
    // Those that divide ready windows. Blocks that help count, because a window is long.
    unsigned window_workers = 1;
    Abort abort;
    bool merges = true;  // reads neighbours in one read
    // How long pages that were read wait for more, if no copy to the device is in flight. Each send
    // takes some calls of the driver, which makes the calls of all workers one after another.
    uint64_t send_period_ns = 100'000;
    // The host ends of the rings: the next ticket to take. The last one is the background ring's.
    struct alignas(64) Head {
        uint64_t ticket = 0;
    } heads[limits::kRingsMax + 1];
    [[nodiscard]] RingState& ring(uint32_t index) const {
        return index == kBackground ? state->background : state->rings[index];
    }
    [[nodiscard]] uint64_t page_size() const { return uint64_t{1} << state->page_shift; }
    [[nodiscard]] bool direct() const { return device->properties().host_addressable; }
    static constexpr uint32_t kBackground = limits::kRingsMax;
};

}  // namespace penstock::service
