// The watchdog. A block that neither meets, waits nor exits for too long fails its launch and loses
// its thread.
//
// The thread cannot be stopped from outside, so it is given up. It keeps its stacks and its share
// of the device's memory, and another thread takes its permit. If it ever reaches a barrier, it
// ends there.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "backend/cpu/scheduler.h"

namespace penstock::backend::cpu {

void Scheduler::watch() {
    auto limit = std::chrono::duration<double>(watchdog_seconds_);
    auto period = std::clamp<std::chrono::duration<double>>(limit / 4, std::chrono::milliseconds(5),
                                                            std::chrono::milliseconds(500));
    std::unique_lock lock(mutex_);
    while (!closing_ || thread_count_ > 0) {
        if (running_count_ == 0) {
            watched_.wait(lock);
            continue;
        }
        watched_.wait_for(lock, period);
        if (give_up_stuck(Clock::now())) idle_.notify_all();
    }
}

// Returns whether it gave up any block.
bool Scheduler::give_up_stuck(Clock::time_point now) {
    bool any = false;
    for (Slot& slot : slots_) {
        if (slot.launch == nullptr) continue;
        BlockState& block = slot.resident->block();
        uint64_t progress = progress_of(block);
        if (progress != slot.progress_seen || slot.resident->helping() != nullptr) {
            slot.progress_seen = progress;
            slot.same_since = now;
            continue;
        }
        std::chrono::duration<double> still = now - slot.same_since;
        if (still.count() < watchdog_seconds_) continue;
        const char* site = block.last_site.load(std::memory_order_relaxed);
        char text[300];
        std::snprintf(text, sizeof text, "no barrier, wait or exit for %.3g s; last barrier: %s",
                      still.count(), site == nullptr ? "none" : site);
        std::shared_ptr<Launch> launch = std::move(slot.launch);
        slot.launch = nullptr;
        slot.resident = nullptr;  // its thread owns it
        block.stop.store(StopReason::kGivenUp, std::memory_order_relaxed);
        --thread_count_;
        --running_count_;
        --launch->running_count;
        fail(*launch, {ETIMEDOUT, "kernel", "a block of the kernel stands still"},
             slot.where(*launch) + text);
        complete_if_over(launch);
        if (!ready_.empty()) ensure_residents();
        any = true;
    }
    return any;
}

}  // namespace penstock::backend::cpu
