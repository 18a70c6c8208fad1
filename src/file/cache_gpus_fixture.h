// A file cache on GPUs: each test runs in a process of its own, with the stand-in for the driver.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/driver_fake.h"
#include "file/file_cache_fixture.h"

namespace penstock {

inline std::string stand_in() {
    char path[PATH_MAX] = "";
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    const std::string whole(path, size < 0 ? 0 : static_cast<size_t>(size));
    return whole.substr(0, whole.rfind('/')) + "/driver_fake.so";
}

class CacheGpusTest : public FileCacheTest {
protected:
    static constexpr uint64_t kNoTime = 1'000'000;  // ms: nothing is written back by itself

    // Runs `body` in a process that has this many GPUs, and ends it.
    void in_process(int gpus, const std::function<void()>& body) {
        if (access(stand_in().c_str(), R_OK) != 0) GTEST_SKIP() << stand_in() << " is not built";
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        EXPECT_EXIT(
            {
                alarm(300);
                begin(gpus);
                body();
                cache_ = FileCache();
                std::_Exit(tell_failures());
            },
            ::testing::ExitedWithCode(0), "");
    }
    // gtest tells nothing of failures in such a process. Returns how many there are.
    static int tell_failures() {
        const auto* const
            result = ::testing::UnitTest::GetInstance()->current_test_info()->result();
        int failures = 0;
        for (int i = 0; i < result->total_part_count(); ++i) {
            const ::testing::TestPartResult& part = result->GetTestPartResult(i);
            if (!part.failed()) continue;
            std::fprintf(stderr, "line %d: %s\n", part.line_number(), part.message());
            ++failures;
        }
        return std::min(failures, 1);
    }
    void begin(int gpus) {
        setenv("PENSTOCK_LIBCUDA", stand_in().c_str(), 1);
        void* library = dlopen(stand_in().c_str(), RTLD_NOW | RTLD_LOCAL);
        using Find = backend::cuda::FakeCuda* (*)();
        fake_ = reinterpret_cast<Find>(dlsym(library, "penstock_fake_cuda"))();
        fake_->device_count = gpus;
        fake_->unreachable = true;  // as memory of a real one: a touch by the host ends the process
        for (int i = 0; i < gpus; ++i)
            gpus_.push_back(
                Device::open("cuda:" + std::to_string(i), {.runs_kernels = false}).value());
    }
    void make_on_gpus(uint64_t slabs, FileCacheOptions options = {}) {
        options.devices = gpus_;
        options.size = slabs * kCacheSize;
        options.dirty_age = std::chrono::milliseconds(kNoTime);
        make(std::move(options));
    }
    // Waits until the cache has so many bytes of memory. Returns whether that took no longer.
    [[nodiscard]] bool shrinks_to(uint64_t size, std::chrono::milliseconds limit) const {
        const auto end = std::chrono::steady_clock::now() + limit;
        while (cache_.statistics().size != size)
            if (std::chrono::steady_clock::now() > end)
                return false;
            else
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return true;
    }
    static std::vector<std::byte> random_bytes(uint64_t size, uint64_t seed) {
        std::vector<std::byte> bytes(size);
        testing::fill_randomly(bytes.data(), size, seed);
        return bytes;
    }

    backend::cuda::FakeCuda* fake_ = nullptr;
    std::vector<Device> gpus_;
};

}  // namespace penstock
