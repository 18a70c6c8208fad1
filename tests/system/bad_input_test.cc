// Goal: whatever a program hands in, it gets one errno or one clear line, and the file system goes
// on working for the next.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

using Blocks = std::vector<std::vector<Step>>;

constexpr const char* kContextEnds = "on a GPU such a kernel ends the process's whole context";
constexpr const char* kNothingEndsIt = "on a GPU nothing ends such a kernel";
constexpr const char* kNotSeen = "on a GPU nothing sees that threads are missing";

TEST(BadOptionsTest, AreRefusedWithTheReason) {
    const Device device = Device::open("cpu:4", {.memory_size = 64 << 20}).value();
    const auto refusal = [&](FileSystemOptions options) {
        return FileSystem::create(device, options).status().error_number();
    };
    for (const uint32_t page_size : {0u, 1u, 5000u, 2048u, 4097u, 3u << 12, 8u << 20}) {
        EXPECT_EQ(refusal({.page_size = page_size, .cache_size = 16 << 20}), EINVAL) << page_size;
    }
    EXPECT_EQ(refusal({.page_size = 65536, .cache_size = 3 * 65536}), EINVAL)
        << "fewer pages than permits";
    EXPECT_EQ(refusal({.page_size = 65536, .cache_size = 4 * 65536}), 0);
    EXPECT_EQ(refusal({.page_size = 65536, .cache_size = 1}), EINVAL);
    EXPECT_EQ(refusal({.page_size = 4096, .cache_size = size_t{1} << 39}), ENOMEM)
        << "more than the device has";
    EXPECT_EQ(refusal({.page_size = 4096, .cache_size = 1 << 20, .workers = 17, .helping = false}),
              EINVAL);
    EXPECT_EQ(refusal({.page_size = 4096,
                       .cache_size = 1 << 20,
                       .helping = true,
                       .study = {.map = RequestMap::kStatic}}),
              EINVAL);
    EXPECT_EQ(
        refusal({.page_size = 4096, .cache_size = 1 << 20, .study = {.throttle_latency_us = -1}}),
        EINVAL);
    EXPECT_EQ(Device::open("gpu").status().error_number(), EINVAL);
    EXPECT_EQ(Device::open("cpu:0").status().error_number(), EINVAL);
    EXPECT_EQ(Device::open("cpu:x").status().error_number(), EINVAL);
}

class BadInputTest : public ::testing::TestWithParam<bool> {
protected:
    void SetUp() override {
        machine_ = std::make_unique<Machine>(shape());
        ASSERT_TRUE(machine_->ok());
        machine_->create_file("f", 50'000, 1);
        path_ = machine_->files().path("f");
    }
    static Shape shape() {
        return {.permits = 2,
                .frames = 32,
                .helping = !GetParam(),
                .warps = GetParam(),
                .lanes = 48,
                .watchdog_seconds = 1};
    }

    std::byte* room(size_t size) { return machine_->scratch().array<std::byte>(size); }
    const char* text(const std::string& value) { return machine_->scratch().text(value); }
    // The results of one block's steps.
    std::vector<int64_t> results(std::vector<Step> steps) {
        Blocks blocks = {std::move(steps)};
        const Status status = machine_->run(&blocks, std::chrono::seconds(30));
        EXPECT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
        std::vector<int64_t> all;
        for (const Step& step : blocks[0]) {
            EXPECT_EQ(step.disagreements, 0u);
            all.push_back(step.result);
        }
        return all;
    }
    // Everything still works: a kernel opens, reads all, closes.
    void expect_good() {
        auto* out = room(50'000);
        const auto got = results(
            {open_step(0, text(path_)), read_step(0, 0, 60'000, out), close_step(0)});
        EXPECT_GE(got[0], 0);
        EXPECT_EQ(got[1], 50'000);
        EXPECT_EQ(machine_->files().file("f").mismatch(0, {out, 50'000}), 50'000u);
        EXPECT_EQ(got[2], 0);
        EXPECT_EQ(machine_->broken_invariant(), 0);
    }
    // Runs steps that end the kernel badly: the error of the stream, and what the device says.
    Status fail(std::vector<Step> steps, std::string* diagnosis) {
        Blocks blocks = {std::move(steps)};
        const Status status = machine_->run(&blocks, std::chrono::seconds(30));
        *diagnosis = machine_->device().diagnosis();
        EXPECT_EQ(std::count(diagnosis->begin(), diagnosis->end(), '\n'), 0) << "one line";
        return status;
    }
    // A kernel has failed, perhaps with pages and ports in its hands: the file system ends, and
    // says why; the device and a new file system go on.
    void expect_ended(Machine& machine) {
        (void)Machine::wait_until([&] { return !machine.fs().abort_cause().empty(); });
        EXPECT_EQ(machine.fs().abort_cause(),
                  "a kernel failed while it may have held pages: make a new file system");
        Blocks blocks = {{open_step(0, machine.scratch().text(machine.files().path("f")))}};
        const Status status = machine.run(&blocks, std::chrono::seconds(30));
        EXPECT_TRUE(status.ok()) << status.message();
        // What is answered before the first look at the abort word has not waited.
        EXPECT_TRUE(blocks[0][0].result == -ECANCELED || blocks[0][0].result >= 0);
        machine.renew();
    }

    std::unique_ptr<Machine> machine_;
    std::string path_;
};

INSTANTIATE_TEST_SUITE_P(Groups, BadInputTest, ::testing::Bool(), [](const auto& made) {
    return std::string(made.param ? "warps" : "block");
});

TEST_P(BadInputTest, Paths) {
    const std::string folder = machine_->scratch_path("");
    ASSERT_EQ(mkfifo((folder + "fifo").c_str(), 0600), 0);
    ASSERT_EQ(symlink("loop", (folder + "loop").c_str()), 0);
    const std::vector<std::pair<const char*, int64_t>> cases = {
        {nullptr, -EFAULT},
        {text(""), -ENOENT},
        {text(folder + "nothing"), -ENOENT},
        {text(path_ + "/below"), -ENOTDIR},
        {text(folder), -EISDIR},
        {text(folder + "fifo"), -ESPIPE},
        {text(folder + "loop"), -ELOOP},
        {text("/dev/null"), -ENOTSUP},
        {text(folder + std::string(300, 'a')), -ENAMETOOLONG},
        {text(std::string(4095, '/')), -EISDIR},
        {text(std::string(4096, '/')), -ENAMETOOLONG},
        {text(std::string(100'000, 'a')), -ENAMETOOLONG},
    };
    std::vector<Step> steps;
    for (const auto& [path, wanted] : cases) steps.push_back(open_step(0, path));
    for (const int flags : {3, kOpenTruncate, kOpenAppend, kOpenReadWrite | kOpenExclusive,
                            kOpenWriteOnce, kOpenReadWrite | kOpenWriteOnce, kOpenNoSync, -1})
        steps.push_back(open_step(0, text(path_), flags));
    const auto got = results(steps);
    for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(got[i], cases[i].second) << "path " << i;
    for (size_t i = cases.size(); i < got.size(); ++i) EXPECT_EQ(got[i], -EINVAL) << "flags " << i;
    expect_good();
}

TEST_P(BadInputTest, AFileThatMayNotBeRead) {
    const std::string path = machine_->scratch_path("secret");
    machine_->create_file("secret", 100, 2);
    ASSERT_EQ(chmod(path.c_str(), 0), 0);
    // root may read everything; nobody may not.
    const bool root = geteuid() == 0;
    if (root) {
        ASSERT_EQ(seteuid(65534), 0);
    }
    const auto got = results({open_step(0, text(path))});
    if (root) {
        ASSERT_EQ(seteuid(0), 0);
    }
    EXPECT_EQ(got[0], -EACCES);
    expect_good();
}

TEST_P(BadInputTest, NoMoreFilesForThisProcess) {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{3, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto got = results({open_step(0, text(path_))});
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(got[0], -EMFILE);
    expect_good();
}

// The page table has room for 2 TiB in pages of 4 KiB.
TEST_P(BadInputTest, AFileTooLargeForThePageTable) {
    const std::string path = machine_->scratch_path("huge");
    machine_->create_file("huge", 10, 3);
    if (truncate(path.c_str(), off_t{3} << 40) != 0)
        GTEST_SKIP() << "no such sizes on this file system";
    EXPECT_EQ(results({open_step(0, text(path))})[0], -EFBIG);
    EXPECT_EQ(machine_->fs().open(path).status().error_number(), EFBIG);
    expect_good();
}

TEST_P(BadInputTest, RangesAndBuffers) {
    auto* out = room(100);
    const auto got = results({open_step(0, text(path_)),                       //
                              read_step(0, -1, 10, out),                       //
                              read_step(0, INT64_MIN, 10, out),                //
                              read_step(0, INT64_MAX, 10, out),                //
                              read_step(0, INT64_MAX, UINT64_MAX, out),        //
                              read_step(0, 49'990, UINT64_MAX, out),           //
                              read_step(0, 0, 10, nullptr),                    //
                              read_step(0, 0, 0, nullptr),                     //
                              read_step(0, -1, 0, nullptr),                    //
                              map_step(0, 0, -1, 10, out),                     //
                              map_step(0, 0, INT64_MAX, 10, out),              //
                              map_step(0, 0, 100, 0, out),                     //
                              unmap_step(0),                                   //
                              {.act = Act::kAdvise, .file = 0, .flags = 6},    //
                              {.act = Act::kAdvise, .file = 0, .flags = -1},   //
                              {.act = Act::kAdvise, .file = 0, .offset = -1},  //
                              {.act = Act::kAdvise, .file = 0, .flags = 5},    //
                              close_step(0)});
    const std::vector<int64_t> wanted = {got[0],  -EINVAL, -EINVAL, 0,       0, 10,
                                         -EFAULT, 0,       -EINVAL, -EINVAL, 0, 0,
                                         -EINVAL, -EINVAL, -EINVAL, -EINVAL, 0, 0};
    EXPECT_EQ(got, wanted);
    expect_good();
}

TEST_P(BadInputTest, DescriptorsThatAreNone) {
    base::Prng prng(17);
    auto other = file::System::create(
        machine_->device(), file::open_storage({}).value(),
        {.page_size = 4096, .cache_size = machine_->frame_count() * 4096});
    ASSERT_TRUE(other.ok()) << other.status().message();
    const Descriptor foreign = other.value().open(path_).value();
    const Descriptor closed = machine_->fs().open(path_).value();
    ASSERT_TRUE(machine_->fs().close(closed).ok());
    std::vector<Descriptor> descriptors = {-1,      0,      INT64_MIN,  INT64_MAX,
                                           foreign, closed, closed + 1, -EIO};
    for (int bit = 0; bit < 64; ++bit) descriptors.push_back(closed ^ (Descriptor{1} << bit));
    for (int i = 0; i < 60; ++i) descriptors.push_back(static_cast<Descriptor>(prng.next()));
    auto* out = room(100);
    std::vector<Step> steps;
    for (const Descriptor descriptor : descriptors) {
        steps.push_back(set_step(0, descriptor));
        steps.push_back(read_step(0, 0, 100, out));
        steps.push_back(map_step(0, 0, 0, 100, out));
        steps.push_back(stat_step(0));
        steps.push_back({.act = Act::kAdvise, .file = 0});
        steps.push_back(close_step(0));
        EXPECT_EQ(machine_->fs().close(descriptor).error_number(), EBADF);
        EXPECT_EQ(machine_->fs().size(descriptor).status().error_number(), EBADF);
    }
    const auto got = results(steps);
    for (size_t i = 0; i < got.size(); ++i) {
        if (steps[i].act == Act::kSet) continue;
        ASSERT_EQ(got[i], -EBADF) << "descriptor " << descriptors[i / 6] << ", act " << i % 6;
    }
    EXPECT_TRUE(other.value().close(foreign).ok());
    expect_good();
}

TEST_P(BadInputTest, AKernelLeavesFilesOpenAndViewsMapped) {
    for (int round = 0; round < 3; ++round) {
        machine_->scratch().clear();
        auto* out = room(4096);
        const auto got = results({open_step(0, text(path_)), open_step(1, text(path_)),
                                  map_step(0, 0, 0, 100, out), map_step(1, 1, 0, 100, out),
                                  map_step(1, 2, 9000, 100, out), close_step(1)});
        EXPECT_EQ(got[4], 100);
        const auto left = machine_->fs().reclaim();
        ASSERT_TRUE(left.ok()) << left.status().message();
        EXPECT_EQ(left.value().descriptors, 1u);
        EXPECT_EQ(left.value().views, 3u);
        EXPECT_EQ(machine_->fs().statistics().open_descriptors, 0u);
        EXPECT_EQ(machine_->fs().reclaim().value().descriptors, 0u);
        expect_good();
    }
}

TEST_P(BadInputTest, ReclaimWaitsForNoKernel) {
    auto* word = machine_->scratch().array<uint64_t>(1);
    Blocks blocks = {{{.act = Act::kLoop, .out = reinterpret_cast<std::byte*>(word)}}};
    BlockSteps* written = machine_->write_down(blocks);
    ASSERT_TRUE(machine_->start(machine_->stream(), written, 1).ok());
    EXPECT_EQ(machine_->fs().reclaim().status().error_number(), EBUSY);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    ASSERT_TRUE(machine_->stream().synchronize(std::chrono::seconds(30)).ok());
    EXPECT_TRUE(machine_->fs().reclaim().ok());
}

TEST_P(BadInputTest, AKernelThatTraps) {
    if (on_gpu()) GTEST_SKIP() << kContextEnds;
    std::string line;
    const Status status = fail(
        {open_step(0, text(path_)), map_step(0, 0, 0, 100, room(100)), {.act = Act::kTrap}}, &line);
    EXPECT_EQ(status.error_number(), EFAULT);
    EXPECT_NE(line.find("run_steps"), std::string::npos) << line;
    EXPECT_NE(line.find("block (0,0,0): __trap at"), std::string::npos) << line;
    expect_ended(*machine_);
    expect_good();
}

TEST_P(BadInputTest, AKernelThatLoops) {
    if (on_gpu()) GTEST_SKIP() << kNothingEndsIt;
    static uint64_t words[2];  // a block that was given up outlives the test
    uint64_t* word = &words[GetParam()];
    std::string line;
    const Status status = fail(
        {open_step(0, text(path_)), {.act = Act::kLoop, .out = reinterpret_cast<std::byte*>(word)}},
        &line);
    EXPECT_EQ(status.error_number(), ETIMEDOUT);
    EXPECT_NE(line.find("no barrier, wait or exit for"), std::string::npos) << line;
    EXPECT_NE(line.find("last barrier: "), std::string::npos) << line;
    expect_ended(*machine_);
    expect_good();
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);  // its thread ends at the next barrier
}

// Blocks of a launch of which another block traps: one waits for bytes, one for a page to map, one
// for an open.
TEST_P(BadInputTest, BlocksThatAreStoppedInsideCalls) {
    if (on_gpu()) GTEST_SKIP() << kContextEnds;
    Shape slow = shape();
    slow.faults = true;
    slow.helping = false;
    slow.workers = 2;
    slow.permits = 8;
    Machine machine(slow);
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 40 * 4096, 1);
    const char* path = machine.scratch().text(machine.files().path("f"));
    const Descriptor file = machine.fs().open(machine.files().path("f")).value();
    machine.faults().inject({.action = testing::Action::kBlock, .count = UINT64_MAX});
    machine.faults().inject({.call = testing::Call::kOpen,
                             .action = testing::Action::kBlock,
                             .first = 2,
                             .count = UINT64_MAX});
    const auto scratch = [&](size_t size) { return machine.scratch().array<std::byte>(size); };
    auto* word = machine.scratch().array<uint64_t>(1);
    Blocks blocks = {
        {set_step(0, file), read_step(0, 0, 8 * 4096, scratch(8 * 4096))},
        {set_step(0, file), map_step(0, 0, 8 * 4096, 100, scratch(100))},
        {open_step(0, path)},
        {{.act = Act::kLoop, .out = reinterpret_cast<std::byte*>(word)}, {.act = Act::kTrap}}};
    BlockSteps* written = machine.write_down(blocks);
    ASSERT_TRUE(machine.start(machine.stream(), written, blocks.size()).ok());
    ASSERT_TRUE(machine.faults().wait_blocked(2, 10'000'000'000));
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    EXPECT_EQ(machine.stream().synchronize(std::chrono::seconds(30)).error_number(), EFAULT);
    machine.faults().release();
    expect_ended(machine);
    Blocks again(8);
    for (auto& steps : again) {
        steps = {open_step(0, path), read_step(0, 0, 40 * 4096, scratch(40 * 4096)), close_step(0)};
    }
    const Status status = machine.run(&again, std::chrono::seconds(30));
    ASSERT_TRUE(status.ok()) << status.message();
    for (const auto& steps : again) {
        EXPECT_GE(steps[0].result, 0);
        EXPECT_EQ(steps[1].result, 40 * 4096);
        EXPECT_EQ(steps[2].result, 0);
    }
    EXPECT_EQ(machine.broken_invariant(), 0);
}

// Lanes that have returned do not count in a block's barriers. The warp form needs all of them:
// that is reported.
TEST_P(BadInputTest, ThreadsThatReturnBeforeACall) {
    if (on_gpu()) GTEST_SKIP() << kNotSeen;
    for (const auto& [first, count] :
         std::vector<std::pair<int64_t, uint64_t>>{{0, 1}, {47, 1}, {0, 20}, {32, 16}, {1, 47}}) {
        machine_->scratch().clear();
        auto* out = room(20'000);
        Blocks blocks = {{open_step(0, text(path_)),
                          {.act = Act::kLeave, .offset = first, .size = count},
                          read_step(0, 100, 20'000, out),
                          close_step(0)}};
        const Status status = machine_->run(&blocks, std::chrono::seconds(30));
        if (GetParam()) {
            EXPECT_EQ(status.error_number(), EFAULT);
            EXPECT_NE(machine_->device().diagnosis().find("a GPU thread returned before a call"),
                      std::string::npos)
                << machine_->device().diagnosis();
            expect_ended(*machine_);
        } else {
            EXPECT_TRUE(status.ok()) << status.message();
            EXPECT_EQ(machine_->files().file("f").mismatch(100, {out, 20'000}), 20'000u);
        }
        expect_good();
    }
}

TEST(KernelFaultDeathTest, IsOneLineThatNamesTheKernel) {
    if (testing::kSanitizer) GTEST_SKIP() << "the sanitizer reports the fault";
    if (on_gpu()) GTEST_SKIP() << kContextEnds;
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
    const auto fault = [] {
        Machine machine({.permits = 2, .lanes = 8});
        Blocks blocks = {{{.act = Act::kFault, .out = reinterpret_cast<std::byte*>(0x18)}}};
        (void)machine.run(&blocks);
    };
    EXPECT_EXIT(fault(), ::testing::ExitedWithCode(1),
                "^penstock: kernel .*run_steps.*, block \\(0,0,0\\): segmentation fault at address "
                "0x18\n$");
}

}  // namespace
}  // namespace penstock::system_test
