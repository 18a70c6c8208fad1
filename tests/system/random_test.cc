// Goal: whatever blocks do with files, through whatever cache and storage, every result and every
// byte is that of a flat byte array; and what is changed between launches is seen by who opens
// afterwards.
//
// 10,000 calls; a million with PENSTOCK_NIGHTLY=1. A failure prints the seed of its program, which
// PENSTOCK_SEED replays alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "system/machine.h"
#include "system/random_program.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kCallsPerProgram = 170;
// Longer than any launch takes on a loaded machine under a sanitizer.
constexpr std::chrono::seconds kPatience{60};

uint64_t number_from(const char* variable, uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// One program in its life: launches, and changes of the files between them.
class Life {
public:
    explicit Life(uint64_t seed)
        : prng_(seed), shape_(random_shape(prng_)), machine_(shape_, 24 << 20) {}

    // Returns how many calls were made; 0: it has failed.
    uint64_t run() {
        SCOPED_TRACE(describe(shape_));
        if (!machine_.ok()) return 0;
        auto second = Stream::create(machine_.device());
        names_ = make_files(machine_, prng_);
        uint64_t calls = 0;
        for (int launch = 0; launch < 3 && !::testing::Test::HasFailure(); ++launch) {
            open_some();
            calls += run_programs(second.value());
            for (const Descriptor descriptor : given_)
                EXPECT_TRUE(machine_.fs().close(descriptor).ok());
            const uint64_t changes = prng_.below(4);
            for (uint64_t i = 0; i < changes; ++i)
                change_file(machine_, names_[prng_.below(names_.size())], prng_);
        }
        EXPECT_EQ(machine_.fs().statistics().open_descriptors, 0u);
        return ::testing::Test::HasFailure() ? 0 : calls;
    }

private:
    void open_some() {
        given_.clear();
        given_names_.clear();
        for (uint64_t i = prng_.below(4); i > 0; --i) {
            given_names_.push_back(names_[prng_.below(names_.size())]);
            auto opened = machine_.fs().open(machine_.files().path(given_names_.back()));
            ASSERT_TRUE(opened.ok()) << opened.status().message();
            given_.push_back(opened.value());
        }
    }

    uint64_t run_programs(Stream& second) {
        machine_.scratch().clear();
        RandomProgram one(machine_, names_, given_, given_names_, prng_);
        RandomProgram other(machine_, names_, given_, given_names_, prng_);
        const bool both = prng_.below(3) == 0;
        one.generate(kCallsPerProgram / (both ? 6 : 3));
        if (both) other.generate(kCallsPerProgram / 6);
        Status status = one.start(machine_.stream());
        EXPECT_TRUE(status.ok()) << status.message();
        if (both) {
            status = other.start(second);
            EXPECT_TRUE(status.ok()) << status.message();
        }
        status = machine_.stream().synchronize(kPatience);
        EXPECT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        status = second.synchronize(kPatience);
        EXPECT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        if (::testing::Test::HasFailure()) return 0;
        Expected left;
        EXPECT_EQ(one.check(&left), "");
        if (both) {
            EXPECT_EQ(other.check(&left), "");
        }
        auto found = machine_.fs().reclaim();
        EXPECT_TRUE(found.ok()) << found.status().message();
        EXPECT_EQ(found.value().descriptors, left.descriptors);
        EXPECT_EQ(found.value().views, machine_.device().host_addressable() ? left.views : 0);
        EXPECT_EQ(machine_.broken_invariant(), 0);
        return one.step_count() + (both ? other.step_count() : 0);
    }

    base::Prng prng_;
    const Shape shape_;
    Machine machine_;
    std::vector<std::string> names_, given_names_;
    std::vector<Descriptor> given_;
};

TEST(RandomPrograms, EqualFlatBytes) {
    const bool nightly = std::getenv("PENSTOCK_NIGHTLY") != nullptr;
    const uint64_t calls_wanted = nightly ? 1'000'000 : 10'000;
    const uint64_t only = number_from("PENSTOCK_SEED", 0);
    uint64_t calls = 0;
    for (uint64_t seed = only != 0 ? only : 1; calls < calls_wanted; ++seed) {
        const uint64_t made = Life(seed).run();
        ASSERT_FALSE(HasFailure()) << "PENSTOCK_SEED=" << seed << " replays this program alone";
        calls += made;
        if (only != 0) break;
    }
    RecordProperty("calls", std::to_string(calls));
}

}  // namespace
}  // namespace penstock::system_test
