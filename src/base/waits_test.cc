// Goal: a thread is told of its own waits, once each, and of nothing else.
#include "base/waits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace penstock::base {
namespace {

void spin(uint64_t ns) {
    for (const uint64_t end = monotonic_ns() + ns; monotonic_ns() < end;) {
    }
}

TEST(Waits, SleepingCountsAndWorkingDoesNot) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(waited_since_asked());
    spin(3'000'000);
    EXPECT_FALSE(waited_since_asked());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(waited_since_asked());
    EXPECT_FALSE(waited_since_asked()) << "told once";
}

TEST(Waits, OtherThreadsDoNotCount) {
    std::atomic<bool> over{false};
    std::thread other([&over] {
        while (!over) std::this_thread::sleep_for(std::chrono::microseconds(100));
        EXPECT_TRUE(waited_since_asked());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // else nothing is known
    (void)waited_since_asked();
    spin(3'000'000);
    EXPECT_FALSE(waited_since_asked());
    over = true;
    other.join();
}

}  // namespace
}  // namespace penstock::base
