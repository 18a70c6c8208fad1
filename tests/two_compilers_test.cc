// Goal: the two halves of a target's kernels live in one process without touching each other: the
// program runs g++'s functions while nvcc's library is open, every kernel is found in both by its
// key, the library offers one symbol, and without a GPU it answers with an error instead of failing
// to load.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "backend/cuda/kernel_library.h"
#include "penstock/device.h"
#include "penstock/kernel.h"

template <class T, int kTimes>
void scale(T* values, T factor);
void count_blocks(unsigned* counter);

namespace penstock {
namespace {

constexpr const char* kKeys[] = {"two_compilers_test/scale<float, 3>",
                                 "two_compilers_test/scale<int, 1>",
                                 "two_compilers_test/count_blocks", "two_compilers_test/use_files"};

// What the kernels give on the CPU backend.
void run_on_the_cpu() {
    auto device = Device::open("cpu:2");
    ASSERT_TRUE(device.ok()) << device.status().message();
    auto stream = Stream::create(device.value());
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    auto memory = device.value().allocate(4096);
    ASSERT_TRUE(memory.ok());
    auto* values = static_cast<float*>(memory.value());
    auto* counter = reinterpret_cast<unsigned*>(values + 64);
    for (int i = 0; i < 64; ++i) values[i] = static_cast<float>(i);
    ASSERT_TRUE(launch(stream.value(), {{1}, {64}, 0}, scale<float, 3>, values, 2.0f).ok());
    ASSERT_TRUE(launch(stream.value(), {{7}, {2}, 0}, count_blocks, counter).ok());
    ASSERT_TRUE(stream.value().synchronize().ok());
    for (int i = 0; i < 64; ++i) EXPECT_EQ(values[i], static_cast<float>(63 - i) * 8);
    EXPECT_EQ(*counter, 7u);
    device.value().free(memory.value());
}

class TwoCompilersTest : public testing::Test {
protected:
    void SetUp() override {
        const KernelEntry* entry = find_kernel_by_key(kKeys[0]);
        ASSERT_NE(entry, nullptr);
        std::string detail;
        auto opened = backend::cuda::open_kernel_library(*entry, &detail);
        if (opened.status().error_number() == ENOENT) {
            GTEST_SKIP() << "this build has no nvcc half: " << detail;
        }
        ASSERT_TRUE(opened.ok()) << detail;
        library_ = opened.value();
    }

    const CudaLibrary* library_ = nullptr;
};

TEST(TwoCompilersCpuTest, every_kernel_is_registered) {
    for (const char* key : kKeys) {
        const KernelEntry* entry = find_kernel_by_key(key);
        ASSERT_NE(entry, nullptr) << key;
        EXPECT_EQ(find_kernel(entry->function), entry) << key;
    }
    run_on_the_cpu();
}

TEST_F(TwoCompilersTest, both_halves_know_every_kernel_and_share_no_address) {
    for (const char* key : kKeys) {
        const void* stub = backend::cuda::find_stub(*library_, key);
        ASSERT_NE(stub, nullptr) << key;
        Dl_info info{};
        ASSERT_NE(dladdr(stub, &info), 0);
        EXPECT_THAT(info.dli_fname, testing::EndsWith("/libtwo_compilers_test_cuda.so")) << key;
        EXPECT_NE(find_kernel_by_key(key)->function, stub) << key;
    }
    int count = 0;
    for (const CudaStub* stub = library_->first; stub != nullptr; stub = stub->next) ++count;
    EXPECT_EQ(count, 4);
}

TEST_F(TwoCompilersTest, the_cpus_kernels_run_while_the_library_is_open) { run_on_the_cpu(); }

TEST_F(TwoCompilersTest, the_library_offers_one_symbol) {
    Dl_info info{};
    ASSERT_NE(dladdr(library_, &info), 0);
    const std::string command = std::string("nm -D --defined-only '") + info.dli_fname + "'";
    FILE* names = popen(command.c_str(), "r");
    ASSERT_NE(names, nullptr);
    std::string text;
    for (int c = std::fgetc(names); c != EOF; c = std::fgetc(names)) text += static_cast<char>(c);
    ASSERT_EQ(pclose(names), 0);
    EXPECT_THAT(text, testing::MatchesRegex("[0-9a-f]+ T penstock_cuda_library\n"));
}

TEST_F(TwoCompilersTest, without_a_gpu_it_says_so) {
    CudaKernelAttributes attributes;
    const int code = library_->prepare(library_->first->stub, 48 << 10, &attributes);
    EXPECT_STRNE(library_->error_name(code), "");
    EXPECT_TRUE(code != 0 || attributes.registers_per_thread > 0) << library_->error_text(code);
}

}  // namespace
}  // namespace penstock
