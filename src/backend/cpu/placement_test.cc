// Goal: threads begin on CPUs in turn, of those that are allowed, and may run on all of them
// afterwards.
#include "backend/cpu/placement.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace penstock::backend::cpu {
namespace {

cpu_set_t set_of(const std::vector<int>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    return set;
}

cpu_set_t allowed_now() {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

TEST(Placement, TheCpusThatAreAllowedTakeTurns) {
    const cpu_set_t allowed = set_of({3, 5, 700});
    std::vector<int> taken;
    for (unsigned index = 0; index < 7; ++index) taken.push_back(cpu_at(allowed, index));
    EXPECT_EQ(taken, (std::vector<int>{3, 5, 700, 3, 5, 700, 3}));
    EXPECT_EQ(cpu_at(set_of({}), 0), -1);
}

TEST(Placement, AThreadMayRunWhereItMightBefore) {
    const cpu_set_t before = allowed_now();
    for (unsigned index = 0; index < 5; ++index) {
        std::thread([&] {
            begin_on_cpu(index);
            const cpu_set_t now = allowed_now();
            EXPECT_TRUE(CPU_EQUAL(&now, &before));
        }).join();
    }
    // Of a thread with one CPU only.
    std::thread([&] {
        const cpu_set_t one = set_of({cpu_at(before, 0)});
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        begin_on_cpu(1);
        const cpu_set_t now = allowed_now();
        EXPECT_TRUE(CPU_EQUAL(&now, &one));
        EXPECT_EQ(sched_getcpu(), cpu_at(before, 0));
    }).join();
}

// The kernel may move a thread on at once, but seldom does; by chance every second one would be
// right.
TEST(Placement, AThreadBeginsWhereItIsToldTo) {
    const cpu_set_t allowed = allowed_now();
    if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "one CPU";
    constexpr unsigned kThreads = 400;
    std::mt19937 random(1);  // in turn is how the kernel may place them by itself
    unsigned right = 0;
    for (unsigned i = 0; i < kThreads; ++i) {
        const unsigned index = random() % 2;
        std::thread([&] {
            begin_on_cpu(index);
            right += sched_getcpu() == cpu_at(allowed, index);
        }).join();
    }
    EXPECT_GT(right, kThreads * 3 / 4);
}

}  // namespace
}  // namespace penstock::backend::cpu
