// Goal: whichever call of the driver fails, and with whatever code, the scenario ends with a Status
// and an errno or with right bytes, nothing hangs, and all that was taken is given back. Also: what
// opening refuses, and why.
#include <cstring>

#include "backend/cuda/driver.h"
#include "backend/cuda/errors.h"
#include "backend/cuda/fake_test.h"

namespace penstock::backend::cuda {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class CudaFaultsTest : public FakeDriverTest {
protected:
    // Opens a device, moves bytes there and back with a kernel between, frees and closes.
    Status scenario() {
        auto opened = open_cuda({.second_context = false});
        if (!opened.ok()) return opened.status();
        std::shared_ptr<Device> device = opened.value();
        StreamId stream = 0;
        void *memory = nullptr, *pinned = nullptr, *large = nullptr;
        Status status = device->create_stream(1, &stream);
        if (status.ok()) status = device->allocate(4096, Memory::kDevice, &memory);
        if (status.ok()) status = device->allocate(4096, Memory::kPinned, &pinned);
        if (status.ok()) status = device->allocate(2 << 20, Memory::kPinned, &large);
        auto* word = static_cast<uint64_t*>(pinned);
        auto* there = static_cast<uint64_t*>(memory);
        if (status.ok()) {
            word[0] = 5;
            status = device->copy(stream, there, word, 8);
        }
        if (status.ok()) status = device->launch(stream, request(fake_add, there, 2));
        if (status.ok()) status = device->copy(stream, word + 1, there, 8);
        if (status.ok()) status = device->write_value(stream, word + 2, 3);
        if (status.ok()) status = device->announce(stream, word + 3, 4);
        device->poll();
        if (status.ok()) status = device->synchronize(stream, after(milliseconds(5000)));
        if (status.ok()) {
            EXPECT_EQ(word[1], 7u);
            EXPECT_EQ(word[2], 3u);
            EXPECT_EQ(word[3], 4u);
        }
        if (status.ok()) status = device->destroy_stream(stream);
        device->free(memory);
        device->free(pinned);
        device->free(large);
        if (!status.ok() && fake_->fault == 0) {
            EXPECT_NE(device->diagnosis(), "") << status.message();
        }
        return status;
    }
};

TEST_F(CudaFaultsTest, any_call_may_fail) {
    ASSERT_TRUE(scenario().ok());  // the driver is loaded now
    const int64_t calls = fake_->call_count;
    const std::pair<int, int64_t> turns[] = {
        {2, 1}, {700, 3}, {999, 7}};  // code, every so many-th call
    for (const auto& [code, step] : turns) {
        int64_t failed = 0;
        for (int64_t n = 1; n <= calls + 20; n += step) {
            reset();
            fake_->fail_at = n;
            fake_->fail_code = code;
            const Status status = scenario();
            if (!status.ok()) {
                ++failed;
                EXPECT_EQ(status.error_number(), status_of(code, "").error_number())
                    << "call " << n;
                EXPECT_STRNE(status.text(), "");
            }
            EXPECT_EQ(fake_->contexts, 0) << "call " << n << " code " << code;
        }
        // The rest: calls that free, the pinning that has another way, kernels that the scenario
        // does not launch.
        EXPECT_GT(failed, calls / 3 / step) << "code " << code;
    }
}

TEST_F(CudaFaultsTest, the_context_may_be_lost_at_any_call) {
    ASSERT_TRUE(scenario().ok());
    const int64_t calls = fake_->call_count;
    for (int64_t n = 0; n < calls; n += 3) {
        reset();
        fake_->fail_at = n;
        fake_->fail_code = 719;
        static_cast<void>(scenario());
        fake_->fault = 719;
        EXPECT_EQ(scenario().error_number(), EFAULT);
        EXPECT_EQ(fake_->contexts, 0) << "call " << n;
    }
}

// Else bytes for it would be put there as into host memory, which ends the program.
TEST_F(CudaFaultsTest, memory_of_a_lost_device_is_not_taken_for_host_memory) {
    open();
    void *memory = nullptr, *pinned = nullptr;
    ASSERT_TRUE(device_->allocate(2 << 20, Memory::kDevice, &memory).ok());
    ASSERT_TRUE(device_->allocate(4096, Memory::kPinned, &pinned).ok());
    auto* const last = static_cast<char*>(memory) + (2 << 20) - 1;
    for (const int lost : {-1, 0}) {
        fake_->lost_device = lost;
        EXPECT_FALSE(device_->host_can_address(memory));
        EXPECT_FALSE(device_->host_can_address(last));
        EXPECT_TRUE(device_->host_can_address(pinned));
        EXPECT_TRUE(device_->host_can_address(&memory));
    }
    fake_->lost_device = -1;
    device_->free(memory);
    device_->free(pinned);
}

TEST_F(CudaFaultsTest, devices_that_cannot_serve_are_refused) {
    const int needed[] = {kUnifiedAddressing, kCanMapHostMemory, kCan64BitStreamWrites,
                          kCapabilityMajor};
    for (const int attribute : needed) {
        fake_->lacking_attribute = attribute;
        EXPECT_EQ(open_cuda({.second_context = false}).status().error_number(), ENOTSUP)
            << attribute;
    }
    fake_->lacking_attribute = 0;
    EXPECT_TRUE(open_cuda({.ordinal = 0, .need_kernels = true}).ok())
        << "some of the kernels can run";
    setenv("PENSTOCK_CUDA_KERNELS", "/nonexistent", 1);
    EXPECT_EQ(open_cuda({.ordinal = 0, .need_kernels = true}).status().error_number(), ENOENT);
    EXPECT_TRUE(open_cuda({.second_context = false}).ok()) << "good for memory and copies";
    setenv("PENSTOCK_CUDA_KERNELS", link().c_str(), 1);
    EXPECT_EQ(open_cuda({.ordinal = 1, .need_kernels = false}).status().error_number(), ENODEV);
    EXPECT_EQ(open_cuda({.ordinal = -1, .need_kernels = false}).status().error_number(), ENODEV);
    fake_->device_count = 0;
    EXPECT_EQ(open_cuda({.second_context = false}).status().error_number(), ENODEV);
    std::string why;
    EXPECT_TRUE(list_cuda(&why).empty());
    EXPECT_EQ(why, "the CUDA driver knows no device");
}

TEST_F(CudaFaultsTest, a_missing_or_old_driver_is_named) {
    std::string why;
    EXPECT_EQ(load_driver("/nonexistent/libcuda.so.1", &why).status().error_number(), ENODEV);
    EXPECT_THAT(why, HasSubstr("/nonexistent/libcuda.so.1"));
    EXPECT_EQ(load_driver("libm.so.6", &why).status().error_number(), ENODEV);
    EXPECT_THAT(why, HasSubstr("libm.so.6 has no cuInit"));
    fake_->fail_at = 1;
    fake_->fail_code = 802;
    auto refused = load_driver(std::getenv("PENSTOCK_LIBCUDA"), &why);
    EXPECT_EQ(refused.status().error_number(), ENODEV);
    EXPECT_THAT(refused.status().text(), HasSubstr("not ready"));
    EXPECT_THAT(why, HasSubstr("does not start: CUDA error 802"));
}

TEST(CudaErrorsTest, every_code_has_an_errno_and_a_text) {
    EXPECT_TRUE(status_of(0, "x").ok());
    for (int code = 1; code < 1000; ++code) {
        const Status status = status_of(code, "cuCall");
        EXPECT_GT(status.error_number(), 0) << code;
        EXPECT_STRNE(status.text(), "") << code;
        const int fault = code == 702 ? ETIMEDOUT : EFAULT;
        EXPECT_TRUE(!is_kernel_fault(code) || status.error_number() == fault) << code;
    }
}

}  // namespace
}  // namespace penstock::backend::cuda
