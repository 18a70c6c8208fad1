// Goal: a transfer of device memory begins when the work that the program had queued is over, and
// not before. A transfer of host memory, or one without a stream to wait for, does not ask.
#include <atomic>
#include <cstring>
#include <thread>

#include "backend/backend.h"
#include "file/host_read_fixture.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;

// A device on which the program's streams hold work until the test ends it.
class BusyDevice final : public testing::RemoteDevice {
public:
    using testing::RemoteDevice::RemoteDevice;
    Status queued_work(std::span<const uintptr_t> streams,
                       std::shared_ptr<backend::QueuedWork>* out) override {
        asked.assign(streams.begin(), streams.end());
        ++ask_count;
        if (!refusal.ok()) return refusal;
        *out = over.load() ? nullptr : std::make_shared<Work>(over);
        return {};
    }

    std::atomic<bool> over{false};
    std::atomic<int> ask_count{0};
    std::vector<uintptr_t> asked;
    Status refusal;

private:
    struct Work final : backend::QueuedWork {
        explicit Work(std::atomic<bool>& is_over) : over_(is_over) {}
        bool over() override { return over_.load(); }
        std::atomic<bool>& over_;
    };
};

class QueuedWorkTest : public HostReadTest {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        auto cpu = backend::open_cpu({.permits = 1, .memory_size = 256 << 20});
        ASSERT_TRUE(cpu.ok()) << cpu.status().message();
        cpu_ = cpu.value();
        busy_ = std::make_shared<BusyDevice>(cpu_);
        device_ = Device(busy_);
        FileOptions options;
        options.open_flags = O_RDWR;
        auto file = File::open(path_, device_, options);
        ASSERT_TRUE(file.ok()) << file.status().message();
        file_ = file.value();
        there_ = static_cast<std::byte*>(device_.allocate(kSize).value());
    }
    void TearDown() override {
        busy_->over = true;
        file_ = File();
        device_.free(there_);
        HostReadTest::TearDown();
    }
    // Device memory is the arena's: only the port says that the host cannot address it.
    [[nodiscard]] bool has_arrived() const {
        return std::memcmp(there_, bytes_.data(), kSize) == 0;
    }

    static constexpr size_t kSize = 3 << 20;
    std::shared_ptr<backend::Device> cpu_;
    std::shared_ptr<BusyDevice> busy_;
    Device device_;
    File file_;
    std::byte* there_ = nullptr;
};

TEST_F(QueuedWorkTest, a_read_that_is_waited_for_begins_behind_it) {
    std::atomic<bool> returned{false};
    std::thread reader([&] {
        EXPECT_EQ(file_.read(there_, kSize, 0).value(), kSize);
        returned = true;
    });
    while (busy_->ask_count == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_FALSE(returned);
    EXPECT_FALSE(has_arrived()) << "bytes went where a kernel may still write";
    busy_->over = true;
    reader.join();
    EXPECT_TRUE(has_arrived());
    EXPECT_EQ(busy_->asked, std::vector<uintptr_t>{0});
}

TEST_F(QueuedWorkTest, a_future_does_not_keep_its_caller) {
    ReadOptions options;
    options.owner_stream = 4096;
    auto future = file_.pread(there_, kSize, 0, options);
    ASSERT_TRUE(future.ok()) << future.status().message();
    EXPECT_EQ(busy_->asked, (std::vector<uintptr_t>{0, 4096}));
    EXPECT_EQ(future.value().wait(milliseconds(30)).error_number(), ETIMEDOUT);
    EXPECT_FALSE(has_arrived());
    busy_->over = true;
    EXPECT_EQ(future.value().result().value(), kSize);
    EXPECT_TRUE(has_arrived());
}

TEST_F(QueuedWorkTest, a_future_may_be_cancelled_and_its_file_closed_meanwhile) {
    auto future = file_.pread(there_, kSize, 0);
    ASSERT_TRUE(future.ok());
    EXPECT_TRUE(future.value().cancel());
    auto other = file_.pread(there_, kSize, 0);
    file_ = File();
    busy_->over = true;
    EXPECT_EQ(other.value().result().value(), kSize);
    EXPECT_EQ(future.value().result().status().error_number(), ECANCELED);
}

TEST_F(QueuedWorkTest, what_a_kernel_computes_is_what_is_written) {
    std::memset(there_, 1, kSize);
    auto future = file_.pwrite(there_, kSize, 0);
    ASSERT_TRUE(future.ok());
    std::this_thread::sleep_for(milliseconds(20));
    std::memset(there_, 2, kSize);  // the end of the kernel
    busy_->over = true;
    EXPECT_EQ(future.value().result().value(), kSize);
    std::vector<char> now(kSize);
    ASSERT_EQ(pread(descriptor_, now.data(), kSize, 0), static_cast<ssize_t>(kSize));
    EXPECT_EQ(now, std::vector<char>(kSize, 2));
}

TEST_F(QueuedWorkTest, a_stream_that_is_named_takes_the_place_of_the_others) {
    busy_->over = true;
    ReadOptions options;
    options.stream = 77;
    options.owner_stream = 4096;
    EXPECT_EQ(file_.read(there_, kSize, 0, options).value(), kSize);
    EXPECT_EQ(busy_->asked, std::vector<uintptr_t>{77});
}

TEST_F(QueuedWorkTest, nothing_is_asked_for_no_stream_or_host_memory) {
    ReadOptions options;
    options.stream = ReadOptions::kNoStream;
    EXPECT_EQ(file_.read(there_, kSize, 0, options).value(), kSize);
    EXPECT_EQ(file_.pread(there_, kSize, 0, options).value().result().value(), kSize);
    EXPECT_EQ(file_.read(memory_, kSize, 0).value(), kSize);
    EXPECT_EQ(busy_->ask_count, 0);
}

TEST_F(QueuedWorkTest, a_stream_that_cannot_be_waited_for_is_an_error) {
    busy_->refusal = Status(EBUSY, "stream", "it is being captured");
    EXPECT_EQ(file_.read(there_, kSize, 0).status().error_number(), EBUSY);
    EXPECT_EQ(file_.pread(there_, kSize, 0).status().error_number(), EBUSY);
    EXPECT_FALSE(has_arrived());
}

}  // namespace
}  // namespace penstock
