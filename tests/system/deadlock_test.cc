// Goal: however few permits, frames, leaves, ports and file slots there are, every block comes to
// its end with right bytes, or with the errno that says what was used up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <string>
#include <vector>

#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

using Blocks = std::vector<std::vector<Step>>;

// Ways to serve and to call that every test here goes through.
struct Way {
    const char* name;
    bool helping, static_map, warps, remote;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

// How many permits a test goes through: those of a GPU are what they are, and under
// ThreadSanitizer, where each takes seconds, two do.
std::vector<unsigned> permits_of(std::initializer_list<unsigned> wanted) {
    if (on_gpu()) return {1};
    if (testing::kThreadSanitizer) return {2};
    return wanted;
}

class DeadlockTest : public ::testing::TestWithParam<Way> {
protected:
    void SetUp() override {
        if (on_gpu() && (GetParam().helping || GetParam().remote))
            GTEST_SKIP() << "on a GPU every way is remote and with workers";
    }
    Shape shape_of(unsigned permits, uint64_t frames) const {
        return {.permits = permits,
                .frames = frames,
                .helping = GetParam().helping,
                .workers = 2,
                .static_map = GetParam().static_map,
                .warps = GetParam().warps,
                .lanes = GetParam().warps ? 64u : 32u,
                .remote = GetParam().remote};
    }

    // Runs, and compares what each kRead returned with the file `name`; nothing else may fail.
    static void run_and_compare(Machine& machine, Blocks blocks, const std::string& name) {
        const Status status = machine.run(&blocks);
        ASSERT_TRUE(status.ok()) << status.message() << machine.device().diagnosis();
        const testing::ReferenceFile& file = machine.files().file(name);
        for (const Step& step : std::vector<Step>(flatten(blocks))) {
            ASSERT_EQ(step.disagreements, 0u);
            ASSERT_GE(step.result, 0) << "act " << static_cast<int>(step.act);
            if (step.act != Act::kRead) continue;
            const auto offset = static_cast<uint64_t>(step.offset);
            const uint64_t count = file.count(offset, step.size);
            ASSERT_EQ(step.result, static_cast<int64_t>(count)) << "at " << offset;
            ASSERT_EQ(file.mismatch(offset, {step.out, count}), count) << "at " << offset;
        }
        EXPECT_EQ(machine.broken_invariant(), 0);
    }

    static std::vector<Step> flatten(const Blocks& blocks) {
        std::vector<Step> all;
        for (const auto& steps : blocks) all.insert(all.end(), steps.begin(), steps.end());
        return all;
    }
};

TEST_P(DeadlockTest, ManyBlocksOnOneColdPage) {
    for (const unsigned permits : permits_of({1, 2})) {
        Machine machine(shape_of(permits, 4));
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", 10'000, 1);
        const Descriptor file = machine.fs().open(machine.files().path("f")).value();
        Blocks blocks(60);
        for (auto& steps : blocks) {
            steps = {set_step(0, file),
                     read_step(0, 4096, 4096, machine.scratch().array<std::byte>(4096))};
        }
        run_and_compare(machine, std::move(blocks), "f");
        EXPECT_EQ(machine.fs().statistics().requests, 1u) << "one page, asked for once";
    }
}

TEST_P(DeadlockTest, EveryBlockMissesEverything) {
    for (const unsigned permits : permits_of({1, 2, 4})) {
        // A frame for each block that can be resident. On a GPU that makes thousands, and the file
        // and what is read of it are three times as large.
        Machine machine(shape_of(permits, permits), on_gpu() ? 80 << 20 : 16 << 20);
        ASSERT_TRUE(machine.ok());
        const uint64_t pages = std::max<uint64_t>(300, 3 * machine.frame_count());
        machine.create_file("f", pages * 4096 + 77, 2);
        const Descriptor file = machine.fs().open(machine.files().path("f")).value();
        Blocks blocks(on_gpu() ? pages / 48 : 12);
        for (size_t b = 0; b < blocks.size(); ++b) {
            blocks[b].push_back(set_step(0, file));
            for (int i = 0; i < 3; ++i) {
                const auto offset = static_cast<int64_t>((b * 97 + i * 131) % (pages - 20) * 4096 +
                                                         b);
                blocks[b].push_back(
                    read_step(0, offset, 70'000, machine.scratch().array<std::byte>(70'000)));
            }
        }
        run_and_compare(machine, std::move(blocks), "f");
    }
}

// Of writes that were begun a quarter of the frames may hold pages; each begins and ends within
// one. Each block has pages of its own, and writes what is there already.
TEST_P(DeadlockTest, BegunWritesHoldAllThatTheyMay) {
    constexpr uint64_t kPagesOfBlock = 25, kMuch = 30'000;
    for (const unsigned permits : permits_of({1, 2, 4})) {
        Machine machine(shape_of(permits, 4 * permits), on_gpu() ? 64 << 20 : 16 << 20);
        ASSERT_TRUE(machine.ok());
        Blocks blocks(on_gpu() ? 64 : 12);
        const uint64_t pages = std::max(kPagesOfBlock * blocks.size(), 3 * machine.frame_count());
        const Bytes bytes = storage::random_bytes(9, pages * 4096);
        ASSERT_TRUE(machine.files().create("f"));
        ASSERT_TRUE(machine.files().write("f", 0, bytes));
        const std::string path = machine.files().path("f");
        const Descriptor file = machine.fs().open(path, kOpenReadWrite).value();
        auto* from = machine.scratch().array<std::byte>(bytes.size());
        std::copy(bytes.begin(), bytes.end(), from);
        for (size_t b = 0; b < blocks.size(); ++b) {
            uint64_t at = b * (pages / blocks.size()) * 4096 + 100;
            blocks[b].push_back(set_step(0, file));
            for (uint32_t call = 0; call < kCallsPerBlock; ++call, at += 4 * 4096) {
                const auto offset = static_cast<int64_t>(at);
                const uint64_t size = 3000 + 4096 * (call % 3);
                blocks[b].push_back(begin_write_step(0, call, offset, size, from + at));
            }
            const auto offset = static_cast<int64_t>(at);
            blocks[b].push_back(
                read_step(0, offset, kMuch, machine.scratch().array<std::byte>(kMuch)));
            blocks[b].push_back(write_step(0, offset, kMuch, from + at));
            for (uint32_t call = 0; call < kCallsPerBlock; ++call)
                blocks[b].push_back(wait_step(call));
        }
        run_and_compare(machine, std::move(blocks), "f");
        EXPECT_TRUE(machine.fs().close(file).ok());
    }
}

TEST_P(DeadlockTest, MoreBlocksThanPermits) {
    Shape wanted = shape_of(2, 16);
    // Of blocks so large a GPU has two on each multiprocessor: some 260 in all.
    if (on_gpu()) wanted.lanes = 512;
    Machine machine(wanted);
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 100'000, 3);
    const char* path = machine.scratch().text(machine.files().path("f"));
    Blocks blocks(400);
    for (size_t b = 0; b < blocks.size(); ++b) {
        const auto offset = static_cast<int64_t>(b * 249);
        blocks[b] = {open_step(0, path),
                     read_step(0, offset, 5000, machine.scratch().array<std::byte>(5000)),
                     close_step(0)};
    }
    run_and_compare(machine, std::move(blocks), "f");
    EXPECT_EQ(machine.fs().statistics().open_descriptors, 0u);
}

// The device keeps a frame for each permit out of the hands of views.
TEST_P(DeadlockTest, AllFramesThatViewsMayPinArePinned) {
    constexpr uint32_t kFrames = 16, kPermits = 2, kViews = kFrames - kPermits;
    Machine machine(shape_of(kPermits, kFrames));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 200 * 4096, 4);
    const Descriptor file = machine.fs().open(machine.files().path("f")).value();
    const auto page = [&](uint32_t view, int64_t index) {
        return map_step(0, view, index * 4096 + 10, 8, machine.scratch().array<std::byte>(8));
    };
    std::vector<Step> steps = {set_step(0, file)};
    for (uint32_t view = 0; view < kViews; ++view) steps.push_back(page(view, view));
    steps.push_back(page(kViews, 50));  // one too many
    for (int i = 0; i < 3; ++i) {
        steps.push_back(
            read_step(0, i * 60 * 4096, 250'000, machine.scratch().array<std::byte>(250'000)));
    }
    steps.push_back(unmap_step(0));
    steps.push_back(page(kViews, 50));
    for (uint32_t view = 1; view <= kViews; ++view) steps.push_back(unmap_step(view));
    Blocks blocks = {steps};
    const Status status = machine.run(&blocks);
    ASSERT_TRUE(status.ok()) << status.message();
    const testing::ReferenceFile& bytes = machine.files().file("f");
    size_t refused = 0;
    for (const Step& step : blocks[0]) {
        if (step.act == Act::kUnmap) {
            EXPECT_EQ(step.result, 0);
        }
        if (step.act == Act::kSet || step.act == Act::kUnmap) continue;
        if (step.act == Act::kMap && step.result == -ENOMEM) {
            ++refused;
            continue;
        }
        ASSERT_EQ(step.result, static_cast<int64_t>(step.size));
        ASSERT_EQ(bytes.mismatch(static_cast<uint64_t>(step.offset), {step.out, step.size}),
                  step.size);
    }
    EXPECT_EQ(refused, 1u);
    EXPECT_EQ(machine.fs().statistics().views, 0u);
    EXPECT_EQ(machine.broken_invariant(), 0);
}

// Each page read lies under a leaf of its own, and there are more of them than leaves.
TEST_P(DeadlockTest, TheLeafPoolIsUsedUp) {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "takes long; races are for RandomPrograms";
    Machine machine(shape_of(2, 8), on_gpu() ? 64 << 20 : 16 << 20);
    ASSERT_TRUE(machine.ok());
    constexpr uint64_t kSize = uint64_t{1} << 40, kLeafSize = 512 * 4096;
    ASSERT_TRUE(machine.files().create("f"));
    ASSERT_TRUE(machine.files().resize("f", kSize));
    for (const uint64_t leaf : {0, 5, 300, 524'287}) {
        ASSERT_TRUE(
            machine.files().write("f", leaf * kLeafSize + 100, storage::random_bytes(leaf, 9000)));
    }
    const Descriptor file = machine.fs().open(machine.files().path("f")).value();
    // There are more than two leaves for each team that can be resident: on a GPU, thousands.
    Blocks blocks(on_gpu() ? 128 : 6);
    const uint64_t reads = std::max<uint64_t>(150, machine.leaf_count() * 5 / 4 / blocks.size());
    const uint64_t stride = kSize / kLeafSize / (blocks.size() * reads);
    const uint64_t size = on_gpu() ? 300 : 5000;  // for room
    ASSERT_GT(blocks.size() * reads * 9 / 10, machine.leaf_count());
    for (size_t b = 0; b < blocks.size(); ++b) {
        blocks[b].push_back(set_step(0, file));
        for (uint64_t i = 0; i < reads; ++i) {
            const uint64_t leaf = i % 10 == 0 ? 300 : (b * reads + i) * stride;
            const auto offset = static_cast<int64_t>(leaf * kLeafSize);
            blocks[b].push_back(
                read_step(0, offset, size, machine.scratch().array<std::byte>(size)));
        }
        // Across the border of two leaves.
        blocks[b].push_back(
            read_step(0, 6 * kLeafSize - 3000, 8000, machine.scratch().array<std::byte>(8000)));
    }
    run_and_compare(machine, std::move(blocks), "f");
}

// 4096 files are open; the next has no slot until one is closed. In memory, so that no limit of the
// process's descriptors is met first.
TEST_P(DeadlockTest, EveryFileSlotIsInUse) {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "one block and one thread";
    Shape wanted = shape_of(2, 32);
    wanted.storage = storage::Kind::kRam;
    Machine machine(wanted);
    ASSERT_TRUE(machine.ok());
    std::vector<Descriptor> opened;
    for (uint32_t i = 0; i <= limits::kFilesMax; ++i) {
        const std::string name = "f" + std::to_string(i);
        ASSERT_TRUE(machine.files().create(name));
        const Bytes bytes = storage::random_bytes(i, 64);
        ASSERT_TRUE(machine.files().write(name, 0, bytes));
        auto result = machine.fs().open(name);
        if (i == limits::kFilesMax) {
            EXPECT_EQ(result.status().error_number(), ENFILE);
            break;
        }
        ASSERT_TRUE(result.ok()) << i << ": " << result.status().message();
        opened.push_back(result.value());
    }
    const char* last = machine.scratch().text("f" + std::to_string(limits::kFilesMax));
    std::vector<Step> steps = {open_step(1, last)};
    for (uint32_t i = 0; i < limits::kFilesMax; i += 61) {
        steps.push_back(set_step(0, opened[i]));
        steps.push_back(read_step(0, 0, 64, machine.scratch().array<std::byte>(64)));
    }
    Blocks blocks = {steps};
    ASSERT_TRUE(machine.run(&blocks).ok());
    EXPECT_EQ(blocks[0][0].result, -ENFILE);
    for (size_t i = 1; i < blocks[0].size(); i += 2) {
        const auto index = static_cast<uint32_t>((i - 1) / 2 * 61);
        const Bytes wanted_bytes = storage::random_bytes(index, 64);
        ASSERT_EQ(blocks[0][i + 1].result, 64);
        ASSERT_TRUE(std::equal(wanted_bytes.begin(), wanted_bytes.end(), blocks[0][i + 1].out))
            << index;
    }
    ASSERT_TRUE(machine.fs().close(opened[77]).ok());
    if (!machine.drops_under_kernels()) {
        // The slot changes hands before the kernel asks for it.
        const auto early = machine.fs().open("f" + std::to_string(limits::kFilesMax));
        ASSERT_TRUE(early.ok()) << early.status().message();
        ASSERT_TRUE(machine.fs().close(early.value()).ok());
    }
    Blocks again = {{open_step(0, last),
                     read_step(0, 0, 100, machine.scratch().array<std::byte>(100)), close_step(0)}};
    ASSERT_TRUE(machine.run(&again).ok());
    EXPECT_GE(again[0][0].result, 0);
    EXPECT_EQ(again[0][1].result, 64);
    for (size_t i = 0; i < opened.size(); ++i)
        EXPECT_EQ(machine.fs().close(opened[i]).ok(), i != 77);
}

INSTANTIATE_TEST_SUITE_P(Ways, DeadlockTest,
                         ::testing::Values(Way{"helping", true, false, false, false},
                                           Way{"workers", false, false, false, false},
                                           Way{"static_map", false, true, false, false},
                                           Way{"warps", true, false, true, false},
                                           Way{"warps_and_workers", false, false, true, false},
                                           Way{"remote", false, false, false, true},
                                           Way{"remote_warps", false, false, true, true}),
                         [](const auto& made) { return std::string(made.param.name); });

// Blocks of each wait for their own and help the other, on one permit and on two.
TEST(DeadlockOfTwoFileSystemsTest, BothOfADeviceAreServed) {
    for (const unsigned permits : permits_of({1, 2})) {
        Machine machine({.permits = permits, .frames = 4, .lanes = 16});
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", 200'000, 6);
        const size_t frames = std::max(3u, machine.device().permits());
        auto other = file::System::create(machine.device(), file::open_storage({}).value(),
                                          {.page_size = 8192, .cache_size = 8192 * frames});
        ASSERT_TRUE(other.ok()) << other.status().message();
        auto second = Stream::create(machine.device());
        const char* path = machine.scratch().text(machine.files().path("f"));
        Blocks blocks(20);
        for (size_t b = 0; b < blocks.size(); ++b) {
            const auto offset = static_cast<int64_t>(b * 7000);
            blocks[b] = {open_step(0, path),
                         read_step(0, offset, 60'000, machine.scratch().array<std::byte>(60'000)),
                         close_step(0)};
        }
        BlockSteps* one = machine.write_down(blocks);
        for (auto& steps : blocks) steps[1].out = machine.scratch().array<std::byte>(60'000);
        BlockSteps* two = machine.write_down(blocks);
        const LaunchShape shape{{static_cast<unsigned>(blocks.size())}, {16}};
        ASSERT_TRUE(machine.start(machine.stream(), one, blocks.size()).ok());
        ASSERT_TRUE(launch(second.value(), shape, run_steps<device::Block>,
                           other.value().device_handle(), two)
                        .ok());
        ASSERT_TRUE(machine.stream().synchronize(std::chrono::seconds(60)).ok());
        ASSERT_TRUE(second.value().synchronize(std::chrono::seconds(60)).ok());
        const testing::ReferenceFile& file = machine.files().file("f");
        for (const BlockSteps* written : {one, two}) {
            for (size_t b = 0; b < blocks.size(); ++b) {
                const Step& read = written[b].steps[1];
                ASSERT_EQ(read.result, 60'000);
                ASSERT_EQ(file.mismatch(static_cast<uint64_t>(read.offset), {read.out, 60'000}),
                          60'000u);
            }
        }
    }
}

// There are 64 ports for control calls, and 100 blocks that want one at the same time.
TEST(DeadlockOfPortsTest, HundredsOfBlocksOpenAtOnce) {
    for (const bool helping : {true, false}) {
        Machine machine({.permits = 100, .frames = 128, .helping = helping, .lanes = 4});
        ASSERT_TRUE(machine.ok());
        machine.create_file("f", 20'000, 5);
        const char* path = machine.scratch().text(machine.files().path("f"));
        const char* missing = machine.scratch().text("/nothing/of/this/name");
        Blocks blocks(300);
        for (size_t b = 0; b < blocks.size(); ++b) {
            const auto offset = static_cast<int64_t>(b * 60);
            blocks[b] = {open_step(0, path),
                         open_step(1, missing),
                         open_step(2, path),
                         read_step(2, offset, 100, machine.scratch().array<std::byte>(100)),
                         close_step(0),
                         close_step(2)};
        }
        const Status status = machine.run(&blocks);
        ASSERT_TRUE(status.ok()) << status.message();
        const testing::ReferenceFile& file = machine.files().file("f");
        for (const auto& steps : blocks) {
            EXPECT_GE(steps[0].result, 0);
            EXPECT_EQ(steps[1].result, -ENOENT);
            EXPECT_GE(steps[2].result, 0);
            ASSERT_EQ(steps[3].result, 100);
            ASSERT_EQ(file.mismatch(static_cast<uint64_t>(steps[3].offset), {steps[3].out, 100}),
                      100u);
            EXPECT_EQ(steps[4].result, 0);
            EXPECT_EQ(steps[5].result, 0);
        }
        EXPECT_EQ(machine.fs().statistics().open_descriptors, 0u);
    }
}

}  // namespace
}  // namespace penstock::system_test
