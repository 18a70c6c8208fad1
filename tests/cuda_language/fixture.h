// A device of the CPU backend with a stream, and what its tests of the language have in common.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cuda_language/kernels.h"
#include "penstock/device.h"

namespace penstock::cuda_language {

// What a kernel is to write at the place of its index, within `relative` of the value.
struct Wanted {
    const char* what;
    double value;
    double relative = 0;
};

class CudaLanguage : public testing::Test {
protected:
    void SetUp() override {
        auto device = Device::open("cpu:2");
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = device.value();
        auto stream = Stream::create(device_);
        ASSERT_TRUE(stream.ok()) << stream.status().message();
        stream_ = std::move(stream.value());
    }
    void TearDown() override {
        stream_ = Stream();
        for (void* memory : memory_) device_.free(memory);
    }

    template <class T>
    T* array(size_t count) {
        auto memory = device_.allocate(count * sizeof(T));
        EXPECT_TRUE(memory.ok()) << memory.status().message();
        memory_.push_back(memory.value());
        return static_cast<T*>(memory.value());
    }

    template <class... Parameters, class... Arguments>
    Status run(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
        const Status launched = launch(stream_, shape, kernel, arguments...);
        return launched.ok() ? stream_.synchronize(std::chrono::seconds(60)) : launched;
    }

    // Runs one GPU thread, whose last parameter is where its results go, and compares.
    template <class... Parameters, class... Arguments>
    void check(const std::vector<Wanted>& wanted, void (*kernel)(Parameters...),
               Arguments... arguments) {
        auto* out = array<double>(kResultsMax);
        for (int i = 0; i < kResultsMax; ++i) out[i] = kUntouched;
        const Status done = run({1, 1}, kernel, arguments..., out);
        ASSERT_TRUE(done.ok()) << done.message();
        for (size_t i = 0; i < wanted.size(); ++i) {
            const Wanted& want = wanted[i];
            EXPECT_LE(std::fabs(out[i] - want.value), std::fabs(want.value) * want.relative)
                << i << ": " << want.what << ": " << out[i] << " instead of " << want.value;
        }
        EXPECT_EQ(out[wanted.size()], kUntouched) << "a result that no test looks at";
    }

    static constexpr double kUntouched = -123456.75;

    Device device_;
    Stream stream_;
    std::vector<void*> memory_;
};

}  // namespace penstock::cuda_language
