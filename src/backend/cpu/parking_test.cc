// Goal: a sleeper is always woken by the notify of its word, however store, look and sleep
// interleave.
#include "backend/cpu/parking.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace penstock::backend::cpu {
namespace {

using std::chrono::steady_clock;

uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

// Stores and tells; then waits for the other's answer. One lost wake-up costs 20 s.
void play(uint64_t* own, const uint64_t* other, uint64_t rounds) {
    for (uint64_t round = 1; round <= rounds; ++round) {
        __atomic_store_n(own, round, __ATOMIC_RELEASE);
        notify_addresses(own, 1);
        for (uint64_t seen = load(other); seen < round; seen = load(other)) {
            sleep_while_same(other, seen, std::chrono::seconds(20));
        }
    }
}

TEST(Parking, NoWakeUpIsLost) {
    constexpr uint64_t kRounds = 20000;
    uint64_t words[64] = {};
    auto start = steady_clock::now();
    std::thread a([&] { play(&words[0], &words[32], kRounds); });
    std::thread b([&] { play(&words[32], &words[0], kRounds); });
    a.join();
    b.join();
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(19));
}

// A ring wakes one, so every ring must be heard by somebody: the listeners take turns as workers
// do, and whoever rings waits for an answer each time. One lost ring costs 20 s.
TEST(Parking, NoRingIsLostAmongSeveralListeners) {
    constexpr uint64_t kRings = 5000, kListeners = 3;
    alignas(64) uint64_t bell = 0, answered = 0;
    auto start = steady_clock::now();
    std::vector<std::thread> listeners;
    for (uint64_t i = 0; i < kListeners; ++i) {
        listeners.emplace_back([&] {
            for (;;) {
                const uint64_t seen = load(&bell);
                uint64_t last = load(&answered);
                if (last == kRings) return;
                if (last < seen && __atomic_compare_exchange_n(&answered, &last, last + 1, false,
                                                               __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                    continue;
                if (last == seen) sleep_until_rung(&bell, seen, std::chrono::seconds(20));
            }
        });
    }
    for (uint64_t i = 0; i < kRings; ++i) {
        __atomic_fetch_add(&bell, 1, __ATOMIC_RELAXED);
        ring_address(&bell);
        while (load(&answered) <= i) std::this_thread::yield();
    }
    __atomic_fetch_add(&bell, 1, __ATOMIC_RELAXED);
    notify_addresses(&bell, 1);  // all of them
    for (std::thread& listener : listeners) listener.join();
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(19));
}

TEST(Parking, AChangedWordIsNotSleptOn) {
    uint64_t word = 2;
    auto start = steady_clock::now();
    sleep_while_same(&word, 1, std::chrono::seconds(20));
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(10));
    sleep_while_same(&word, 2, std::chrono::milliseconds(20));
    EXPECT_GE(steady_clock::now() - start, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace penstock::backend::cpu
