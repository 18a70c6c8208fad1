// Goal: "auto" takes a CUDA device that cannot run this program's kernels only if none is to be
// run. Otherwise it takes the CPU, with the reason.
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "penstock/device.h"

namespace penstock {
namespace {

// The driver without a GPU that the backend's tests use.
std::string stand_in() {
    char path[PATH_MAX] = "";
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    const std::string whole(path, size < 0 ? 0 : static_cast<size_t>(size));
    return whole.substr(0, whole.rfind('/')) + "/driver_fake.so";
}

// In a process of its own, since a process opens one driver. Ends it.
[[noreturn]] void choose(const std::string& driver, bool runs_kernels) {
    setenv("PENSTOCK_LIBCUDA", driver.c_str(), 1);
    setenv("PENSTOCK_CUDA_KERNELS", "/nonexistent", 1);
    DeviceOptions options;
    options.runs_kernels = runs_kernels;
    const auto device = Device::open("auto", options);
    if (!device.ok()) {
        std::fprintf(stderr, "error %s\n", device.status().message().c_str());
    } else {
        std::fprintf(stderr, "%s, %s\n", device.value().name().c_str(),
                     device.value().why_not_gpu().c_str());
    }
    std::_Exit(0);
}

TEST(DeviceChoiceTest, HostReadsNeedNoKernels) {
    const std::string driver = stand_in();
    if (access(driver.c_str(), R_OK) != 0) GTEST_SKIP() << driver << " is not built";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(choose(driver, false), ::testing::ExitedWithCode(0), "^cuda:0 .*, \n");
    // Where there is a GPU, this program's kernels are beside it and load, whatever the driver.
    if (std::getenv("PENSTOCK_DEVICE") != nullptr) GTEST_SKIP() << "there is a GPU";
    EXPECT_EXIT(choose(driver, true), ::testing::ExitedWithCode(0), "^cpu:.*, .*kernel");
}

}  // namespace
}  // namespace penstock
