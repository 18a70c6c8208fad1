// Goal: kernels whose blocks leave at points give the same bytes as those that spin, whatever the
// order in which blocks leave and come back; a launch is complete when its last block is; and no
// launch hangs. Runs on the CPU backend, on it behind the port of a device that the host cannot
// address, and on a CUDA device where there is one.
#include "file/preemption_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "file/file_service.h"
#include "penstock/file_system.h"
#include "penstock/preemption.h"
#include "testing/bytes.h"
#include "testing/effort.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

using preemption_test::kPiece;
using preemption_test::kThreads;
using namespace std::chrono_literals;

constexpr auto kLimit = 60s;  // of a launch; none takes a second

class RandomFile {
public:
    explicit RandomFile(size_t size) {
        std::vector<std::byte> bytes(size);
        testing::fill_randomly(bytes.data(), bytes.size(), 7);
        char name[] = "/tmp/penstock-preemption-XXXXXX";
        descriptor_ = mkstemp(name);
        path_ = name;
        EXPECT_EQ(write(descriptor_, bytes.data(), size), static_cast<ssize_t>(size));
    }
    ~RandomFile() {
        close(descriptor_);
        unlink(path_.c_str());
    }
    const std::string& path() const { return path_; }

private:
    int descriptor_ = -1;
    std::string path_;
};

bool has_gpu() {
    static const bool found = list_devices().front().starts_with("cuda:");
    return found;
}

std::vector<std::string> devices() {
    std::vector<std::string> names{"cpu:1", "cpu:2", "cpu:8", "remote:3"};
    if (has_gpu()) names.push_back("cuda:0");
    return names;
}

// "remote:N": the CPU backend as a device that the host cannot address.
Device open_device(const std::string& name) {
    if (!name.starts_with("remote:")) return Device::open(name, {.memory_size = 256 << 20}).value();
    const auto permits = static_cast<unsigned>(std::stoul(name.substr(7)));
    auto cpu = backend::open_cpu({.permits = permits, .memory_size = 256 << 20});
    return Device(file::with_services(std::make_shared<testing::RemoteDevice>(cpu.value())));
}

struct Case {
    std::string device = "cpu:2";
    bool helping = false;
    double latency_us = 300;
};

// A device with a file system, an open file and a stream.
class Rig {
public:
    explicit Rig(const Case& wanted, const std::string& path) {
        device = open_device(wanted.device);
        FileSystemOptions options;
        options.cache_size = (device.permits() + size_t{512}) * 4096;
        options.helping = wanted.helping;
        options.study.throttle_latency_us = wanted.latency_us;
        options.study.throttle_bandwidth_mbs = wanted.latency_us > 0 ? 4000 : 0;
        auto made = FileSystem::create(device, options);
        fs = std::move(made.value());
        auto begun = Stream::create(device);
        stream = std::move(begun.value());
        file = fs.open(path).value();
        out = static_cast<uint64_t*>(device.allocate(kOutSize).value());
        pinned = static_cast<uint64_t*>(device.allocate_pinned(kOutSize).value());
    }
    ~Rig() {
        stream = Stream();
        device.free(out);
        device.free(pinned);
    }

    std::vector<uint64_t> fetch(size_t count) {
        EXPECT_TRUE(stream.copy(pinned, out, count * sizeof *out).ok());
        const Status status = stream.synchronize(kLimit);
        EXPECT_TRUE(status.ok()) << status.message();
        return {pinned, pinned + count};
    }
    std::vector<uint64_t> fold(unsigned blocks, unsigned pieces) {
        EXPECT_TRUE(launch(stream, {{blocks}, {kThreads}}, preemption_test::fold,
                           fs.device_handle(), file, pieces, out)
                        .ok());
        return fetch(blocks);
    }

    static constexpr size_t kOutSize = 1 << 20;
    Device device;
    FileSystem fs;
    Stream stream;
    Descriptor file = -1;
    uint64_t* out = nullptr;
    uint64_t* pinned = nullptr;
};

constexpr unsigned kBlocks = 40, kPieces = 6;

std::vector<uint64_t> spinning(const RandomFile& file) {
    Rig rig({.latency_us = 0}, file.path());
    EXPECT_TRUE(set_preemption(rig.device, {.enabled = false}).ok());
    return rig.fold(kBlocks, kPieces);
}

TEST(Preemption, BlocksThatLeaveGiveTheSameBytes) {
    const RandomFile file(kBlocks * kPieces * kPiece - 1000);
    const auto expected = spinning(file);
    for (const std::string& device : devices()) {
        for (const bool helping : {false, true}) {
            Rig rig({.device = device, .helping = helping}, file.path());
            EXPECT_EQ(rig.fold(kBlocks, kPieces), expected) << device << " " << helping;
            EXPECT_EQ(preemption_statistics(rig.device).blocks, kBlocks);
        }
    }
}

TEST(Preemption, BlocksLeaveWhereOthersWantTheirPlace) {
    const RandomFile file(kBlocks * kPieces * kPiece);
    const auto expected = spinning(file);
    for (const char* device : {"cpu:1", "cpu:2", "remote:3"}) {
        Rig rig({.device = device, .latency_us = 3000}, file.path());
        // On a machine of any speed a wait is longer than this.
        ASSERT_TRUE(set_preemption(rig.device, {.switch_ns = 0}).ok());
        EXPECT_EQ(rig.fold(kBlocks, kPieces), expected) << device;
        EXPECT_GT(preemption_statistics(rig.device).left, 0u) << device;
    }
}

TEST(Preemption, ForcedToLeaveAtAnyPoint) {
    const RandomFile file(kBlocks * kPieces * kPiece);
    const auto expected = spinning(file);
    for (uint64_t seed = 0; seed < testing::effort(60, 12, 1000); ++seed) {
        const auto names = devices();
        Rig rig({.device = names[seed % names.size()], .latency_us = 0}, file.path());
        PreemptionOptions options;
        options.forced_share = seed % 4 == 0 ? 1 : 0.3;
        options.forced_seed = seed;
        options.keeps_popping = seed % 2 == 0;
        options.batches = seed % 5 != 0;
        options.first = seed % 7 != 0;
        ASSERT_TRUE(set_preemption(rig.device, options).ok());
        EXPECT_EQ(rig.fold(kBlocks, kPieces), expected) << "seed " << seed;
        EXPECT_GT(preemption_statistics(rig.device).left, kBlocks / 4) << "seed " << seed;
    }
}

TEST(Preemption, TheNextKernelOfTheStreamSeesAllBlocks) {
    const RandomFile file(kBlocks * kPieces * kPiece);
    const auto expected = spinning(file);
    Rig rig({}, file.path());
    uint64_t* const copies = rig.pinned;
    for (unsigned i = 0; i < 20; ++i) {
        ASSERT_TRUE(rig.stream.fill(rig.out, 0, kBlocks * sizeof(uint64_t)).ok());
        ASSERT_TRUE(launch(rig.stream, {{kBlocks}, {kThreads}}, preemption_test::fold,
                           rig.fs.device_handle(), rig.file, kPieces, rig.out)
                        .ok());
        ASSERT_TRUE(
            rig.stream.copy(copies + i * kBlocks, rig.out, kBlocks * sizeof(uint64_t)).ok());
    }
    ASSERT_TRUE(rig.stream.synchronize(kLimit).ok());
    for (unsigned i = 0; i < 20; ++i) {
        const auto* begin = copies + i * kBlocks;
        EXPECT_EQ(std::vector<uint64_t>(begin, begin + kBlocks), expected) << i;
    }
}

// Regression: a launch that was over lost its words to the next one before its stream had gone on,
// and the stream stood still.
TEST(Preemption, StreamsGoOnThroughManyShortLaunches) {
    const RandomFile file(kPiece * 8);
    const uint64_t launches = testing::effort(400, 100, 10'000);
    for (const std::string device : {"cpu:2", "cpu:4", "remote:4"}) {
        Rig rig({.device = device, .latency_us = 0}, file.path());
        ASSERT_TRUE(set_preemption(rig.device, {.forced_share = 1}).ok());
        for (uint64_t i = 0; i < launches; ++i) {
            ASSERT_TRUE(launch(rig.stream, {{4}, {kThreads}}, preemption_test::fold,
                               rig.fs.device_handle(), rig.file, 2u, rig.out)
                            .ok());
            if (i % 100 != 99) continue;  // more in flight would spin
            const Status status = rig.stream.synchronize(kLimit);
            ASSERT_TRUE(status.ok()) << status.message();
        }
        EXPECT_GE(preemption_statistics(rig.device).left, launches * 8) << device;
    }
}

// The last block of the grid lets the first one go on. On two permits it starts only because others
// leave.
TEST(Preemption, BlocksThatWaitForBlocksNotYetStarted) {
    const RandomFile file(kPiece);
    for (const std::string device : {"cpu:1", "cpu:2", "remote:2"}) {
        Rig rig({.device = device}, file.path());
        constexpr unsigned kLinks = 100;
        auto* const flags = static_cast<uint64_t*>(rig.device.allocate(4096).value());
        for (uint64_t value = 1; value < 5; ++value) {
            ASSERT_TRUE(
                launch(rig.stream, {{kLinks}, {32}}, preemption_test::chain, flags, value, rig.out)
                    .ok());
            const auto order = rig.fetch(kLinks);
            for (unsigned i = 0; i < kLinks; ++i) ASSERT_EQ(order[i], i + 1) << device;
        }
        rig.device.free(flags);
    }
}

TEST(Preemption, WithoutRoomForItsStateABlockSpins) {
    const RandomFile file(kBlocks * kPieces * kPiece);
    const auto expected = spinning(file);
    for (const size_t memory : {size_t{16}, size_t{4096}, size_t{8192}}) {
        Rig rig({}, file.path());
        ASSERT_TRUE(set_preemption(rig.device, {.memory_size = memory}).ok());
        EXPECT_EQ(rig.fold(kBlocks, kPieces), expected) << memory;
        // With 8 KiB a few blocks fit, and perhaps no more want to leave at once.
        if (memory < 8192) {
            EXPECT_GT(preemption_statistics(rig.device).full, 0u) << memory;
        }
    }
}

TEST(Preemption, AFailureReachesTheBlockThatComesBack) {
    const RandomFile file(kBlocks * kPieces * kPiece);
    Rig rig({}, file.path());
    ASSERT_TRUE(set_preemption(rig.device, {.forced_share = 1}).ok());
    // The file ends early: blocks outside get the count of bytes that there are.
    ASSERT_EQ(truncate(file.path().c_str(), 3 * kPiece + 17), 0);
    const auto short_file = rig.fold(kBlocks, kPieces);
    ASSERT_TRUE(set_preemption(rig.device, {.enabled = false}).ok());
    EXPECT_EQ(rig.fold(kBlocks, kPieces), short_file);
}

TEST(Preemption, AnAbortEndsBlocksOutside) {
    const RandomFile file(kBlocks * kPieces * kPiece);
    for (const int which : {0, 1, 2, 3}) {
        const bool of_device = which % 2 != 0;
        const std::string device = which < 2 ? "cpu:2" : "remote:2";
        Rig rig({.device = device, .latency_us = 200'000}, file.path());
        ASSERT_TRUE(launch(rig.stream, {{kBlocks}, {kThreads}}, preemption_test::fold,
                           rig.fs.device_handle(), rig.file, kPieces, rig.out)
                        .ok());
        std::this_thread::sleep_for(50ms);
        const Status cause{ECANCELED, "test", "the test ends it"};
        if (of_device) {
            rig.device.abort(cause);
        } else {
            rig.fs.abort(cause);
        }
        const auto begin = std::chrono::steady_clock::now();
        const Status status = rig.stream.synchronize(kLimit);
        EXPECT_EQ(status.ok(), !of_device) << status.message();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    }
}

}  // namespace
}  // namespace penstock
