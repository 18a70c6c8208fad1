// Goal: both protocols hold in every execution of every scenario under the weak memory model.
//
// PENSTOCK_NIGHTLY=1 adds the long forms. Prints how much was explored.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "memory_model/explorer.h"
#include "memory_model/scenarios.h"

namespace penstock::memory_model {
namespace {

TEST(Protocol, HoldsInEveryExecution) {
    const bool nightly = std::getenv("PENSTOCK_NIGHTLY") != nullptr;
    uint64_t states = 0, steps = 0, executions = 0;
    for (const Program& program : all_programs(nightly)) {
        const Result result = explore(program);
        EXPECT_TRUE(result.complete) << program.name << ": the search was cut off";
        EXPECT_EQ(result.error, "") << program.name << "\n" << result.trace;
        std::printf("  %10" PRIu64 " states %10" PRIu64 " steps %9" PRIu64 " last states  %s\n", result.states,
                    result.steps, result.executions, program.name.c_str());
        std::fflush(stdout);
        states += result.states;
        steps += result.steps;
        executions += result.executions;
    }
    std::printf("  %10" PRIu64 " states %10" PRIu64 " steps %9" PRIu64 " last states in all\n", states, steps,
                executions);
}

}  // namespace
}  // namespace penstock::memory_model
