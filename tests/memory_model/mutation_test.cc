// Goal: no order is there without need, and none could be lost unseen: each acquire and each
// release half of every site in abi/orders.h, weakened to relaxed, makes at least one scenario
// fail.
//
// A new site without a scenario that needs it fails here.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "memory_model/explorer.h"
#include "memory_model/scenarios.h"

namespace penstock::memory_model {
namespace {

struct Mutation {
    SiteDescription site;
    Order half;
};

std::vector<Mutation> mutations() {
    std::vector<Mutation> all;
    for (const SiteDescription& site : kSiteDescriptions) {
        const Order order = order_of(site.site);
        for (const Order half : {Order::kAcquire, Order::kRelease}) {
            if (order == half || order == Order::kAcquireRelease) all.push_back({site, half});
        }
    }
    return all;
}

class EachSite : public testing::TestWithParam<Mutation> {};

TEST_P(EachSite, IsNeeded) {
    const Mutation& mutation = GetParam();
    Options options;
    options.weakening = {mutation.site.site, mutation.half};
    uint64_t states = 0;
    // Not all of the long programs first, since most is found soon, if not in one then in another;
    // and without load buffering, which is ten times faster.
    struct Pass {
        uint64_t states_max;
        bool deferrals;
    };
    for (const Pass& pass :
         {Pass{50'000, false}, {options.states_max, false}, {options.states_max, true}}) {
        options.deferrals = pass.deferrals;
        options.states_max = pass.states_max;
        for (const Program& program : all_programs(false)) {
            if (pass.deferrals && !program.deferrals) continue;
            const Result result = explore(program, options);
            states += result.states;
            if (result.error.empty()) continue;
            std::printf("  %s after %" PRIu64 " states, in: %s\n", result.error.c_str(), states,
                        program.name.c_str());
            if (std::getenv("PENSTOCK_TRACE") != nullptr) std::printf("%s", result.trace.c_str());
            return;
        }
    }
    FAIL() << "no scenario needs it; its partner: " << mutation.site.partner;
}

INSTANTIATE_TEST_SUITE_P(Sites, EachSite, testing::ValuesIn(mutations()),
                         [](const testing::TestParamInfo<Mutation>& mutation) {
                             return std::string(mutation.param.site.name) +
                                    (mutation.param.half == Order::kAcquire ? "Acquire"
                                                                            : "Release");
                         });

}  // namespace
}  // namespace penstock::memory_model
