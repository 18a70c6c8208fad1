// Goal: a calibration ends with figures that agree with its points and that later opens use, or
// says why there are none. It leaves no file, whatever stops it. Faults end in errors and not in
// figures.
#include "penstock/calibrate.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "file/calibration.h"
#include "file/cost_book.h"
#include "file/route_timing.h"
#include "file/scratch_file.h"
#include "testing/fault_storage.h"
#include "testing/remote_device.h"

namespace penstock::file {
namespace {

namespace fs = std::filesystem;

// The shortest calibration: one round that is dropped, and one that counts. So it is refused,
// unless it is forced.
CalibrateOptions short_options() {
    CalibrateOptions options;
    options.threads = 2;
    options.seconds_max = 0;
    options.force = true;
    return options;
}

class CalibrateTest : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = ::testing::TempDir() + "/penstock-calibrate-XXXXXX";
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
        fs::create_directories(folder_ + "/data");
        if (const char* old = std::getenv("XDG_CONFIG_HOME"); old != nullptr) old_ = old;
        setenv("XDG_CONFIG_HOME", (folder_ + "/config").c_str(), 1);
    }
    void TearDown() override {
        if (old_.empty()) {
            unsetenv("XDG_CONFIG_HOME");
        } else {
            setenv("XDG_CONFIG_HOME", old_.c_str(), 1);
        }
        fs::remove_all(folder_);
    }
    [[nodiscard]] std::string data() const { return folder_ + "/data"; }

    // Checks that neither a name nor an open file is left.
    void expect_nothing_left(const std::string& folder) const {
        for (const auto& entry : fs::directory_iterator(folder))
            EXPECT_EQ(entry.path().filename().string().find(".penstock"), std::string::npos);
        for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            const std::string name = fs::read_symlink(entry.path(), gone).string();
            EXPECT_EQ(name.find(".penstock-calibrate"), std::string::npos) << name;
        }
    }

    std::string folder_, old_;
};

void expect_sensible(const CalibratedRoute& route, bool may_lack) {
    EXPECT_NE(route.measured, !route.reason.empty()) << route.reason;
    if (!route.measured) {
        EXPECT_TRUE(may_lack) << route.reason;
        EXPECT_TRUE(route.points.empty());
        return;
    }
    EXPECT_GE(route.points.size(), 2u);
    uint64_t before = 0;
    for (const CalibrationPoint& point : route.points) {
        EXPECT_GT(point.size, before);
        EXPECT_TRUE(std::isfinite(point.ns) && point.ns > 0);
        before = point.size;
    }
    EXPECT_TRUE(std::isfinite(route.r_squared));
    EXPECT_LE(route.r_squared, 1);
    EXPECT_GE(route.error_mean, 0);
    EXPECT_GE(route.ns_once, 0);
    EXPECT_GT(route.ns_per_byte, 0);
}

TEST_F(CalibrateTest, MeasuresStoresAndIsUsed) {
    std::ofstream(data() + "/file") << "some bytes";
    std::string last;
    double share = 0;
    CalibrateOptions options = short_options();
    options.on_progress = [&](const char* what, double done) {
        EXPECT_GE(done, share);
        EXPECT_LE(done, 1);
        share = done;
        last = what;
        return true;
    };
    const auto told = calibrate(data() + "/file", {}, options);
    ASSERT_TRUE(told.ok()) << told.status().message();
    const Calibration& result = told.value();
    expect_nothing_left(data());
    if (result.cached.measured) {
        EXPECT_EQ(last, "cached reads");
    }
    expect_sensible(result.direct, true);
    expect_sensible(result.buffered, true);
    // A kernel that reclaims idle pages ahead of need may take some meanwhile.
    expect_sensible(result.cached, true);
    EXPECT_EQ(result.complaint, "");
    EXPECT_EQ(result.stored_in, calibration_path());

    const Calibrations stored = load_calibrations(calibration_path());
    ASSERT_EQ(stored.entries.size(), 1u) << stored.complaint;
    const CalibrationEntry& entry = stored.entries[0];
    EXPECT_EQ(entry.direct, result.direct.measured);
    EXPECT_EQ(entry.buffered, result.buffered.measured);
    if (result.cached.measured) {
        EXPECT_EQ(entry.model.cached_ns, result.cached.ns_once);
        EXPECT_EQ(entry.model.cached_ns_per_byte, result.cached.ns_per_byte);
    }
    if (entry.direct) {
        EXPECT_EQ(entry.model.cutoff_size, result.direct_cutoff);
        EXPECT_EQ(entry.model.direct_ns, result.direct.ns_once);
    }
    auto storage = storage::make_storage({});
    ASSERT_TRUE(storage.ok());
    auto file = storage.value()->open(data() + "/file", O_RDONLY);
    ASSERT_TRUE(file.ok());
    planner::CostModel used = CostBook(nullptr, *storage.value()).of(*file.value())->model();
    EXPECT_GT(used.error, 0);
    used.error = 0;
    EXPECT_EQ(used, entry.model);
}

TEST_F(CalibrateTest, OneThatIsRefusedSaysWhyAndTheOldOneStays) {
    ASSERT_TRUE(calibrate(data(), {}, short_options()).ok());
    const Calibrations before = load_calibrations(calibration_path());
    ASSERT_EQ(before.entries.size(), 1u);
    CalibrateOptions options = short_options();
    options.force = false;
    const auto told = calibrate(data(), {}, options);
    ASSERT_TRUE(told.ok()) << told.status().message();
    EXPECT_NE(told.value().refusal, "");
    EXPECT_EQ(told.value().refusal.find('\n'), std::string::npos);
    EXPECT_EQ(told.value().stored_in, "");
    const Calibrations after = load_calibrations(calibration_path());
    EXPECT_EQ(write_calibrations(after.entries), write_calibrations(before.entries));
    // The figures are told all the same.
    expect_sensible(told.value().cached, true);
}

TEST_F(CalibrateTest, ThreadsThatWaitForACpuAreSeen) {
    auto under = storage::make_storage({.kind = storage::Kind::kPosix}).value();
    const auto scratch = ScratchFile::create(data(), 8 << 20, *under);
    ASSERT_TRUE(scratch.ok() && scratch.value()->fill(0, 8 << 20).ok());
    const auto timing = RouteTiming::create(*under, {}, 1);
    ASSERT_TRUE(timing.ok());
    const std::vector<uint64_t> offsets{0, 1 << 20, 2 << 20, 3 << 20};
    std::atomic<bool> stop{false};
    std::vector<std::thread> neighbours;  // four for each CPU
    for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i) {
        neighbours.emplace_back([&stop] {
            while (!stop.load(std::memory_order_relaxed)) {
            }
        });
    }
    const auto told = timing.value()->run(scratch.value()->source(),
                                          {Route::kCached, 1 << 20, 1, 2000, offsets});
    stop.store(true);
    for (std::thread& neighbour : neighbours) neighbour.join();
    ASSERT_TRUE(told.ok()) << told.status().message();
    if (!fs::exists("/proc/thread-self/schedstat")) GTEST_SKIP() << "the kernel does not tell";
    EXPECT_GT(told.value().waited_share, 0.1);
    EXPECT_LE(told.value().waited_share, 1.01);
}

TEST_F(CalibrateTest, InMemoryOnlyTheCacheIsMeasured) {
    struct statfs there {};
    constexpr long kTmpfs = 0x01021994;
    if (statfs("/dev/shm", &there) != 0 || there.f_type != kTmpfs ||
        there.f_bavail * there.f_bsize < (128 << 20)) {
        GTEST_SKIP() << "no tmpfs with room";
    }
    const auto told = calibrate("/dev/shm", {}, short_options());
    ASSERT_TRUE(told.ok()) << told.status().message();
    expect_nothing_left("/dev/shm");
    for (const CalibratedRoute* none : {&told.value().direct, &told.value().buffered}) {
        EXPECT_FALSE(none->measured);
        EXPECT_NE(none->reason.find("memory"), std::string::npos) << none->reason;
    }
    expect_sensible(told.value().cached, false);
    const Calibrations stored = load_calibrations(calibration_path());
    ASSERT_EQ(stored.entries.size(), 1u);
    planner::CostModel otherwise = stored.entries[0].model;
    EXPECT_TRUE(stored.entries[0].cached && !stored.entries[0].direct);
    otherwise.cached_ns = planner::CostModel{}.cached_ns;
    otherwise.cached_ns_per_byte = planner::CostModel{}.cached_ns_per_byte;
    EXPECT_EQ(otherwise, planner::CostModel{}) << "the rest is as by default";
}

TEST_F(CalibrateTest, IntoMemoryThatTheHostCannotAddress) {
    auto cpu = Device::open("cpu:1");
    ASSERT_TRUE(cpu.ok());
    const Device device(std::make_shared<testing::RemoteDevice>(cpu.value().port()));
    CalibrateOptions options = short_options();
    options.storage = StorageKind::kPosix;
    const uint64_t free_before = device.free_memory();
    const auto told = calibrate(data(), device, options);
    ASSERT_TRUE(told.ok()) << told.status().message();
    expect_sensible(told.value().direct, true);
    expect_sensible(told.value().cached, true);
    EXPECT_EQ(told.value().memory, device.name());
    EXPECT_EQ(told.value().storage, "posix");
    EXPECT_EQ(device.free_memory(), free_before);
}

TEST_F(CalibrateTest, StoppedAnywhereItLeavesNothing) {
    for (int stop = 1; stop <= 300; stop = stop * 3 / 2 + 1) {
        int calls = 0;
        CalibrateOptions options = short_options();
        options.on_progress = [&](const char*, double) { return ++calls < stop; };
        const auto told = calibrate(data(), {}, options);
        if (calls < stop) {
            EXPECT_TRUE(told.ok());
            break;
        }
        EXPECT_EQ(told.status().error_number(), ECANCELED) << "at " << stop;
        EXPECT_EQ(calls, stop) << "no further call";
        expect_nothing_left(data());
        EXPECT_FALSE(fs::exists(calibration_path()));
    }
}

TEST_F(CalibrateTest, WhatCannotBe) {
    EXPECT_EQ(calibrate(data() + "/none", {}, short_options()).status().error_number(), ENOENT);
    EXPECT_FALSE(calibrate("/proc", {}, short_options()).ok());
    CalibrateOptions options = short_options();
    options.threads = 65;
    EXPECT_EQ(calibrate(data(), {}, options).status().error_number(), EINVAL);
    options = short_options();
    options.seconds_max = NAN;
    EXPECT_EQ(calibrate(data(), {}, options).status().error_number(), EINVAL);
    options = short_options();
    options.study.throttle_bandwidth_mbs = -1;
    EXPECT_EQ(calibrate(data(), {}, options).status().error_number(), EINVAL);
}

TEST_F(CalibrateTest, WhereItCannotBeStoredTheFiguresAreToldAllTheSame) {
    std::ofstream(folder_ + "/config") << "a file where the folder should be";
    const auto told = calibrate(data(), {}, short_options());
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told.value().stored_in, "");
    EXPECT_NE(told.value().complaint.find(calibration_path()), std::string::npos);
    expect_sensible(told.value().cached, true);
}

TEST_F(CalibrateTest, AnyFaultIsAnErrorAndNoFigure) {
    constexpr uint64_t kSize = 2 << 20, kCount = 12;
    auto under = storage::make_storage({.kind = storage::Kind::kPosix});
    ASSERT_TRUE(under.ok());
    testing::FaultStorage storage(under.value());
    auto scratch = ScratchFile::create(data(), kSize, storage);
    ASSERT_TRUE(scratch.ok()) << scratch.status().message();
    EXPECT_TRUE(fs::is_empty(data())) << "it has no name";
    ASSERT_TRUE(scratch.value()->fill(0, kSize).ok());
    ASSERT_TRUE(scratch.value()->sync().ok());
    auto timing = RouteTiming::create(storage, {}, 2);
    ASSERT_TRUE(timing.ok());
    const std::vector<uint64_t> offsets{0, 1 << 20, 64 << 10};
    const RouteTiming::Wish wish{Route::kCached, 256 << 10, 3, kCount, offsets};
    const auto good = timing.value()->run(scratch.value()->source(), wish);
    ASSERT_TRUE(good.ok()) << good.status().message();
    EXPECT_GT(good.value().ns, 0);
    for (uint64_t n = 1; n <= 2 * kCount; ++n) {
        for (const int error : {EIO, 0}) {
            testing::Fault fault;
            fault.action = error != 0 ? testing::Action::kFail : testing::Action::kShort;
            fault.first = storage.plan().calls(testing::Call::kRead) + n;
            fault.error = error;
            storage.plan().inject(fault);
            const auto told = timing.value()->run(scratch.value()->source(), wish);
            EXPECT_EQ(told.status().error_number(), error != 0 ? EIO : ENODATA) << "call " << n;
            storage.plan().clear();
        }
    }
    EXPECT_TRUE(timing.value()->run(scratch.value()->source(), wish).ok()) << "all over again";
}

}  // namespace
}  // namespace penstock::file
