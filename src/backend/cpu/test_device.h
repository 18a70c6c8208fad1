// What the tests of the CPU backend share: a device with a stream, and launches straight on the
// port.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "penstock/kernel.h"

namespace penstock::backend::cpu {

// As penstock::launch, but the room's tests do not have the host API's Stream.
template <class... Parameters, class... Arguments>
LaunchRequest request_of(const LaunchShape& shape, void (*kernel)(Parameters...),
                         Arguments&&... arguments) {
    using Packed = kernel_arguments::Pack<Parameters...>;
    auto packed = std::shared_ptr<Packed>(
        new Packed{kernel, {static_cast<Parameters>(std::forward<Arguments>(arguments))...}, {}});
    LaunchRequest request;
    request.shape = shape;
    request.function = reinterpret_cast<const void*>(kernel);
    request.invoke = [](const void* bytes) {
        const auto* pack = static_cast<const Packed*>(bytes);
        std::apply(pack->kernel, pack->values);
    };
    request.arguments = std::move(packed);
    return request;
}

inline Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

class TestDevice {
public:
    explicit TestDevice(CpuOptions options = {.permits = 2}) {
        if (options.memory_size == 0) options.memory_size = 64 << 20;
        auto opened = open_cpu(options);
        EXPECT_TRUE(opened.ok()) << opened.status().message();
        device_ = opened.value();
        EXPECT_TRUE(device_->create_stream(0, &stream_).ok());
    }

    Device* operator->() const { return device_.get(); }
    [[nodiscard]] StreamId stream() const { return stream_; }

    template <class... Parameters, class... Arguments>
    Status start(StreamId stream, const LaunchShape& shape, void (*kernel)(Parameters...),
                 Arguments&&... arguments) {
        return device_->launch(stream,
                               request_of(shape, kernel, std::forward<Arguments>(arguments)...));
    }
    // Launches and waits.
    template <class... Parameters, class... Arguments>
    Status run(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
        Status status = start(stream_, shape, kernel, std::forward<Arguments>(arguments)...);
        return status.ok() ? device_->synchronize(stream_, soon()) : status;
    }
    // Zeroed device memory for `count` values.
    template <class T>
    T* array(size_t count) {
        void* pointer = nullptr;
        EXPECT_TRUE(device_->allocate(count * sizeof(T), Memory::kDevice, &pointer).ok());
        return static_cast<T*>(pointer);
    }
    void close() { device_.reset(); }

private:
    std::shared_ptr<Device> device_;
    StreamId stream_ = 0;
};

}  // namespace penstock::backend::cpu

#define PENSTOCK_EXPECT_OK(expression)                                  \
    do {                                                                \
        ::penstock::Status penstock_status = (expression);              \
        EXPECT_TRUE(penstock_status.ok()) << penstock_status.message(); \
    } while (false)
