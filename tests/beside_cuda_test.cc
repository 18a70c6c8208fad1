// Goal: kernels that read files end, with right bytes and at no less than half their speed,
// whatever another thread of the program asks of the driver meanwhile; and what the program does is
// not disturbed. On a CUDA device only (`make gpu`): the stand-in driver has its own tests.
#include "tests/beside_cuda_test.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "penstock/file.h"
#include "penstock/file_system.h"
#include "testing/remote_device.h"

namespace penstock::beside_cuda {
namespace {

using Clock = std::chrono::steady_clock;
using Pointer = unsigned long long;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The driver as the program calls it, by itself: nothing of it goes through Penstock.
class Driver {
public:
    template <class... Arguments>
    int call(const char* name, Arguments... arguments) const {
        auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
        if (function == nullptr) return -1;
        return function(arguments...);
    }
    [[nodiscard]] bool start() {
        library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        return library_ != nullptr && call("cuInit", 0u) == 0 &&
               call("cuDevicePrimaryCtxRetain", &context_, 0) == 0 && use() == 0;
    }
    int use() const { return call("cuCtxSetCurrent", context_); }

private:
    void* library_ = nullptr;
    void* context_ = nullptr;
};

// One that does nothing, for a module that is loaded while kernels run.
std::string module_text(int number) {
    return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing" +
           std::to_string(number) + "()\n{\n    ret;\n}\n";
}

struct Case {
    const char* name;
    // Called again and again while the kernel runs; `turn` counts from 0.
    std::function<void(const Driver&, int turn)> call;
};

std::vector<Pointer> pieces;  // of device memory, allocated before
std::vector<void*> pinned;    // likewise
Pointer kept = 0;             // of the device, and never freed
std::vector<std::vector<char>> pageable(64, std::vector<char>(1 << 16));
constexpr int kPieces = 64;

std::vector<Case> cases() {
    static void* stream = nullptr;
    static void* capturing = nullptr;
    return {
        {"nothing", [](const Driver&, int) {}},
        {"cuMemFree",
         [](const Driver& d, int i) {
             if (i >= kPieces) return;
             EXPECT_EQ(d.call("cuMemFree_v2", pieces[i]), 0);
         }},
        {"cuMemFreeHost",
         [](const Driver& d, int i) {
             if (i >= kPieces) return;
             EXPECT_EQ(d.call("cuMemFreeHost", pinned[i]), 0);
         }},
        {"cuMemHostAlloc",
         [](const Driver& d, int i) {
             void* out = nullptr;
             if (i >= 30) return;
             EXPECT_EQ(d.call("cuMemHostAlloc", &out, size_t{3000}, 0u), 0);
         }},
        {"cuMemHostRegister",
         [](const Driver& d, int i) {
             if (i >= 60) return;
             EXPECT_EQ(d.call("cuMemHostRegister_v2", static_cast<void*>(pageable[i].data()),
                              pageable[i].size(), 0u),
                       0);
         }},
        {"cuMemAllocManaged",
         [](const Driver& d, int i) {
             Pointer out = 0;
             if (i >= 30) return;
             EXPECT_EQ(d.call("cuMemAllocManaged", &out, size_t{1} << 16, 1u), 0);
         }},
        {"cuMemAlloc",
         [](const Driver& d, int i) {
             Pointer out = 0;
             if (i >= 100) return;
             EXPECT_EQ(d.call("cuMemAlloc_v2", &out, size_t{3} << 20), 0);
         }},
        {"cuMemAllocAsync",
         [](const Driver& d, int i) {
             Pointer out = 0;
             if (i == 0) d.call("cuStreamCreate", &stream, 1u);
             if (i >= 100) return;
             EXPECT_EQ(d.call("cuMemAllocAsync", &out, size_t{1} << 20, stream), 0);
             EXPECT_EQ(d.call("cuMemFreeAsync", out, stream), 0);
         }},
        {"first launch of a kernel",
         [](const Driver& d, int i) {
             if (i >= 5) return;
             void *module = nullptr, *function = nullptr;
             const std::string text = module_text(i);
             EXPECT_EQ(d.call("cuModuleLoadData", &module, static_cast<const void*>(text.c_str())),
                       0);
             EXPECT_EQ(d.call("cuModuleGetFunction", &function, module,
                              ("nothing" + std::to_string(i)).c_str()),
                       0);
             EXPECT_EQ(d.call("cuLaunchKernel", function, 1u, 1u, 1u, 1u, 1u, 1u, 0u,
                              static_cast<void*>(nullptr), static_cast<void**>(nullptr),
                              static_cast<void**>(nullptr)),
                       0);
         }},
        {"cuCtxSynchronize",
         [](const Driver& d, int i) {
             if (i != 0) return;
             EXPECT_EQ(d.call("cuCtxSynchronize"), 0);
         }},
        {"copies of pageable memory",
         [](const Driver& d, int i) {
             if (i >= 200) return;
             EXPECT_EQ(d.call("cuMemcpyHtoD_v2", kept, static_cast<const void*>(pageable[0].data()),
                              size_t{1} << 16),
                       0);
         }},
        {"a stream capture",
         [](const Driver& d, int i) {
             if (i >= 20) return;
             void* graph = nullptr;
             if (i == 0) d.call("cuStreamCreate", &capturing, 1u);
             constexpr int kGlobal = 0;
             EXPECT_EQ(d.call("cuStreamBeginCapture_v2", capturing, kGlobal), 0);
             std::this_thread::sleep_for(std::chrono::milliseconds(5));
             EXPECT_EQ(d.call("cuMemsetD8Async", kept, static_cast<unsigned char>(1), size_t{4096},
                              capturing),
                       0);
             EXPECT_EQ(d.call("cuStreamEndCapture", capturing, &graph), 0) << "it was broken";
             EXPECT_NE(graph, nullptr);
         }},
        {"a context that is made and destroyed",
         [](const Driver& d, int i) {
             void* context = nullptr;
             if (i >= 2) return;
             EXPECT_EQ(d.call("cuCtxCreate_v2", &context, 0u, 0), 0);
             EXPECT_EQ(d.call("cuCtxDestroy_v2", context), 0);
             d.use();
         }},
    };
}

class BesideCuda : public ::testing::Test {
protected:
    static constexpr unsigned kPiece = 64 << 10, kRounds = 2;

    void SetUp() override {
        // The program has CUDA running before Penstock is used at all.
        has_cuda_ = driver_.start();
        size_ = has_cuda_ ? uint64_t{2} << 30 : 64 << 20;
        const char* const folder = std::getenv("BESIDE_FOLDER");
        path_ = std::string(folder == nullptr ? "/tmp" : folder) + "/penstock-beside-" +
                std::to_string(getpid());
        std::vector<unsigned> words(1 << 20);
        std::ofstream file(path_, std::ios::binary);
        for (uint64_t at = 0; at < size_; at += words.size() * sizeof(unsigned)) {
            for (size_t i = 0; i < words.size(); ++i) words[i] = word_of(at / sizeof(unsigned) + i);
            file.write(reinterpret_cast<const char*>(words.data()),
                       static_cast<std::streamsize>(words.size() * sizeof(unsigned)));
        }
        file.close();
        if (!has_cuda_) {
            auto cpu = backend::open_cpu({.permits = 4, .memory_size = 256 << 20});
            ASSERT_TRUE(cpu.ok()) << cpu.status().message();
            device_ = Device(std::make_shared<testing::RemoteDevice>(cpu.value()));
            return;
        }
        pieces.resize(kPieces);
        pinned.resize(kPieces);
        for (Pointer& piece : pieces)
            ASSERT_EQ(driver_.call("cuMemAlloc_v2", &piece, size_t{1} << 16), 0);
        ASSERT_EQ(driver_.call("cuMemAlloc_v2", &kept, size_t{1} << 16), 0);
        for (void*& piece : pinned)
            ASSERT_EQ(driver_.call("cuMemHostAlloc", &piece, size_t{3000}, 0u), 0);
        auto device = Device::open("cuda:0");
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = device.value();
    }
    void TearDown() override {
        if (!path_.empty()) unlink(path_.c_str());
    }

    // Bytes a second; ends the program where a kernel does not end.
    double run(const Case& one, const FileSystemOptions& options) {
        auto fs = FileSystem::create(device_, options);
        EXPECT_TRUE(fs.ok()) << fs.status().message();
        auto stream = Stream::create(device_);
        auto file = fs.value().open(path_);
        EXPECT_TRUE(file.ok()) << file.status().message();
        void* const scratch = device_.allocate(size_t{blocks()} * kPiece).value();
        auto* const result = static_cast<VerifyResult*>(device_.allocate_pinned(4096).value());
        *result = {};
        const auto began = Clock::now();
        EXPECT_TRUE(launch(stream.value(), {blocks(), threads()}, verify_whole,
                           fs.value().device_handle(), file.value(), size_, kPiece, kRounds,
                           static_cast<unsigned*>(scratch), result)
                        .ok());
        std::atomic<bool> ended{false};
        std::thread other([&] {
            if (has_cuda_) driver_.use();
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            for (int turn = 0; !ended && turn < 1000; ++turn) {
                one.call(driver_, turn);
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
        const Status done = stream.value().synchronize(std::chrono::seconds(20));
        const double took = seconds_since(began);
        ended = true;
        if (done.error_number() == ETIMEDOUT) {
            std::printf("%s: THE KERNEL DID NOT END; %s\n", one.name,
                        fs.value().abort_cause().c_str());
            std::fflush(stdout);
            _exit(3);
        }
        other.join();
        EXPECT_TRUE(done.ok()) << one.name << ": " << done.message() << device_.diagnosis();
        EXPECT_EQ(result->error, 0) << one.name << ": " << fs.value().abort_cause();
        EXPECT_EQ(result->words, kRounds * size_ / sizeof(unsigned)) << one.name;
        EXPECT_EQ(result->wrong, 0u) << one.name;
        error_ = result->error;
        EXPECT_TRUE(fs.value().close(file.value()).ok());
        device_.free(scratch);
        device_.free(result);
        return static_cast<double>(kRounds * size_) / took;
    }

    [[nodiscard]] unsigned blocks() const { return has_cuda_ ? 264 : 8; }
    [[nodiscard]] unsigned threads() const { return has_cuda_ ? 256 : 32; }

    Driver driver_;
    bool has_cuda_ = false;
    uint64_t size_ = 0;
    Device device_;
    std::string path_;
    long long error_ = 0;
};

// Figures only: what a second context costs copies.
TEST_F(BesideCuda, copies_of_both_contexts) {
    if (!has_cuda_) GTEST_SKIP() << "no CUDA driver here";
    FileSystemOptions options;
    for (int round = 0; round < 3; ++round) {
        for (const uint64_t cache : {size_ / 4, 2 * size_}) {
            for (const bool second : {true, false}) {
                DeviceOptions wanted;
                wanted.second_context = second;
                device_ = Device::open("cuda:0", wanted).value();
                options.cache_size = cache;
                const double rate = run(cases().front(), options);
                std::printf("%s context, cache of %4llu MiB: %5.1f GB/s\n",
                            second ? "second" : "own   ",
                            static_cast<unsigned long long>(cache >> 20), rate / 1e9);
            }
        }
    }
}

TEST_F(BesideCuda, kernels_end_with_right_bytes_whatever_the_program_calls) {
    FileSystemOptions options;
    options.cache_size = size_ / 4;
    double alone = 0;
    for (const Case& one : cases()) {
        double best = 0;
        for (int round = 0; round < (alone == 0 ? 3 : 1); ++round)
            best = std::max(best, run(one, options));
        if (alone == 0) alone = best;
        if (!has_cuda_) break;  // nobody else is on the device
        std::printf("beside %-38s %5.1f GB/s, %.2f\n", one.name, best / 1e9, best / alone);
        std::fflush(stdout);
    }
}

// In the program's context, as without room for another one: what is held up ends, and says why.
TEST_F(BesideCuda, without_a_second_context_held_kernels_end_with_the_cause) {
    if (!has_cuda_) GTEST_SKIP() << "no CUDA driver here";
    DeviceOptions options;
    options.second_context = false;
    device_ = Device::open("cuda:0", options).value();
    FileSystemOptions small;
    small.cache_size = 512 << 20;
    auto fs = FileSystem::create(device_, small);
    ASSERT_TRUE(fs.ok());
    auto stream = Stream::create(device_);
    auto file = fs.value().open(path_);
    void* const scratch = device_.allocate(size_t{blocks()} * kPiece).value();
    auto* const result = static_cast<VerifyResult*>(device_.allocate_pinned(4096).value());
    *result = {};
    const auto began = Clock::now();
    ASSERT_TRUE(launch(stream.value(), {blocks(), threads()}, verify_whole,
                       fs.value().device_handle(), file.value(), size_, kPiece, 20u,
                       static_cast<unsigned*>(scratch), result)
                    .ok());
    std::thread other([&] {
        driver_.use();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        driver_.call("cuMemFree_v2", pieces[0]);
    });
    const Status done = stream.value().synchronize(std::chrono::seconds(20));
    if (done.error_number() == ETIMEDOUT) _exit(3);
    other.join();
    std::printf("ended after %.1f s with %lld: %s\n", seconds_since(began), result->error,
                fs.value().abort_cause().c_str());
    EXPECT_LT(seconds_since(began), 6);
    EXPECT_TRUE(result->error == 0 || !fs.value().abort_cause().empty());
}

// What it costs to begin, in a program that has CUDA running. Figures only.
TEST_F(BesideCuda, set_up_costs) {
    if (!has_cuda_) GTEST_SKIP() << "no CUDA driver here";
    device_ = Device();
    for (int round = 0; round < 4; ++round) {
        const auto began = Clock::now();
        auto device = Device::open("cuda:0");
        ASSERT_TRUE(device.ok());
        std::printf("device %.1f ms\n", 1e3 * seconds_since(began));
        FileSystemOptions options;
        options.cache_size = size_t{1} << 30;
        for (int system = 0; system < 4; ++system) {
            const auto start = Clock::now();
            double made = 0;
            {
                auto fs = FileSystem::create(device.value(), options);
                ASSERT_TRUE(fs.ok());
                made = seconds_since(start);
            }
            std::printf("file system %.1f ms, destroyed after %.1f ms\n", 1e3 * made,
                        1e3 * seconds_since(start));
        }
    }
}

}  // namespace
}  // namespace penstock::beside_cuda
