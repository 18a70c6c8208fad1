// Goal: every call does the same for blocks and for warps, as one lane and as many, with lanes that
// have returned; reads and writes in two halves do what those at once do, whatever order they are
// waited for in and however few frames there are, and what nobody waits for is put right.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "system/groups.h"
#include "system/machine.h"
#include "testing/bytes.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

enum class Who { kBlock, kWarps, kOneWarp, kLanes };

struct Groups {
    const char* name;
    Who who;
    uint64_t frames;
    bool helping;
    Readahead readahead = Readahead::kAuto;
};

void PrintTo(const Groups& groups, std::ostream* out) { *out << groups.name; }

constexpr unsigned kBlocks = 5, kThreads = 96, kGroupsMax = kBlocks * kThreads / 32;
constexpr uint64_t kBufferSize = 512 << 10;
constexpr size_t kFileSize = (3 << 20) + 777;

class GroupTest : public ::testing::TestWithParam<Groups> {
protected:
    void SetUp() override {
        machine_ = std::make_unique<Machine>(Shape{.frames = GetParam().frames,
                                                   .helping = GetParam().helping,
                                                   .workers = 4,
                                                   .readahead = GetParam().readahead});
        ASSERT_TRUE(machine_->ok());
        machine_->create_file("f", kFileSize, 29);
        const std::string path = machine_->files().path("f");
        job_.fs = machine_->fs().device_handle();
        job_.file = machine_->fs().open(path, kOpenReadWrite).value();
        expected_ = take(kFileSize);
        const Bytes bytes = storage::random_bytes(29, kFileSize);
        copy(expected_, bytes.data());
        job_.expected = expected_;
        job_.model = expected_;
        job_.size = kFileSize;
        job_.buffers = take(kGroupsMax * kBufferSize);
        job_.buffer_size = kBufferSize;
        Scratch& scratch = machine_->scratch();
        job_.path = scratch.text(path);
        auto* own_paths = scratch.array<const char*>(kGroupsMax);
        for (unsigned i = 0; i < kGroupsMax; ++i)
            own_paths[i] = scratch.text(machine_->files().path("own" + std::to_string(i)));
        job_.own_paths = own_paths;
        auto* counts = scratch.array<unsigned long long>(3);
        job_.wrong = counts;
        job_.done = counts + 1;
        job_.refused = counts + 2;
    }
    void TearDown() override {
        if (machine_ == nullptr) return;
        machine_->device().free(expected_);
        machine_->device().free(job_.buffers);
    }

    std::byte* take(size_t size) {
        return static_cast<std::byte*>(machine_->device().allocate(size).value());
    }
    // The file's bytes, to or from device memory.
    void copy(std::byte* to, const std::byte* from) {
        ASSERT_TRUE(machine_->stream().copy(to, from, kFileSize).ok());
        ASSERT_TRUE(machine_->stream().synchronize().ok());
    }
    [[nodiscard]] static bool of_warps() {
        return GetParam().who == Who::kOneWarp || GetParam().who == Who::kLanes;
    }
    // `launch.operator()<Group>()` puts a kernel for a group into the stream.
    template <class Launch>
    void run(Launch launch) {
        const auto launch_it = [&] {
            switch (GetParam().who) {
                case Who::kBlock:
                    return launch.template operator()<device::Block>();
                case Who::kWarps:
                    return launch.template operator()<device::Warps>();
                case Who::kOneWarp:
                    return launch.template operator()<device::OneWarp>();
                default:
                    return launch.template operator()<device::Lanes>();
            }
        };
        const Status launched = launch_it();
        ASSERT_TRUE(launched.ok()) << launched.message();
        const Status done = machine_->wait();
        ASSERT_TRUE(done.ok()) << done.message() << machine_->device().diagnosis();
    }
    Stream& stream() { return machine_->stream(); }

    std::unique_ptr<Machine> machine_;
    std::byte* expected_ = nullptr;
    GroupJob job_{};
};

constexpr LaunchShape kGrid{{kBlocks}, {kThreads}};

TEST_P(GroupTest, ReadsAtRandomBringTheBytesOfTheFile) {
    constexpr unsigned kRounds = testing::usually(60, 20);
    for (uint64_t seed = 1; seed <= testing::usually(3, 1); ++seed) {
        job_.seed = seed;
        *job_.done = 0;
        run([&]<class Group> {
            return launch(stream(), kGrid, read_at_random<Group>, job_, kRounds);
        });
        EXPECT_EQ(*job_.wrong, 0u) << "seed " << seed;
        EXPECT_EQ(*job_.done, kGroupsMax) << "a thread of each warp";
        EXPECT_EQ(machine_->broken_invariant(), 0);
    }
}

// The groups' parts meet within pages and granules.
TEST_P(GroupTest, WritesAtRandomAreInTheFile) {
    constexpr unsigned kRounds = testing::usually(60, 20);
    for (uint64_t seed = 1; seed <= testing::usually(3, 1); ++seed) {
        job_.seed = seed;
        *job_.done = 0;
        run([&]<class Group> {
            return launch(stream(), kGrid, write_at_random<Group>, job_, kRounds);
        });
        EXPECT_EQ(*job_.wrong, 0u) << "seed " << seed;
        EXPECT_EQ(*job_.done, kGroupsMax) << "a thread of each warp";
        EXPECT_EQ(machine_->broken_invariant(), 0);
        EXPECT_EQ(machine_->held_pins(), 0u);
    }
    EXPECT_TRUE(machine_->fs().close(job_.file).ok());
    Bytes expected(kFileSize);
    copy(expected.data(), expected_);
    const Bytes found = bytes_of_file(machine_->files().path("f"));
    ASSERT_EQ(found.size(), kFileSize);
    EXPECT_TRUE(testing::equal(found.data(), expected.data(), kFileSize));
}

TEST_P(GroupTest, EveryCallForEveryGroup) {
    run([&]<class Group> { return launch(stream(), kGrid, call_all<Group>, job_); });
    EXPECT_EQ(*job_.wrong, 0u);
    EXPECT_EQ(*job_.done, kGroupsMax);
    EXPECT_EQ(machine_->fs().statistics().open_descriptors, 1u)
        << "each group closed what it opened";
    EXPECT_EQ(machine_->broken_invariant(), 0);
}

TEST_P(GroupTest, CallsThatNobodyWaitsForAreReclaimed) {
    // One block: each group has a place of its own.
    const LaunchShape shape{{1}, {kThreads}};
    const FileSystemState* state = machine_->service().host_state();
    const bool refuses = uint64_t{state->place_count} * limits::kAsyncCallsMax <=
                         state->async_count;
    EXPECT_TRUE(refuses || on_gpu());
    for (unsigned round = 0; round < testing::usually(20, 5); ++round) {
        *job_.done = 0;
        run([&]<class Group> {
            return launch(stream(), shape, leave_calls<Group>, job_, round, refuses);
        });
        EXPECT_EQ(*job_.wrong, 0u) << "round " << round;
        EXPECT_EQ(machine_->broken_invariant(), 0);
        auto left = machine_->fs().reclaim();
        ASSERT_TRUE(left.ok()) << left.status().message();
        EXPECT_EQ(left.value().reads,
                  uint64_t{limits::kAsyncCallsMax} * (of_warps() ? kThreads / 32 : 1));
        EXPECT_EQ(machine_->held_pins(), 0u);
        EXPECT_EQ(machine_->broken_invariant(), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GroupTest,
    ::testing::Values(Groups{"block", Who::kBlock, 300, true},
                      Groups{"warps", Who::kWarps, 300, true},
                      Groups{"one_warp", Who::kOneWarp, 300, true},
                      Groups{"lanes", Who::kLanes, 300, true},
                      Groups{"block_workers", Who::kBlock, 5000, false},
                      Groups{"one_warp_workers", Who::kOneWarp, 5000, false},
                      Groups{"lanes_workers", Who::kLanes, 40, false},
                      Groups{"block_few_frames", Who::kBlock, 8, true},
                      Groups{"one_warp_few_frames", Who::kOneWarp, 5, true},
                      Groups{"one_warp_frame_a_permit", Who::kOneWarp, 2, false},
                      Groups{"one_warp_seed", Who::kOneWarp, 100, true, Readahead::kSeed},
                      Groups{"block_off", Who::kBlock, 100, true, Readahead::kOff}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace penstock::system_test
