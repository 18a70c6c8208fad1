// Goal: kernels that read and write files end, whatever copies a program asks its streams for
// behind them: the copies by which the host serves the kernels do not wait for those.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kPage = 4096, kSize = 64 * kPage;

// A program's stream, what its kernel does to a file, and what is copied behind it.
struct Lane {
    Stream stream;
    std::string path;
    Bytes bytes;
    std::byte *from = nullptr, *read = nullptr;  // of the kernel
    std::byte *in = nullptr, *out = nullptr;     // of the copies
    BlockSteps* steps = nullptr;
};

class QueuedCopies : public ::testing::TestWithParam<unsigned> {
protected:
    static Shape shape_of() {
        Shape shape;
        shape.permits = 16;
        shape.frames = 1024;
        shape.workers = 8;
        shape.helping = false;
        shape.remote = true;
        return shape;
    }
    // A file that nobody has read, and steps that read it and write it again.
    void prepare(Lane& lane, const std::string& name, uint64_t seed) {
        machine_.create_file(name, kSize, seed);
        lane.path = machine_.files().path(name);
        lane.bytes = storage::random_bytes(seed + 1000, kSize);
        auto& scratch = machine_.scratch();
        lane.from = machine_.put(lane.bytes);
        lane.read = scratch.array<std::byte>(kSize);
        lane.in = machine_.put(storage::random_bytes(seed + 2000, kSize));
        lane.out = scratch.array<std::byte>(kSize);
        std::vector<Step> steps{open_step(0, scratch.text(lane.path), kOpenReadWrite)};
        for (uint64_t at = 0; at < kSize; at += 4 * kPage)
            steps.push_back(read_step(0, static_cast<int64_t>(at), 4 * kPage, lane.read + at));
        for (uint64_t at = 0; at < kSize; at += 8 * kPage) {
            steps.push_back(write_step(0, static_cast<int64_t>(at), 8 * kPage, lane.from + at));
            steps.push_back(sync_step(0));
        }
        steps.push_back(close_step(0));
        lane.steps = machine_.write_down({steps});
    }
    Machine machine_{shape_of(), 64 << 20};
};

TEST_P(QueuedCopies, DoNotHoldUpKernels) {
    ASSERT_TRUE(machine_.ok());
    std::vector<Lane> lanes(GetParam());
    for (Lane& lane : lanes) {
        auto stream = Stream::create(machine_.device());
        ASSERT_TRUE(stream.ok()) << stream.status().message();
        lane.stream = std::move(stream.value());
    }
    const uint64_t device_size = lanes.size() * kSize;
    auto* there = static_cast<std::byte*>(machine_.device().allocate(device_size).value());
    uint64_t seed = 1;
    for (uint64_t round = 0; round < testing::usually(5, 1); ++round) {
        machine_.scratch().clear();
        for (size_t i = 0; i < lanes.size(); ++i)
            prepare(lanes[i], std::to_string(round) + "-" + std::to_string(i), seed++);
        for (size_t i = 0; i < lanes.size(); ++i) {
            Lane& lane = lanes[i];
            ASSERT_TRUE(machine_.start(lane.stream, lane.steps, 1).ok());
            ASSERT_TRUE(lane.stream.copy(there + i * kSize, lane.in, kSize).ok());
            ASSERT_TRUE(lane.stream.copy(lane.out, there + i * kSize, kSize).ok());
        }
        for (Lane& lane : lanes) {
            const Status status = lane.stream.synchronize(std::chrono::seconds(20));
            if (!status.ok()) machine_.fs().abort({EIO, "test", "a kernel stands still"});
            ASSERT_TRUE(status.ok()) << status.message() << ", round " << round;
        }
        for (const Lane& lane : lanes) {
            for (uint64_t i = 0; i < lane.steps->count; ++i)
                EXPECT_GE(lane.steps->steps[i].result, 0) << i;
            EXPECT_TRUE(std::equal(lane.in, lane.in + kSize, lane.out));
            EXPECT_TRUE(bytes_of_file(lane.path) == lane.bytes);
        }
    }
    lanes.clear();
    machine_.device().free(there);
}

INSTANTIATE_TEST_SUITE_P(Streams, QueuedCopies, ::testing::Values(1u, 3u, 12u));

}  // namespace
}  // namespace penstock::system_test
