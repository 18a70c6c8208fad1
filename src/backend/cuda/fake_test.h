// A test on the fake driver: opens it through the environment as a user's program opens the real
// one.
//
// driver_fake.so lies beside the test program; kernels of the target "fake" are host functions of
// it.
#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/driver_fake.h"

namespace penstock::backend::cuda {

// The g++ side of the fake's kernels: only their addresses count here.
inline void fake_add(uint64_t*, uint64_t) { std::abort(); }
inline void fake_until(uint64_t*, uint64_t) { std::abort(); }
inline void fake_faulty(uint64_t*, uint64_t) { std::abort(); }
inline void fake_unloadable(uint64_t*, uint64_t) { std::abort(); }

inline std::string test_folder() {
    char path[PATH_MAX] = "";
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    const std::string whole(path, size < 0 ? 0 : static_cast<size_t>(size));
    return whole.substr(0, whole.rfind('/'));
}

class FakeDriverTest : public testing::Test {
protected:
    using FakeKernel = void (*)(uint64_t*, uint64_t);

    // The folder in which the fake lies under its name as a kernel library.
    static std::string& link() {
        static std::string folder;
        return folder;
    }

    static void SetUpTestSuite() {
        if (!link().empty()) return;
        const std::string library = test_folder() + "/driver_fake.so";
        link() = testing::TempDir() + "/penstock-" + std::to_string(getpid());
        mkdir(link().c_str(), 0700);
        ASSERT_EQ(symlink(library.c_str(), (link() + "/libfake_cuda.so").c_str()), 0);
        setenv("PENSTOCK_LIBCUDA", library.c_str(), 1);
        setenv("PENSTOCK_CUDA_KERNELS", link().c_str(), 1);
        std::atexit([] {
            unlink((link() + "/libfake_cuda.so").c_str());
            rmdir(link().c_str());
        });
    }

    void SetUp() override {
        void* library = dlopen(std::getenv("PENSTOCK_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << dlerror();
        fake_ = reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "penstock_fake_cuda"))();
        reset();
    }

    void TearDown() override {
        device_.reset();
        EXPECT_EQ(fake_->contexts, 0);
        EXPECT_EQ(fake_->second_contexts, 0);
        EXPECT_EQ(fake_->calls_without_context, 0);
        EXPECT_EQ(fake_->overruns, 0) << "pinned memory was written beyond its end";
        EXPECT_EQ(fake_->unsafe_calls, 0) << "a stream capture would have been broken";
    }

    void reset() {
        fake_->call_count = fake_->fail_at = 0;
        fake_->fail_code = 999;
        fake_->hold = fake_->misaligned = fake_->refuse_register = false;
        fake_->fault = fake_->lacking_attribute = 0;
        fake_->device_count = 1;
        fake_->streams = fake_->device_pieces = fake_->pinned_pieces = fake_->registered_pieces = 0;
        fake_->launches = 0;
        fake_->refuse_second_context = fake_->held = false;
        fake_->legacy_busy = fake_->legacy_captured = fake_->stream_captured = false;
        fake_->calls_while_held = fake_->overruns = fake_->unsafe_calls = fake_->legacy_waits = 0;
    }

    void open() {
        auto opened = open_cuda({});
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        device_ = opened.value();
        // The second context is made on another thread: nothing that is counted comes late.
        StreamId copies = 0;
        ASSERT_TRUE(device_->create_copy_stream(&copies).ok());
        ASSERT_TRUE(device_->destroy_stream(copies).ok());
    }

    static LaunchRequest request(FakeKernel kernel, uint64_t* word, uint64_t value,
                                 LaunchShape shape = {}) {
        struct Arguments {
            uint64_t* word;
            uint64_t value;
            void* pointers[2];
        };
        auto arguments = std::make_shared<Arguments>(Arguments{word, value, {}});
        arguments->pointers[0] = &arguments->word;
        arguments->pointers[1] = &arguments->value;
        LaunchRequest made;
        made.shape = shape;
        made.function = reinterpret_cast<const void*>(kernel);
        made.argument_pointers = arguments->pointers;
        made.arguments = arguments;
        return made;
    }

    static Deadline after(std::chrono::milliseconds time) {
        return std::chrono::steady_clock::now() + time;
    }

    FakeCuda* fake_ = nullptr;
    std::shared_ptr<Device> device_;
};

}  // namespace penstock::backend::cuda
