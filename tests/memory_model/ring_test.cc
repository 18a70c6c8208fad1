// Goal: the ring of 2 and of 4 slots works under every interleaving of single accesses (sequential
// consistency), over several laps; and a producer that exceeds its cap is found out.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>

#include "memory_model/explorer.h"
#include "memory_model/scenarios.h"

namespace penstock::memory_model {
namespace {

Result explore_sequential(const RingForm& form) {
    Options options;
    options.sequential = true;
    options.states_max = 50'000'000;
    const Program program = ring_program(form);
    Result result = explore(program, options);
    std::printf("  %9" PRIu64 " states %9" PRIu64 " steps: %s\n", result.states, result.steps,
                program.name.c_str());
    return result;
}

TEST(Ring, EveryInterleavingOfTwoSlots) {
    for (const RingForm& form : {RingForm{1, {{1, 1}, {1}}, 2, 1}, RingForm{1, {{2, 2, 2}}, 1, 2},
                                 RingForm{1, {{1, 1, 1, 1, 1}}, 1, 2}}) {
        const Result result = explore_sequential(form);
        EXPECT_TRUE(result.passed()) << result.error << "\n" << result.trace;
    }
}

TEST(Ring, EveryInterleavingOfFourSlots) {
    for (const RingForm& form :
         {RingForm{2, {{2, 2}, {2}}, 1, 4}, RingForm{2, {{4, 4}}, 1, 4, 2}}) {
        const Result result = explore_sequential(form);
        EXPECT_TRUE(result.passed()) << result.error << "\n" << result.trace;
    }
}

TEST(Ring, MoreOutstandingThanSlotsIsFound) {
    EXPECT_FALSE(explore_sequential(RingForm{1, {{2}, {1}}, 1, 1}).passed());
}

}  // namespace
}  // namespace penstock::memory_model
