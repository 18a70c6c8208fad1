// Goal: HotSpot equals the reference with each of its points and each size of a thread's state,
// where tiles end with the chip and where they do not, and for a last launch of fewer steps.
#include "preemption/hotspot.h"

#include "preemption/workload_fixture.h"

namespace penstock::workloads {
namespace {

class HeatTest : public WorkloadTest {
protected:
    void expect_equal(const HeatOptions& options) {
        SCOPED_TRACE(std::to_string(options.cells) + " cells, point " +
                     std::to_string(static_cast<int>(options.point)));
        auto made = make_heat(site_, options);
        ASSERT_TRUE(made.ok()) << made.status().message();
        expect_right(*made.value(), Part::kAll);
        expect_right(*made.value(), Part::kCompute);
    }
};

TEST_F(HeatTest, WithEachPointAndState) {
    for (const HeatPoint point : {HeatPoint::kNone, HeatPoint::kAtStart, HeatPoint::kInRegisters,
                                  HeatPoint::kBetweenSteps}) {
        for (const unsigned cells : {1u, 2u, 4u, 8u})
            expect_equal({.point = point, .cells = cells, .columns = 61, .rows = 50, .steps = 5});
    }
}

TEST_F(HeatTest, OfOtherSizes) {
    expect_equal({.columns = 1, .rows = 1, .steps = 3, .steps_per_launch = 1});
    expect_equal({.columns = 24, .rows = 24, .steps = 4, .steps_per_launch = 4});
    expect_equal({.cells = 2, .columns = 100, .rows = 3, .steps = 13, .steps_per_launch = 6});
}

TEST_F(HeatTest, ReferenceKeepsAChipAtAmbientTemperature) {
    const HeatRates rates;
    const std::vector<float> start(12, rates.ambient_temperature);
    EXPECT_EQ(heat_reference(start, std::vector<float>(12), 4, 10, rates), start);
    std::vector<float> power(12);
    power[5] = 1;
    const std::vector<float> warm = heat_reference(start, power, 4, 1, rates);
    for (size_t i = 0; i < warm.size(); ++i)
        EXPECT_EQ(warm[i], start[i] + (i == 5 ? rates.power : 0.0F));
}

TEST_F(HeatTest, RefusesOtherSizes) {
    for (const HeatOptions& options :
         {HeatOptions{.cells = 3}, HeatOptions{.columns = 0}, HeatOptions{.steps = 0},
          HeatOptions{.steps_per_launch = kHeatStepsMax + 1}}) {
        EXPECT_EQ(make_heat(site_, options).status().error_number(), EINVAL);
    }
}

}  // namespace
}  // namespace penstock::workloads
