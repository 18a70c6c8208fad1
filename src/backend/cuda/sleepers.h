// The host threads that sleep on a word of this device, so that a launch can wake them to serve it.
// Any thread.
//
// The futex table (cpu/parking.h) serves the whole process. This object only remembers the words on
// which threads sleep.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "backend/cpu/parking.h"

namespace penstock::backend::cuda {

class Sleepers {
public:
    // Sleeps while `*address == seen`, until a notify, a launch, or `limit`. May return early.
    void sleep(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit) {
        // If there are more sleepers than slots, the others are not remembered and sleep for short
        // times.
        std::atomic<const uint64_t*>* slot = remember(address);
        cpu::sleep_while_same(address, seen,
                              slot == nullptr ? std::min(limit, kUnremembered) : limit);
        if (slot != nullptr) slot->store(nullptr, std::memory_order_release);
    }

    void wake_all() const {
        for (const auto& slot : slots_) {
            if (const uint64_t* address = slot.load(std::memory_order_acquire)) {
                cpu::notify_addresses(address, 1);
            }
        }
    }

private:
    static constexpr std::chrono::nanoseconds kUnremembered = std::chrono::milliseconds(1);

    std::atomic<const uint64_t*>* remember(const uint64_t* address) {
        for (auto& slot : slots_) {
            const uint64_t* empty = nullptr;
            if (slot.compare_exchange_strong(empty, address, std::memory_order_acq_rel))
                return &slot;
        }
        return nullptr;
    }

    std::array<std::atomic<const uint64_t*>, 64> slots_{};
};

}  // namespace penstock::backend::cuda
