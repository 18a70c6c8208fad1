// Goal: on a device whose memory the host cannot address, files reach kernels byte for byte,
// kernels that wait are served whatever else the host does with the device, and everything that
// does not end is ended with its cause. Runs on a CUDA device where there is one (`make gpu`), else
// on the CPU backend behind the same port.
#include "gpu_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "file/system.h"
#include "penstock/file_system.h"
#include "testing/bytes.h"
#include "testing/remote_device.h"

namespace penstock::gpu_test {
namespace {

using std::chrono::seconds;

bool has_gpu() { return !list_devices().empty() && list_devices().front().starts_with("cuda:"); }

// On an H200 (132 SMs, 32 blocks each) more than its smallest cache of 4 KiB pages holds.
size_t file_size() {
    static const size_t size = ((has_gpu() ? 20 : 3) << 20) + 123;
    return size;
}

Device open_device() {
    static const Device device = [] {
        if (has_gpu()) {
            auto cuda = Device::open("cuda:0");
            EXPECT_TRUE(cuda.ok()) << cuda.status().message();
            return cuda.ok() ? cuda.value() : Device();
        }
        auto cpu = backend::open_cpu({.permits = 4, .memory_size = 256 << 20});
        EXPECT_TRUE(cpu.ok()) << cpu.status().message();
        return Device(std::make_shared<testing::RemoteDevice>(cpu.value()));
    }();
    return device;
}

class GpuTest : public ::testing::Test {
protected:
    void SetUp() override {
        device_ = open_device();
        stream_ = make_stream();
        result_ = static_cast<ReadResult*>(allocate(4096));
        out_ = static_cast<std::byte*>(allocate(file_size()));
        pinned_ = static_cast<std::byte*>(device_.allocate_pinned(file_size()).value());
        testing::fill_randomly(bytes_.data(), bytes_.size(), 3);
        char name[] = "/tmp/penstock-gpu-XXXXXX";
        const int descriptor = mkstemp(name);
        path_ = name;
        ASSERT_EQ(write(descriptor, bytes_.data(), file_size()), static_cast<ssize_t>(file_size()));
        ::close(descriptor);
    }

    void TearDown() override {
        fs_ = FileSystem();
        stream_ = Stream();
        for (void* memory : allocated_) device_.free(memory);
        device_.free(pinned_);
        unlink(path_.c_str());
    }

    Stream make_stream(int priority = 0) {
        auto stream = Stream::create(device_, priority);
        EXPECT_TRUE(stream.ok()) << stream.status().message();
        return std::move(stream.value());
    }

    void* allocate(size_t size) {
        auto memory = device_.allocate(size);
        EXPECT_TRUE(memory.ok()) << memory.status().message();
        allocated_.push_back(memory.value());
        return memory.value();
    }

    // The smallest cache that the device may have, and a few frames.
    void create(uint32_t page_size) {
        FileSystemOptions options;
        options.page_size = page_size;
        options.cache_size = size_t{page_size} * (device_.permits() + 8);
        auto fs = FileSystem::create(device_, options);
        ASSERT_TRUE(fs.ok()) << fs.status().message();
        fs_ = std::move(fs.value());
    }

    template <class T>
    T fetch(const T* from) {
        EXPECT_TRUE(stream_.copy(pinned_, from, sizeof(T)).ok());
        finish(stream_);
        T value;
        std::memcpy(&value, pinned_, sizeof(T));
        return value;
    }

    void finish(Stream& stream) {
        const Status done = stream.synchronize(seconds(60));
        ASSERT_TRUE(done.ok()) << done.message() << ": " << device_.diagnosis();
    }

    // Puts a read of the whole file into `stream`; check_read() after it is done.
    void start_read(Stream& stream, Descriptor file, uint64_t piece, const LaunchShape& shape,
                    decltype(&read_whole) kernel = read_whole) {
        ASSERT_TRUE(stream.fill(result_, 0, sizeof(ReadResult)).ok());
        ASSERT_TRUE(stream.fill(out_, 0, file_size()).ok());
        const Status launched = launch(stream, shape, kernel, fs_.device_handle(), file, piece,
                                       out_, result_);
        ASSERT_TRUE(launched.ok()) << launched.message() << ": " << device_.diagnosis();
    }

    void check_read() {
        const auto result = fetch(result_);
        EXPECT_EQ(result.failed, 0u);
        EXPECT_EQ(result.bytes, file_size());
        ASSERT_TRUE(stream_.copy(pinned_, out_, file_size()).ok());
        finish(stream_);
        EXPECT_TRUE(testing::equal(pinned_, bytes_.data(), file_size()));
    }

    Device device_;
    Stream stream_;
    FileSystem fs_;
    std::vector<std::byte> bytes_ = std::vector<std::byte>(file_size());
    std::string path_;
    std::vector<void*> allocated_;
    ReadResult* result_ = nullptr;
    std::byte* out_ = nullptr;
    std::byte* pinned_ = nullptr;
};

TEST_F(GpuTest, files_arrive_byte_for_byte) {
    for (const uint32_t page_size : {4096u, 65536u, 1u << 20}) {
        create(page_size);
        auto file = fs_.open(path_);
        ASSERT_TRUE(file.ok()) << file.status().message();
        const struct {
            uint64_t piece;
            LaunchShape shape;
        } turns[] = {{65536, {{40}, {32}, 0}},
                     {100'003, {{7}, {80}, 0}},
                     {4096, {{64}, {256}, 0}},
                     {3 << 20, {{2}, {512}, 0}}};
        for (const auto& turn : turns) {
            start_read(stream_, file.value(), turn.piece, turn.shape);
            check_read();
            if (HasFailure()) FAIL() << "pages of " << page_size << ", pieces of " << turn.piece;
        }
        EXPECT_TRUE(fs_.close(file.value()).ok());
    }
}

TEST_F(GpuTest, files_arrive_in_blocks_of_1024_threads) {
    create(65536);
    auto file = fs_.open(path_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (const uint64_t piece : {4096u, 100'003u, 1u << 20}) {
        start_read(stream_, file.value(), piece, {{5}, {1024}, 0}, read_whole_by_large_blocks);
        check_read();
    }
    if (!has_gpu()) return;
    // Without a bound of its own the kernel takes more registers: the error says what to do.
    const Status refused = launch(stream_, {{1}, {1024}, 0}, read_whole, fs_.device_handle(),
                                  file.value(), uint64_t{4096}, out_, result_);
    if (refused.ok()) return finish(stream_);
    EXPECT_EQ(refused.error_number(), EINVAL);
    EXPECT_NE(refused.message().find("__launch_bounds__(1024, 1)"), std::string::npos)
        << refused.message();
}

TEST_F(GpuTest, many_more_blocks_than_fit_open_the_file_themselves) {
    create(65536);
    constexpr unsigned kBlocks = 300;
    std::memcpy(pinned_, path_.c_str(), path_.size() + 1);
    auto* path = static_cast<char*>(allocate(4096));
    auto* results = static_cast<int64_t*>(allocate(kBlocks * sizeof(int64_t)));
    ASSERT_TRUE(stream_.copy(path, pinned_, path_.size() + 1).ok());
    ASSERT_TRUE(stream_.fill(results, 0xff, kBlocks * sizeof(int64_t)).ok());
    ASSERT_TRUE(launch(stream_, {{kBlocks}, {64}, 0}, open_and_compare, fs_.device_handle(),
                       static_cast<const char*>(path), results)
                    .ok());
    ASSERT_TRUE(stream_.copy(pinned_, results, kBlocks * sizeof(int64_t)).ok());
    finish(stream_);
    for (unsigned i = 0; i < kBlocks; ++i) {
        EXPECT_EQ(reinterpret_cast<const int64_t*>(pinned_)[i], 0) << "block " << i;
    }
    EXPECT_EQ(fs_.statistics().open_descriptors, 0u);
}

TEST_F(GpuTest, kernels_that_wait_are_served_while_the_host_uses_the_device) {
    create(4096);
    auto file = fs_.open(path_);
    ASSERT_TRUE(file.ok());
    Stream others = make_stream(), eager = make_stream(5);
    auto* values = static_cast<unsigned*>(allocate(8192));  // half for each stream
    std::atomic<bool> done{false};
    start_read(stream_, file.value(), 20'000, {{16}, {64}, 0});
    std::thread user([&] {
        // Grows what a launch needs, so that the driver has every reason to wait for the reader.
        for (unsigned round = 0; !done && round < 200; ++round) {
            Stream& stream = round % 2 == 0 ? others : eager;
            const unsigned count = 64u << round % 8;
            const LaunchShape shape{
                {1 + round % 4}, {32 + 32 * (round % 8)}, count * sizeof(unsigned)};
            unsigned* own = values + 1024 * (round % 2);
            EXPECT_TRUE(launch(stream, shape, use_shared_and_stack, own, count).ok());
            EXPECT_TRUE(stream.fill(own + 64, static_cast<uint8_t>(round), 1000 + round).ok());
            EXPECT_TRUE(stream.copy(own + 512, own + 64, 1000).ok());
        }
    });
    finish(stream_);
    done = true;
    user.join();
    check_read();
    finish(others);
    finish(eager);
}

TEST_F(GpuTest, a_kernel_that_does_not_end_is_seen_and_not_waited_for) {
    const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
    if (blocking != nullptr && *blocking == '1') {
        GTEST_SKIP()
            << "CUDA_LAUNCH_BLOCKING=1: the launch waits for what this test tells it later";
    }
    auto* word = reinterpret_cast<uint64_t*>(pinned_);
    *word = 0;
    ASSERT_TRUE(launch(stream_, {{1}, {1}, 0}, wait_for_word, static_cast<const uint64_t*>(word),
                       uint64_t{7})
                    .ok());
    EXPECT_EQ(stream_.synchronize(std::chrono::milliseconds(50)).error_number(), ETIMEDOUT);
    EXPECT_TRUE(device_.port()->kernels_in_flight());
    __atomic_store_n(word, 7, __ATOMIC_RELEASE);
    finish(stream_);
    EXPECT_FALSE(device_.port()->kernels_in_flight());
}

TEST_F(GpuTest, dead_workers_end_every_wait_within_five_seconds) {
    create(4096);
    auto file = fs_.open(path_);
    ASSERT_TRUE(file.ok());
    auto& service = fs_.system()->service();
    for (unsigned i = 0; i < service.worker_count(); ++i) service.kill_worker(i);
    const auto begin = std::chrono::steady_clock::now();
    start_read(stream_, file.value(), 65536, {{8}, {32}, 0});
    finish(stream_);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
    EXPECT_EQ(fetch(result_).failed, static_cast<unsigned long long>(EOWNERDEAD));
    EXPECT_NE(fs_.abort_cause(), "");
}

TEST_F(GpuTest, a_fault_names_its_kernel) {
    if (!has_gpu())
        GTEST_SKIP() << "no CUDA device: on the CPU backend a wild store ends the program";
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // the context is lost: in a process of its own
    EXPECT_EXIT(
        {
            const Status launched = launch(stream_, {{1}, {1}, 0}, store_nowhere,
                                           reinterpret_cast<unsigned*>(uint64_t{1} << 50));
            const Status done = stream_.synchronize(seconds(20));
            std::fprintf(stderr, "%s", device_.diagnosis().c_str());
            // With CUDA_LAUNCH_BLOCKING=1 the launch says it already.
            const Status& said = launched.ok() ? done : launched;
            std::_Exit(said.error_number() == EFAULT ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "store_nowhere");
}

}  // namespace
}  // namespace penstock::gpu_test
