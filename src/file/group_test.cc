// Goal: every call does the same for blocks and for warps, as one lane and as many, with lanes that
// have returned; reads and writes in two halves do what those at once do, whatever order they are
// waited for in and however few frames there are, and what nobody waits for is put right.
#include "file/group_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "file/system.h"
#include "page_cache/invalidation.h"
#include "penstock/file_system.h"
#include "testing/bytes.h"
#include "testing/effort.h"

namespace penstock {
namespace {

enum class Who { kBlock, kWarps, kOneWarp, kLanes };

struct Shape {
    const char* name;
    Who who;
    size_t frames;
    bool helping;
    Readahead readahead = Readahead::kAuto;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

constexpr unsigned kBlocks = 5, kThreads = 96, kGroupsMax = kBlocks * kThreads / 32;
constexpr uint64_t kBufferSize = 512 << 10;
constexpr size_t kFileSize = (3 << 20) + 777;

class GroupTest : public ::testing::TestWithParam<Shape> {
protected:
    void SetUp() override {
        DeviceOptions options;
        options.memory_size = 128 << 20;
        auto device = Device::open("cpu:2", options);
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = device.value();
        FileSystemOptions wanted;
        wanted.page_size = 4096;
        wanted.cache_size = GetParam().frames * wanted.page_size;
        wanted.helping = GetParam().helping;
        wanted.readahead = GetParam().readahead;
        auto fs = FileSystem::create(device_, wanted);
        ASSERT_TRUE(fs.ok()) << fs.status().message();
        fs_ = std::move(fs.value());
        stream_ = std::move(Stream::create(device_).value());
        make_file();
        job_.fs = fs_.device_handle();
        job_.file = fs_.open(path_, kOpenReadWrite).value();
        job_.expected = expected_;
        job_.model = expected_;
        job_.size = kFileSize;
        job_.buffers = take(kGroupsMax * kBufferSize);
        job_.buffer_size = kBufferSize;
        auto* path = reinterpret_cast<char*>(take(path_.size() + 1));
        std::memcpy(path, path_.c_str(), path_.size() + 1);
        job_.path = path;
        auto* counts = reinterpret_cast<unsigned long long*>(take(64));
        std::memset(counts, 0, 64);
        job_.wrong = counts;
        job_.done = counts + 1;
        job_.refused = counts + 2;
    }
    void TearDown() override { unlink(path_.c_str()); }

    std::byte* take(size_t size) { return static_cast<std::byte*>(device_.allocate(size).value()); }
    void make_file() {
        expected_ = take(kFileSize);
        testing::fill_randomly(expected_, kFileSize, 29);
        char name[] = "/tmp/penstock-group-XXXXXX";
        const int descriptor = mkstemp(name);
        path_ = name;
        ASSERT_EQ(write(descriptor, expected_, kFileSize), static_cast<ssize_t>(kFileSize));
        close(descriptor);
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
        const Status done = stream_.synchronize(std::chrono::seconds(120));
        ASSERT_TRUE(done.ok()) << done.message() << device_.diagnosis();
    }

    Device device_;
    FileSystem fs_;
    Stream stream_;
    std::string path_;
    std::byte* expected_ = nullptr;
    file_test::GroupJob job_{};
};

constexpr LaunchShape kGrid{{kBlocks}, {kThreads}};

TEST_P(GroupTest, ReadsAtRandomBringTheBytesOfTheFile) {
    constexpr unsigned kRounds = testing::usually(60, 20);
    for (uint64_t seed = 1; seed <= testing::usually(3, 1); ++seed) {
        job_.seed = seed;
        *job_.done = 0;
        run([&]<class Group> {
            return launch(stream_, kGrid, file_test::read_at_random<Group>, job_, kRounds);
        });
        EXPECT_EQ(*job_.wrong, 0u) << "seed " << seed;
        EXPECT_EQ(*job_.done, kGroupsMax) << "a thread of each warp";
        EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
    }
}

// The groups' parts meet within pages and granules.
TEST_P(GroupTest, WritesAtRandomAreInTheFile) {
    constexpr unsigned kRounds = testing::usually(60, 20);
    for (uint64_t seed = 1; seed <= testing::usually(3, 1); ++seed) {
        job_.seed = seed;
        *job_.done = 0;
        run([&]<class Group> {
            return launch(stream_, kGrid, file_test::write_at_random<Group>, job_, kRounds);
        });
        EXPECT_EQ(*job_.wrong, 0u) << "seed " << seed;
        EXPECT_EQ(*job_.done, kGroupsMax) << "a thread of each warp";
        EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
        EXPECT_EQ(fs_.system()->service().host_state()->held_pins, 0u);
    }
    EXPECT_TRUE(fs_.close(job_.file).ok());
    std::vector<std::byte> found(kFileSize + 1);
    const int descriptor = open(path_.c_str(), O_RDONLY);
    EXPECT_EQ(read(descriptor, found.data(), found.size()), static_cast<ssize_t>(kFileSize));
    close(descriptor);
    EXPECT_TRUE(testing::equal(found.data(), expected_, kFileSize));
}

TEST_P(GroupTest, EveryCallForEveryGroup) {
    run([&]<class Group> { return launch(stream_, kGrid, file_test::call_all<Group>, job_); });
    EXPECT_EQ(*job_.wrong, 0u);
    EXPECT_EQ(*job_.done, kGroupsMax);
    EXPECT_EQ(fs_.statistics().open_descriptors, 1u) << "each group closed what it opened";
    EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
}

TEST_P(GroupTest, CallsThatNobodyWaitsForAreReclaimed) {
    // One block: each group has a place of its own.
    const LaunchShape shape{{1}, {kThreads}};
    for (unsigned round = 0; round < testing::usually(20, 5); ++round) {
        *job_.done = 0;
        run([&]<class Group> {
            return launch(stream_, shape, file_test::leave_calls<Group>, job_, round);
        });
        EXPECT_EQ(*job_.wrong, 0u) << "round " << round;
        EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
        auto left = fs_.reclaim();
        ASSERT_TRUE(left.ok()) << left.status().message();
        EXPECT_EQ(left.value().reads,
                  uint64_t{limits::kAsyncCallsMax} * (of_warps() ? kThreads / 32 : 1));
        EXPECT_EQ(fs_.system()->service().host_state()->held_pins, 0u);
        EXPECT_EQ(page_cache::check_invariants(*fs_.system()->service().host_state()), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GroupTest,
    ::testing::Values(Shape{"block", Who::kBlock, 300, true},
                      Shape{"warps", Who::kWarps, 300, true},
                      Shape{"one_warp", Who::kOneWarp, 300, true},
                      Shape{"lanes", Who::kLanes, 300, true},
                      Shape{"block_workers", Who::kBlock, 5000, false},
                      Shape{"one_warp_workers", Who::kOneWarp, 5000, false},
                      Shape{"lanes_workers", Who::kLanes, 40, false},
                      Shape{"block_few_frames", Who::kBlock, 8, true},
                      Shape{"one_warp_few_frames", Who::kOneWarp, 5, true},
                      Shape{"one_warp_frame_a_permit", Who::kOneWarp, 2, false},
                      Shape{"one_warp_seed", Who::kOneWarp, 100, true, Readahead::kSeed},
                      Shape{"block_off", Who::kBlock, 100, true, Readahead::kOff}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace penstock
