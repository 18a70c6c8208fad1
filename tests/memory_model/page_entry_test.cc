// Goal: the page entry's state machine holds its invariants in every state, under every operation.
//
// Each operation of device/page_entry.cuh is one read-modify-write, so under sequential consistency
// the machine is enumerated by applying each to each reachable state; what weak memory adds is in
// protocol_test.cc. Plain words, no explorer.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "penstock/abi/orders.h"
#include "penstock/abi/page_entry.h"
#include "penstock/abi/request.h"
#include "penstock/device/page_entry.cuh"

namespace penstock::memory_model {
namespace {

struct PlainWords {
    using Word = uint64_t;
    static uint64_t load(const Word& word, Site) { return word; }
    static uint64_t fetch_add(Word& word, uint64_t value, Site) {
        return std::exchange(word, word + value);
    }
    static uint64_t fetch_sub(Word& word, uint64_t value, Site) {
        return std::exchange(word, word - value);
    }
    static uint64_t fetch_and(Word& word, uint64_t value, Site) {
        return std::exchange(word, word & value);
    }
    static bool compare_exchange(Word& word, uint64_t& expected, uint64_t desired, Site) {
        if (word != expected) {
            expected = word;
            return false;
        }
        word = desired;
        return true;
    }
};

constexpr std::array kStates{PageState::kEmpty,    PageState::kFetching, PageState::kValid,
                             PageState::kEvicting, PageState::kFailed,   PageState::kRetired};
constexpr std::array<uint64_t, 4> kPins{0, 1, 2, (1u << limits::kPinBits) - 2};
constexpr std::array<uint32_t, 4> kGenerations{0, 1, 2, kGenerationMax};
constexpr std::array<FrameIndex, 3> kFrames{0, 1, (1u << limits::kFrameBits) - 1};

std::vector<uint64_t> all_entries() {
    std::vector<uint64_t> entries;
    for (const PageState state : kStates) {
        for (const uint64_t pins : kPins) {
            for (const uint32_t generation : kGenerations) {
                for (const FrameIndex frame : kFrames) {
                    for (const uint64_t flags :
                         {uint64_t{0}, kDirtyBit, kTouchedBit, kDirtyBit | kTouchedBit}) {
                        entries.push_back(make_entry(state, frame, generation, pins << kPinShift) |
                                          flags);
                    }
                }
            }
        }
    }
    return entries;
}

bool holds_frame(uint64_t entry) {
    const PageState state = state_of(entry);
    return state == PageState::kFetching || state == PageState::kValid ||
           state == PageState::kFailed;
}

TEST(PageEntry, PinsChangeNothingElse) {
    for (const uint64_t before : all_entries()) {
        uint64_t entry = before;
        EXPECT_EQ(device::pin<PlainWords>(entry), entry) << "the result counts the new pin";
        EXPECT_EQ(entry & ~kPinMask, before & ~kPinMask);
        EXPECT_EQ(pins_of(entry), pins_of(before) + 1);
        device::unpin<PlainWords>(entry);
        EXPECT_EQ(entry, before);
    }
}

// The caller saw `seen`; the entry has come to `before` since.
void check_claims(uint64_t before, uint64_t seen) {
    for (const FrameIndex frame : kFrames) {
        uint64_t entry = before, newest = seen;
        const bool claimed = device::claim<PlainWords>(entry, newest, frame, 2);
        const bool empty = state_of(before) == PageState::kEmpty;
        EXPECT_EQ(claimed, empty && state_of(seen) == PageState::kEmpty);
        EXPECT_EQ(entry,
                  claimed ? make_entry(PageState::kFetching, frame, 2, before & kPinMask) : before);
        EXPECT_EQ(newest, state_of(seen) == PageState::kEmpty ? entry : seen);
    }
    uint64_t entry = before, newest = seen;
    const bool claimed = device::claim_again<PlainWords>(entry, newest);
    EXPECT_EQ(claimed,
              state_of(before) == PageState::kFailed && state_of(seen) == PageState::kFailed);
    if (!claimed) {
        EXPECT_EQ(entry, before);
        return;
    }
    EXPECT_EQ(state_of(entry), PageState::kFetching);
    EXPECT_EQ(frame_of(entry), frame_of(before)) << "a page that failed keeps its frame";
    EXPECT_EQ(generation_of(entry), (generation_of(before) + 1) & kGenerationMax);
    EXPECT_EQ(entry & kPinMask, before & kPinMask);
    EXPECT_EQ(newest, entry);
}

void check_adopt(uint64_t before, uint64_t seen) {
    const bool empty = state_of(before) == PageState::kEmpty;
    for (const uint64_t pins : {0, 1}) {
        if (pins > pins_of(before) || pins > pins_of(seen)) continue;
        uint64_t entry = before, newest = seen;
        const Completion completion = make_completion(2, 0, 4096);
        const bool adopted = device::adopt<PlainWords>(entry, newest, 1, 2, completion, pins);
        EXPECT_EQ(adopted, empty && state_of(seen) == PageState::kEmpty &&
                               (before & kFillMask) == (seen & kFillMask))
            << "not if it was filled in between";
        const uint64_t kept = before - pins * kPinUnit;
        EXPECT_EQ(entry, adopted ? make_entry(PageState::kValid, 1, 2, kept) : before);
    }
    uint64_t entry = before;
    device::renew<PlainWords>(entry, 7);
    EXPECT_EQ(entry == before, !empty);
    const uint64_t renewed = entry;
    device::renew<PlainWords>(entry, 8);
    EXPECT_EQ(entry == renewed, !empty) << "another number, another word";
    EXPECT_EQ(entry & (kStateMask | kPinMask), before & (kStateMask | kPinMask));
}

void check_publish(uint64_t before, uint64_t seen) {
    for (const uint32_t generation : kGenerations) {
        for (const uint32_t error : {0u, 5u}) {
            uint64_t entry = before;
            const uint64_t newest = device::publish<PlainWords>(
                entry, seen, make_completion(generation, error, 0));
            const auto fits = [&](uint64_t word) {
                return state_of(word) == PageState::kFetching && generation_of(word) == generation;
            };
            const PageState state = error == 0 ? PageState::kValid : PageState::kFailed;
            const bool published = fits(seen) && fits(before);
            EXPECT_EQ(entry,
                      published ? (before & ~kStateMask) | static_cast<uint64_t>(state) : before);
            EXPECT_EQ(newest, fits(seen) ? entry : seen);
        }
    }
}

void check_evict(uint64_t before, uint64_t seen) {
    for (const FrameIndex frame : kFrames) {
        uint64_t entry = before;
        const bool evicted = device::evict<PlainWords>(entry, seen, frame);
        if (!evicted) {
            EXPECT_EQ(entry, before);
            continue;
        }
        EXPECT_TRUE(state_of(before) == PageState::kValid ||
                    state_of(before) == PageState::kFailed);
        EXPECT_EQ(pins_of(before), 0u);
        EXPECT_EQ(before & kDirtyBit, 0u);
        EXPECT_EQ(frame_of(before), frame);
        EXPECT_EQ(entry, before & kFillMask);
    }
}

TEST(PageEntry, EachTransitionFromEachState) {
    const std::vector<uint64_t> entries = all_entries();
    for (size_t i = 0; i < entries.size(); ++i) {
        // What was seen: the entry itself, and others of every state.
        for (size_t k = i % 7; k < entries.size(); k += 7) {
            for (const uint64_t seen : {entries[i], entries[k]}) {
                check_claims(entries[i], seen);
                check_adopt(entries[i], seen);
                check_publish(entries[i], seen);
                check_evict(entries[i], seen);
            }
        }
        ASSERT_FALSE(testing::Test::HasFailure()) << std::hex << entries[i];
    }
}

TEST(PageEntry, RetiresOnlyWhatIsQuiteEmptyAndKeepsPins) {
    for (const uint64_t before : all_entries()) {
        uint64_t entry = before;
        const bool empty = (before & ~kFillMask) == 0;
        EXPECT_EQ(device::retire<PlainWords>(entry), empty);
        EXPECT_EQ(entry, before | (empty ? static_cast<uint64_t>(PageState::kRetired) : 0));
        if (state_of(before) != PageState::kRetired) continue;
        entry = before;
        device::restore<PlainWords>(entry);
        EXPECT_EQ(state_of(entry), PageState::kEmpty);
        EXPECT_EQ(entry & kPinMask, before & kPinMask);
    }
}

// Two entries, two frames and three teams that do anything allowed in any order: the reachable
// states.
struct World {
    std::array<uint64_t, 2> entries{};
    std::array<uint64_t, 2> completions{};
    std::array<bool, 2> taken{};               // the frame is in a team's hands
    std::array<std::array<int, 2>, 3> pins{};  // of each team on each entry: a team pins a page at
                                               // most once
    auto operator<=>(const World&) const = default;  // NOLINT(modernize-use-nullptr)
};

constexpr uint32_t kGenerationsExplored = 3;  // fills of a frame that are followed

// Every world one step on.
std::vector<World> steps_from(const World& world) {
    std::vector<World> next;
    for (size_t page = 0; page < 2; ++page) {
        const auto step = [&](auto change) {
            World after = world;
            if (change(after, after.entries[page])) next.push_back(after);
        };
        for (size_t team = 0; team < 3; ++team) {
            step([&](World& after, uint64_t& entry) {
                if (after.pins[team][page]++ != 0) return false;
                device::pin<PlainWords>(entry);
                return true;
            });
            step([&](World& after, uint64_t& entry) {
                if (after.pins[team][page]-- == 0) return false;
                device::unpin<PlainWords>(entry);
                return true;
            });
        }
        for (FrameIndex frame = 0; frame < 2; ++frame) {
            const uint32_t generation = completion_generation(world.completions[frame]) + 1;
            step([&](World& after, uint64_t& entry) {
                if (!after.taken[frame] || generation > kGenerationsExplored) return false;
                uint64_t seen = entry;
                if (!device::claim<PlainWords>(entry, seen, frame, generation)) return false;
                after.taken[frame] = false;
                return true;
            });
            step([&](World& after, uint64_t& entry) {
                if (!device::evict<PlainWords>(entry, entry, frame)) return false;
                after.taken[frame] = true;
                return true;
            });
        }
        step([&](World&, uint64_t& entry) {
            uint64_t seen = entry;
            return generation_of(entry) < kGenerationsExplored &&
                   device::claim_again<PlainWords>(entry, seen);
        });
        for (const uint32_t error : {0u, 5u}) {
            step([&](World& after, uint64_t& entry) {  // the worker answers
                if (state_of(entry) != PageState::kFetching) return false;
                after.completions[frame_of(entry)] = make_completion(generation_of(entry), error,
                                                                     0);
                return true;
            });
        }
        step([&](World& after, uint64_t& entry) {
            if (state_of(entry) != PageState::kFetching) return false;
            const uint64_t old = entry;
            device::publish<PlainWords>(entry, entry, after.completions[frame_of(entry)]);
            return entry != old;
        });
        step([&](World&, uint64_t& entry) { return device::retire<PlainWords>(entry); });
        step([&](World&, uint64_t& entry) {
            if (state_of(entry) != PageState::kRetired) return false;
            device::restore<PlainWords>(entry);
            return true;
        });
    }
    return next;
}

// The number of the first invariant of device/page_entry.cuh that a step broke, or 0.
int broken_invariant(const World& before, const World& after) {
    for (size_t page = 0; page < 2; ++page) {
        const uint64_t entry = after.entries[page];
        int pins = 0;
        for (const auto& team : after.pins) pins += team[page];
        if (pins_of(entry) != static_cast<uint32_t>(pins)) return 1;
        const bool left = holds_frame(before.entries[page]) && !holds_frame(entry);
        if (left && pins_of(before.entries[page]) != 0) return 2;
        if (holds_frame(entry) && after.taken[frame_of(entry)]) return 3;
        const bool arrived = state_of(entry) == PageState::kValid ||
                             state_of(entry) == PageState::kFailed;
        const uint64_t completion = after.completions[frame_of(entry)];
        if (arrived && completion_generation(completion) != generation_of(entry)) return 4;
        if (arrived &&
            (completion_error(completion) == 0) != (state_of(entry) == PageState::kValid))
            return 4;
    }
    const bool both = holds_frame(after.entries[0]) && holds_frame(after.entries[1]);
    return both && frame_of(after.entries[0]) == frame_of(after.entries[1]) ? 3 : 0;
}

TEST(PageEntry, EveryOrderOfEveryOperation) {
    World first;
    first.taken = {true, true};
    std::set<World> seen{first};
    std::deque<World> todo{first};
    uint64_t steps = 0;
    while (!todo.empty()) {
        const World world = todo.front();
        todo.pop_front();
        for (const World& after : steps_from(world)) {
            ++steps;
            ASSERT_EQ(broken_invariant(world, after), 0)
                << std::hex << world.entries[0] << " " << world.entries[1] << " -> "
                << after.entries[0] << " " << after.entries[1];
            if (seen.insert(after).second) todo.push_back(after);
        }
    }
    std::printf("  %zu states, %zu steps\n", seen.size(), static_cast<size_t>(steps));
    EXPECT_GT(seen.size(), 1000u);
}

}  // namespace
}  // namespace penstock::memory_model
