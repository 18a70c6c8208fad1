// Goal: whoever takes staging for so many bytes has that much memory in one piece, and nobody else
// has any of it until it is given back; and it is refused only where there is none.
#include "transfer/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace penstock::transfer {
namespace {

struct Taken {
    int32_t slot = -1;
    size_t size = 0;
    uint8_t mark = 0;
};

// Slots by their numbers, in the plainest way.
class Reference {
public:
    explicit Reference(size_t slots) : used_(slots, false) {}
    [[nodiscard]] bool has_run(size_t count) const {
        size_t free = 0;
        for (const bool used : used_) {
            free = used ? 0 : free + 1;
            if (free == count) return true;
        }
        return false;
    }
    void set(const Taken& taken, bool used) {
        for (size_t i = 0; i < slots_of(taken.size); ++i) {
            EXPECT_NE(used_[static_cast<size_t>(taken.slot) + i], used);
            used_[static_cast<size_t>(taken.slot) + i] = used;
        }
    }
    static size_t slots_of(size_t size) {
        return (size + Staging::kSlotSize - 1) / Staging::kSlotSize;
    }

private:
    std::vector<bool> used_;
};

// The first and the last byte of each of its pages, and of its margins.
void mark(const Staging& staging, const Taken& taken, bool check) {
    std::byte* memory = staging.memory(taken.slot);
    const size_t size = taken.size + 2 * Staging::kMarginSize;
    for (size_t at = 0; at < size; at += 4096) {
        for (const size_t place : {at, std::min(at + 4095, size - 1)}) {
            if (check) {
                ASSERT_EQ(memory[place], std::byte{taken.mark}) << "byte " << place;
            }
            memory[place] = std::byte{taken.mark};
        }
    }
}

TEST(Staging, random_programs_never_share_memory) {
    for (unsigned seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::mt19937 random(seed);
        const uint32_t slots = 1 + random() % 20;
        auto made = Staging::create(nullptr, slots);
        ASSERT_TRUE(made.ok());
        Staging& staging = *made.value();
        Reference reference(slots);
        std::vector<Taken> held;
        for (int step = 0; step < 200; ++step) {
            if (!held.empty() && random() % 2 == 0) {
                const size_t which = random() % held.size();
                mark(staging, held[which], true);
                if (HasFatalFailure()) return;
                reference.set(held[which], false);
                staging.give_back(held[which].slot);
                held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
                continue;
            }
            Taken taken;
            taken.size = 1 + random() % (4 * Staging::kSlotSize);
            taken.mark = static_cast<uint8_t>(step);
            const bool possible = reference.has_run(Reference::slots_of(taken.size));
            taken.slot = staging.take(taken.size);
            ASSERT_EQ(taken.slot >= 0, possible) << "step " << step;
            if (taken.slot < 0) continue;
            ASSERT_EQ(reinterpret_cast<uintptr_t>(staging.memory(taken.slot)) % 4096, 0U);
            reference.set(taken, true);
            mark(staging, taken, false);
            held.push_back(taken);
        }
    }
}

TEST(Staging, what_was_given_back_first_in_memory_is_taken_first) {
    auto made = Staging::create(nullptr, 8);
    ASSERT_TRUE(made.ok());
    Staging& staging = *made.value();
    const int32_t first = staging.take(2 * Staging::kSlotSize);
    const int32_t second = staging.take(2 * Staging::kSlotSize);
    EXPECT_EQ(first, 0);
    EXPECT_EQ(second, 2);
    staging.give_back(first);
    EXPECT_EQ(staging.take(2 * Staging::kSlotSize), first) << "its bytes are in the CPU's caches";
    EXPECT_EQ(staging.take(5 * Staging::kSlotSize), -1);
    EXPECT_EQ(staging.take(4 * Staging::kSlotSize), 4);
}

}  // namespace
}  // namespace penstock::transfer
