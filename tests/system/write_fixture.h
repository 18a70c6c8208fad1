// What the tests of writing beside slow and faulty storage share: small machines, as the host
// serves a CPU backend (false) or a GPU (true).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "system/machine.h"

namespace penstock::system_test {

using testing::Action;
using testing::Call;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMillisecond = 1'000'000;

class WriteTest : public ::testing::TestWithParam<bool> {
protected:
    void SetUp() override {
        if (on_gpu() && !GetParam()) GTEST_SKIP() << "a GPU is always remote";
    }
    static Shape shape_of(uint64_t frames) {
        Shape shape;
        shape.frames = frames;
        shape.faults = true;
        shape.remote = GetParam();
        shape.helping = !shape.remote;
        return shape;
    }
    // Blocks that run beside each other while storage takes its time.
    static Shape side_by_side(uint64_t frames) {
        Shape shape = shape_of(frames);
        shape.permits = 4;
        shape.helping = false;
        shape.workers = 4;
        return shape;
    }
    static const char* path_of(Machine& machine, const std::string& name) {
        return machine.scratch().text(machine.files().path(name));
    }
};

inline std::string name_of_device(const ::testing::TestParamInfo<bool>& remote) {
    return remote.param ? "remote" : "cpu";
}

}  // namespace penstock::system_test
