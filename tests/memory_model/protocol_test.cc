// Goal: both protocols hold in every execution of every scenario under the weak memory model.
//
// PENSTOCK_NIGHTLY=1 adds the long forms (3 minutes). Prints how much was explored.
#include <gtest/gtest.h>

#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "memory_model/explorer.h"
#include "memory_model/scenarios.h"

namespace penstock::memory_model {
namespace {

// The long forms take 15 times as long in a sanitized build, and one thread has no more to show
// there.
bool long_forms() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return false;
#else
    return std::getenv("PENSTOCK_NIGHTLY") != nullptr;
#endif
}

void expect_holds(const Program& program, const Options& options) {
    const Result result = explore(program, options);
    EXPECT_TRUE(result.complete) << program.name << ": the search was cut off";
    EXPECT_EQ(result.error, "") << program.name << "\n" << result.trace;
    std::printf("  %9" PRIu64 " states %9" PRIu64 " steps %7" PRIu64 " last states: %s\n",
                result.states, result.steps, result.executions, program.name.c_str());
}

class Protocol : public testing::TestWithParam<Program> {};

TEST_P(Protocol, HoldsInEveryExecution) {
    Options options;
    options.states_max = 200'000'000;
#ifdef __SANITIZE_THREAD__
    options.deferrals = false;  // one thread: there is nothing to find, only time to lose
#endif
    expect_holds(GetParam(), options);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Protocol, testing::ValuesIn(all_programs(long_forms())),
                         [](const testing::TestParamInfo<Program>& program) {
                             std::string name;
                             for (const char c : program.param.name)
                                 name += std::isalnum(c) ? c : '_';
                             return name;
                         });

TEST(ProtocolCanaries, AreFound) {
    std::vector<Program> canaries = window_canaries();
    for (Program& program : write_canaries()) canaries.push_back(std::move(program));
    for (Program& program : written_window_canaries()) canaries.push_back(std::move(program));
    for (const Program& program : canaries) {
        Options options;
        options.states_max = 20'000'000;
        options.deferrals = false;
        EXPECT_NE(explore(program, options).error, "") << program.name;
    }
}

}  // namespace

// For GoogleTest's messages.
void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

}  // namespace penstock::memory_model
