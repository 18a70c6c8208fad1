// What the tests of bad readahead share: a file "f" of random bytes on a small machine with faulty
// storage, and walks through it, in every way that windows are served.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "system/machine.h"

namespace penstock::system_test {

using testing::Action;
using testing::Call;
using Blocks = std::vector<std::vector<Step>>;

constexpr uint64_t kPage = 4096;
constexpr auto kSignedPage = static_cast<int64_t>(kPage);

inline Step advise_step(uint32_t file, Advice advice, int64_t offset, uint64_t size) {
    return {.act = Act::kAdvise,
            .file = file,
            .flags = static_cast<int32_t>(advice),
            .offset = offset,
            .size = size};
}

// `count` reads of `size` bytes, `step` bytes apart.
struct Walk {
    int64_t first;
    int64_t step;
    uint64_t size, count;
};
inline void add_walk(Machine& machine, std::vector<Step>& steps, const Walk& walk) {
    for (uint64_t i = 0; i < walk.count; ++i) {
        steps.push_back(read_step(0, walk.first + static_cast<int64_t>(i) * walk.step, walk.size,
                                  machine.scratch().array<std::byte>(walk.size)));
    }
}

// Every read of the file "f" has brought what the file has there.
inline void expect_bytes(Machine& machine, const std::vector<Step>& steps) {
    const testing::ReferenceFile& file = machine.files().file("f");
    for (const Step& step : steps) {
        EXPECT_EQ(step.disagreements, 0u);
        if (step.act != Act::kRead) continue;
        const auto offset = static_cast<uint64_t>(step.offset);
        const uint64_t count = file.count(offset, step.size);
        ASSERT_EQ(step.result, static_cast<int64_t>(count)) << "at " << offset;
        ASSERT_EQ(file.mismatch(offset, {step.out, count}), count) << "at " << offset;
    }
}

inline void run_well(Machine& machine, Blocks& blocks) {
    const Status status = machine.run(&blocks, std::chrono::seconds(60));
    ASSERT_TRUE(status.ok()) << status.message() << machine.device().diagnosis();
    for (const auto& steps : blocks) expect_bytes(machine, steps);
    EXPECT_EQ(machine.broken_invariant(), 0);
}

struct Way {
    const char* name;
    bool helping, warps, remote;
    Readahead readahead = Readahead::kAuto;
};
inline void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class BadReadaheadTest : public ::testing::TestWithParam<Way> {
protected:
    void SetUp() override {
        if (on_gpu() && GetParam().remote) GTEST_SKIP() << "a GPU always is";
        machine_ = std::make_unique<Machine>(Shape{.permits = 2,
                                                   .frames = 512,
                                                   .helping = GetParam().helping,
                                                   .workers = 1,
                                                   .warps = GetParam().warps,
                                                   .readahead = GetParam().readahead,
                                                   .lanes = 40,
                                                   .faults = true,
                                                   .remote = GetParam().remote});
        ASSERT_TRUE(machine_->ok());
        machine_->create_file("f", kFilePages * kPage + 500, 11);
    }
    Descriptor open(const std::string& name) {
        return machine_->fs().open(machine_->files().path(name)).value();
    }
    uint64_t prefetched() { return machine_->fs().statistics().pages.prefetched; }
    void run(std::vector<Step> steps) {
        Blocks blocks = {std::move(steps)};
        run_well(*machine_, blocks);
        steps_ = blocks[0];
    }

    static constexpr uint64_t kFilePages = 200;
    std::unique_ptr<Machine> machine_;
    std::vector<Step> steps_;  // that ran last
};

inline const auto kWays = ::testing::Values(
    Way{"helping", true, false, false}, Way{"worker", false, false, false},
    Way{"warps", false, true, false}, Way{"remote", false, false, true},
    Way{"remote_warps", false, true, true},
    Way{"static_worker", false, false, false, Readahead::kStatic},
    Way{"static_helping_warps", true, true, false, Readahead::kStatic});
inline std::string name_of_way(const ::testing::TestParamInfo<Way>& made) {
    return made.param.name;
}

}  // namespace penstock::system_test
