// A device, a file system and a folder for the tests of workloads, and one checked run. Only tests
// include this.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "preemption/workload.h"

namespace penstock::workloads {

class WorkloadTest : public testing::Test {
protected:
    void SetUp() override {
        const char* named = std::getenv("PENSTOCK_DEVICE");
        auto device = Device::open(named != nullptr ? named : "cpu:2", {.memory_size = 256 << 20});
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = device.value();
        // Workers serve, as where waiting is studied. A GPU has many places, each of which may need
        // a page.
        const size_t cache_size = std::max(size_t{16} << 20,
                                           device_.permits() * (size_t{256} << 10));
        auto files = FileSystem::create(device_, {.cache_size = cache_size, .helping = false});
        ASSERT_TRUE(files.ok()) << files.status().message();
        files_ = std::move(files.value());
        std::string folder = std::string(std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp") +
                             "/penstock-preemption-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        site_ = {&device_, &files_, folder};
        auto stream = Stream::create(device_);
        ASSERT_TRUE(stream.ok());
        stream_ = std::move(stream.value());
    }
    void TearDown() override {
        if (!site_.folder.empty()) (void)std::system(("rm -rf '" + site_.folder + "'").c_str());
    }

    // Runs `part` of a workload, and expects that each result is that of the reference.
    void expect_right(Workload& workload, Part part) {
        EXPECT_TRUE(workload.prepare(stream_, part).ok());
        const Status launched = workload.launch(stream_, part);
        EXPECT_TRUE(launched.ok()) << launched.message();
        const auto wrong = workload.count_wrong(stream_, part);
        ASSERT_TRUE(wrong.ok()) << wrong.status().message() << " " << device_.diagnosis();
        EXPECT_EQ(wrong.value(), 0u);
    }
    // Makes a workload and runs each part of it, the whole twice: every run starts anew.
    void expect_all_right(Result<std::unique_ptr<Workload>> made) {
        ASSERT_TRUE(made.ok()) << made.status().message();
        for (const Part part : {Part::kAll, Part::kReads, Part::kCompute, Part::kAll})
            expect_right(*made.value(), part);
    }

    Device device_;
    FileSystem files_;
    Site site_;
    Stream stream_;
};

}  // namespace penstock::workloads
