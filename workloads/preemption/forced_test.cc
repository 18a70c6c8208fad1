// Goal: every workload gives the reference's results however often its blocks leave: at every
// point, and at a share of the points that the seed chooses. PENSTOCK_NIGHTLY=1: 1,000 seeds.
#include <cstdlib>

#include "penstock/preemption.h"
#include "preemption/gate.h"
#include "preemption/hotspot.h"
#include "preemption/pathfinder.h"
#include "preemption/product.h"
#include "preemption/srad.h"
#include "preemption/workload_fixture.h"

namespace penstock::workloads {
namespace {

class ForcedTest : public WorkloadTest {
protected:
    struct Named {
        std::string name;
        std::unique_ptr<Workload> workload;
    };

    void SetUp() override {
        WorkloadTest::SetUp();
        // A build without LLVM has no kernels whose blocks can leave.
        if (!product_is_preemptible()) GTEST_SKIP() << "built without penstock-preempt";
    }

    void add(const std::string& name, Result<std::unique_ptr<Workload>> made) {
        ASSERT_TRUE(made.ok()) << name << ": " << made.status().message();
        workloads_.push_back({name, std::move(made.value())});
    }
    // Small ones, so that a seed takes a fraction of a second.
    void make_all() {
        for (const ProductForm form :
             {ProductForm::kOneRead, ProductForm::kEightReads, ProductForm::kEightReadsShared})
            add("product", make_product(site_, {.form = form, .order = 64}));
        add("srad", make_srad(site_, {.reads_file = true,
                                      .tile_columns = 4,
                                      .tile_rows = 3,
                                      .blocks = 6,
                                      .iterations = 2}));
        add("path", make_path(site_, {.reads_file = true, .columns = 600, .rows = 12}));
        for (const HeatPoint point :
             {HeatPoint::kAtStart, HeatPoint::kInRegisters, HeatPoint::kBetweenSteps})
            add("heat",
                make_heat(site_,
                          {.point = point, .cells = 2, .columns = 60, .rows = 50, .steps = 3}));
    }

    [[nodiscard]] uint64_t left() const { return preemption_statistics(device_).left; }

    void pass_the_gate(uint64_t value) {
        constexpr unsigned kBlocks = 6;
        DeviceArray<uint64_t> words;  // the gate, and how many blocks have passed it
        ASSERT_TRUE(words.allocate(device_, 2).ok());
        ASSERT_TRUE(stream_.fill(words.data(), 0, words.size()).ok());
        ASSERT_TRUE(stream_.synchronize().ok());
        auto other = Stream::create(device_);
        ASSERT_TRUE(other.ok());
        auto* passed = reinterpret_cast<unsigned long long*>(words.data() + 1);
        ASSERT_TRUE(launch_waiters(stream_, kBlocks, 32, words.data(), value, passed).ok());
        ASSERT_TRUE(open_gate(other.value(), words.data(), value).ok());
        ASSERT_TRUE(stream_.synchronize().ok());
        ASSERT_TRUE(other.value().synchronize().ok());
        EXPECT_EQ(words.download(stream_).value()[1], kBlocks);
    }

    std::vector<Named> workloads_;
};

TEST_F(ForcedTest, ResultsAreThoseOfTheReference) {
    const bool nightly = std::getenv("PENSTOCK_NIGHTLY") != nullptr;
    const uint64_t seeds = nightly ? 1000 : 12;
    make_all();
    if (HasFatalFailure()) return;
    for (uint64_t seed = 0; seed < seeds && !HasFailure(); ++seed) {
        const bool always = seed % 4 == 0;
        PreemptionOptions options;
        options.forced_share = always ? 1 : 0.3;
        options.forced_seed = seed;
        options.keeps_popping = seed % 2 == 0;
        options.batches = seed % 5 != 0;
        ASSERT_TRUE(set_preemption(device_, options).ok());
        for (const Named& one : workloads_) {
            SCOPED_TRACE(one.name + ", seed " + std::to_string(seed));
            const uint64_t before = left();
            expect_right(*one.workload, Part::kAll);
            EXPECT_TRUE(left() > before || !always);
        }
        SCOPED_TRACE("gate, seed " + std::to_string(seed));
        pass_the_gate(seed + 1);
    }
}

}  // namespace
}  // namespace penstock::workloads
