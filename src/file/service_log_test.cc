// Goal: the log has each page that was requested from the host once, with its file and time, and
// the fate of each file's pages. It never exceeds its room, and is empty if it is off.
#include "penstock/service_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "file/read_test.h"
#include "penstock/file_system.h"
#include "testing/effort.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

constexpr uint64_t kSize = (4 << 20) + 100;

// Who serves; kRemote: workers, of a device whose memory the host cannot address.
enum class Serving { kHelping, kWorkers, kRemote };

class ServiceLogTest : public ::testing::TestWithParam<Serving> {
protected:
    void SetUp() override {
        if (testing::kThreadSanitizer && GetParam() == Serving::kRemote)
            GTEST_SKIP() << "samples are copies of what kernels write meanwhile";
        auto cpu = backend::open_cpu({.permits = 2, .memory_size = 64 << 20});
        ASSERT_TRUE(cpu.ok()) << cpu.status().message();
        std::shared_ptr<backend::Device> port = cpu.value();
        if (GetParam() == Serving::kRemote) port = std::make_shared<testing::RemoteDevice>(port);
        device_ = Device(port);
        path_ = ::testing::TempDir() + "penstock-service-log-" + std::to_string(getpid());
        std::ofstream(path_, std::ios::binary) << std::string(kSize, 'x');
        out_ = static_cast<std::byte*>(device_.allocate(kSize).value());
        result_ = static_cast<int64_t*>(device_.allocate(16).value());
    }
    void TearDown() override { unlink(path_.c_str()); }

    FileSystem create(uint32_t log_events) {
        FileSystemOptions options;
        options.page_size = 4096;
        options.cache_size = 16 << 20;
        options.helping = GetParam() == Serving::kHelping;
        options.log_events = log_events;
        return std::move(FileSystem::create(device_, options).value());
    }
    void read_whole(FileSystem& fs) { read_whole(fs, path_, kSize); }
    void read_whole(FileSystem& fs, const std::string& path, uint64_t size) {
        const Descriptor file = fs.open(path).value();
        Stream stream = std::move(Stream::create(device_).value());
        result_[0] = result_[1] = 0;
        const Status launched = launch(stream, {{2}, {32}}, file_test::read_whole<device::Block>,
                                       fs.device_handle(), file, uint64_t{16 << 10}, out_, result_);
        ASSERT_TRUE(launched.ok()) << launched.message();
        const Status done = stream.synchronize(std::chrono::seconds(120));
        ASSERT_TRUE(done.ok()) << done.message();
        ASSERT_EQ(result_[0], static_cast<int64_t>(size));
        // Windows that nobody waited for may still be on their way; without workers they stay in
        // the ring.
        while (GetParam() != Serving::kHelping) {
            const FileSystemStatistics now = fs.statistics();
            const bool taken = now.requests == now.pages.misses + now.pages.prefetched;
            if (taken && fs.queue_load().busy_workers == 0) break;
            std::this_thread::yield();
        }
        ASSERT_TRUE(fs.close(file).ok());
    }

    Device device_;
    std::string path_;
    std::byte* out_ = nullptr;
    int64_t* result_ = nullptr;
};

TEST_P(ServiceLogTest, HasEveryPageOnce) {
    const uint64_t before = base::monotonic_ns();
    FileSystem fs = create(10'000);
    read_whole(fs);
    const FileSystemStatistics statistics = fs.statistics();
    const ServiceLog log = fs.take_log();
    const uint64_t after = base::monotonic_ns();
    EXPECT_EQ(log.lost, 0u);
    uint64_t pages = 0, demanded = 0, windows = 0;
    for (const ServiceEvent& event : log.events) {
        pages += event.page_count;
        if (event.kind == ServedFor::kDemand) demanded += event.page_count;
        if (event.kind == ServedFor::kWindow) ++windows;
        EXPECT_LT(before, event.taken_ns);
        EXPECT_LT(event.taken_ns, event.arrived_ns);
        EXPECT_LT(event.arrived_ns, after);
        EXPECT_GT(event.thread, 0u);
        EXPECT_LT(event.block, 2u);
        EXPECT_EQ(event.error_number, 0);
        EXPECT_LE(event.page + event.page_count, kSize / 4096 + 1);
        EXPECT_EQ(log.files.at(event.file), path_);
    }
    EXPECT_EQ(pages, statistics.requests);
    EXPECT_EQ(demanded, statistics.demanded_pages);
    EXPECT_GT(windows, 0u);
    ASSERT_FALSE(log.samples.empty());
    for (size_t i = 0; i < log.samples.size(); ++i) {
        const ServiceSample& earlier = log.samples[i == 0 ? 0 : i - 1];
        EXPECT_LE(earlier.at_ns, log.samples[i].at_ns);
        EXPECT_LE(earlier.pages.pages, log.samples[i].pages.pages);
    }
    EXPECT_EQ(log.samples.back().pages.pages, statistics.pages.pages);
    EXPECT_EQ(log.samples.back().pages.stalled_ns, statistics.pages.stalled_ns);

    const ServiceLog rest = fs.take_log();
    EXPECT_TRUE(rest.events.empty()) << "taken before";
    EXPECT_FALSE(rest.samples.empty());
}

// The last sample of each file, by its key.
std::map<uint64_t, FileStatistics> last_of_files(const ServiceLog& log) {
    std::map<uint64_t, FileStatistics> last;
    for (const ServiceFileSample& sample : log.file_samples) {
        const FileStatistics& before = last[sample.file];
        EXPECT_LE(before.pages, sample.pages.pages);
        EXPECT_LE(before.wasted, sample.pages.wasted);
        last[sample.file] = sample.pages;
    }
    return last;
}

// Also of files whose slot has gone to another, in the very same tenth of a second.
TEST_P(ServiceLogTest, TellsOfEachFile) {
    FileSystem fs = create(10'000);
    const std::string second = path_ + "-second";
    std::vector<std::string> paths;
    uint64_t pages = 0;
    for (uint64_t round = 0; round < 8; ++round) {
        const std::string& path = round % 3 == 2 ? second : path_;
        // Longer each time: the file that was read has changed, and the next has its slot.
        const uint64_t size = (64 + round) * 4096;
        std::ofstream(path, std::ios::binary) << std::string(size, 'y');
        read_whole(fs, path, size);
        paths.push_back(path);
        pages += size / 4096;
    }
    const FileSystemStatistics all = fs.statistics();
    const ServiceLog log = fs.take_log();
    EXPECT_EQ(log.lost, 0u);
    const auto last = last_of_files(log);
    ASSERT_EQ(last.size(), paths.size());
    FileStatistics sum;
    auto path = paths.begin();
    for (const auto& [file, statistics] : last) {
        EXPECT_EQ(log.files.at(file), *path++) << "files have numbers in order";
        sum.pages += statistics.pages;
        sum.misses += statistics.misses;
        sum.window_hits += statistics.window_hits;
        sum.window_late += statistics.window_late;
        sum.prefetched += statistics.prefetched;
        sum.wasted += statistics.wasted;
        sum.stalled_ns += statistics.stalled_ns;
    }
    EXPECT_GE(sum.pages, pages);
    EXPECT_EQ(sum.pages, all.pages.pages);
    EXPECT_EQ(sum.misses, all.pages.misses);
    EXPECT_EQ(sum.window_hits + sum.window_late, all.pages.window_hits + all.pages.window_late);
    EXPECT_EQ(sum.prefetched, all.pages.prefetched);
    EXPECT_GT(sum.prefetched, 0u);
    EXPECT_EQ(sum.wasted, all.pages.wasted);
    EXPECT_EQ(sum.stalled_ns, all.pages.stalled_ns);
    EXPECT_TRUE(fs.take_log().file_samples.empty()) << "nothing has changed since";
    unlink(second.c_str());
}

TEST_P(ServiceLogTest, IsNoLongerThanItsRoom) {
    FileSystem fs = create(3);
    read_whole(fs);
    ServiceLog log = fs.take_log();
    EXPECT_EQ(log.events.size(), 3u);
    EXPECT_GT(log.lost, 0u);
    log = fs.take_log();
    EXPECT_EQ(log.lost, 0u);
}

TEST_P(ServiceLogTest, IsEmptyUnlessAskedFor) {
    FileSystem fs = create(0);
    read_whole(fs);
    const ServiceLog log = fs.take_log();
    EXPECT_TRUE(log.events.empty() && log.samples.empty() && log.files.empty());
    EXPECT_TRUE(log.file_samples.empty());
    FileSystemOptions options;
    options.log_events = (1u << 22) + 1;
    EXPECT_EQ(FileSystem::create(device_, options).status().error_number(), EINVAL);
}

INSTANTIATE_TEST_SUITE_P(Serving, ServiceLogTest,
                         ::testing::Values(Serving::kHelping, Serving::kWorkers, Serving::kRemote),
                         [](const auto& one) {
                             return one.param == Serving::kHelping   ? "helping"
                                    : one.param == Serving::kWorkers ? "workers"
                                                                     : "remote";
                         });

}  // namespace
}  // namespace penstock
