// Goal: on a driver that does what CUDA's says, device.cc does what backend.h says: order, bytes,
// alignment, deadlines, errors of kernels and of launches, what is in flight; and nothing is left
// behind.
#include <atomic>
#include <cstring>
#include <thread>

#include "backend/cuda/fake_test.h"

namespace penstock::backend::cuda {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

void absent_kernel(uint64_t*, uint64_t) {}
void stray_kernel(uint64_t*, uint64_t) {}
void unregistered_kernel(uint64_t*, uint64_t) {}
void late_kernel(uint64_t*, uint64_t) {}

const void* address(void (*kernel)(uint64_t*, uint64_t)) {
    return reinterpret_cast<const void*>(kernel);
}

KernelRegistration registrations[] = {
    {"fake/add", address(fake_add)},         {"fake/until", address(fake_until)},
    {"fake/faulty", address(fake_faulty)},   {"fake/unloadable", address(fake_unloadable)},
    {"fake/absent", address(absent_kernel)}, {"nowhere/stray<int, 3>", address(stray_kernel)}};

class CudaDeviceTest : public FakeDriverTest {
protected:
    void SetUp() override {
        FakeDriverTest::SetUp();
        open();
        ASSERT_TRUE(device_->create_stream(0, &stream_).ok());
        void* memory = nullptr;
        ASSERT_TRUE(device_->allocate(4096, Memory::kPinned, &memory).ok());
        word_ = static_cast<uint64_t*>(memory);
    }

    StreamId stream_ = 0;
    uint64_t* word_ = nullptr;
};

// What the driver does with it only a GPU shows (tests/system/queued_copy_test.cc).
TEST_F(CudaDeviceTest, the_driver_is_asked_for_all_its_copy_queues) {
    const char* const asked = std::getenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS");
    ASSERT_NE(asked, nullptr);
    EXPECT_STRNE(asked, "");
}

TEST_F(CudaDeviceTest, says_what_the_device_is) {
    const Properties& is = device_->properties();
    EXPECT_EQ(is.name, "cuda:0 Fake 1");
    EXPECT_FALSE(is.host_addressable);
    EXPECT_EQ(is.permit_count, 4u * 32);
    EXPECT_EQ(is.threads_per_block_max, 1024u);
    EXPECT_EQ(is.shared_size_max, 232448u);
    EXPECT_EQ(is.memory_size, size_t{1} << 30);
    EXPECT_EQ(device_->free_memory(), size_t{1} << 29);
    std::string why = "unset";
    EXPECT_EQ(list_cuda(&why),
              std::vector<std::string>{"cuda:0 Fake 1, 1.0 GiB, compute capability 9.0, 4 SMs"});
    EXPECT_EQ(why, "");
}

TEST_F(CudaDeviceTest, device_memory_tells_its_device_also_to_threads_without_a_context) {
    void* memory = nullptr;
    void* pinned = nullptr;
    ASSERT_TRUE(device_->allocate(4096, Memory::kDevice, &memory).ok());
    ASSERT_TRUE(device_->allocate(4096, Memory::kPinned, &pinned).ok());
    char local = 0;
    std::thread([&] {
        const auto there = cuda_device_of(static_cast<std::byte*>(memory) + 4095);
        EXPECT_TRUE(there.ok() && there.value() == 0) << there.status().message();
        for (const void* host : {static_cast<const void*>(pinned), static_cast<const void*>(&local),
                                 static_cast<const void*>(nullptr)})
            EXPECT_EQ(cuda_device_of(host).status().error_number(), ENODEV);
    }).join();
    device_->free(pinned);
    device_->free(memory);
    EXPECT_EQ(cuda_device_of(memory).status().error_number(), ENODEV);
}

TEST_F(CudaDeviceTest, memory_is_zeroed_and_aligned_whatever_the_driver_gives) {
    for (const bool awkward : {false, true}) {
        fake_->misaligned = fake_->refuse_register = awkward;
        for (const Memory memory : {Memory::kDevice, Memory::kPinned}) {
            for (const size_t size : {size_t{1}, size_t{4096}, size_t{5000}, (size_t{2} << 20) - 1,
                                      size_t{2} << 20, (size_t{4} << 20) + 1}) {
                void* pointer = nullptr;
                ASSERT_TRUE(device_->allocate(size, memory, &pointer).ok());
                const uintptr_t alignment = size >= (size_t{2} << 20) ? 2 << 20 : 4096;
                EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % alignment, 0u) << size;
                const std::string zeros(size, '\0');  // the fake's device memory is host memory
                EXPECT_EQ(std::memcmp(pointer, zeros.data(), size), 0) << size;
                std::memset(pointer, 1, size);
                device_->free(pointer);
            }
        }
    }
    EXPECT_EQ(fake_->device_pieces, 0);
    EXPECT_LE(fake_->registered_pieces, 2);  // kept for the next of that size
    EXPECT_EQ(fake_->pinned_pieces, 1);      // word_
    device_->free(nullptr);
}

TEST_F(CudaDeviceTest, too_much_or_no_memory_is_an_error) {
    void* pointer = nullptr;
    EXPECT_EQ(device_->allocate(0, Memory::kDevice, &pointer).error_number(), EINVAL);
    EXPECT_EQ(device_->allocate(size_t{2} << 30, Memory::kDevice, &pointer).error_number(), ENOMEM);
    EXPECT_THAT(device_->diagnosis(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT_EQ(device_->allocate(SIZE_MAX, Memory::kPinned, &pointer).error_number(), ENOMEM);
}

TEST_F(CudaDeviceTest, a_stream_runs_in_order) {
    void* memory = nullptr;
    ASSERT_TRUE(device_->allocate(4096, Memory::kDevice, &memory).ok());
    auto* there = static_cast<uint64_t*>(memory);
    fake_->hold = true;
    word_[0] = 5;
    EXPECT_TRUE(device_->copy(stream_, there, word_, 8).ok());
    EXPECT_TRUE(device_->launch(stream_, request(fake_add, there, 7)).ok());
    fake_->hold = false;
    EXPECT_TRUE(device_->copy(stream_, word_ + 1, there, 8).ok());
    fake_->hold = true;
    EXPECT_TRUE(device_->fill(stream_, there, 0xff, 4).ok());
    EXPECT_TRUE(device_->copy(stream_, word_ + 2, there, 8).ok());
    EXPECT_TRUE(device_->write_value(stream_, word_ + 3, 99).ok());
    EXPECT_TRUE(device_->copy(stream_, nullptr, nullptr, 0).ok());
    EXPECT_TRUE(device_->fill(stream_, nullptr, 0, 0).ok());
    bool idle = true;
    EXPECT_TRUE(device_->query(stream_, &idle).ok());
    EXPECT_FALSE(idle);
    EXPECT_EQ(word_[3], 0u);
    fake_->hold = false;
    EXPECT_TRUE(device_->synchronize(stream_, after(milliseconds(1000))).ok());
    EXPECT_TRUE(device_->query(stream_, &idle).ok());
    EXPECT_TRUE(idle);
    EXPECT_EQ(word_[1], 12u);
    EXPECT_EQ(word_[2], 0xffffffffu);
    EXPECT_EQ(word_[3], 99u);
    EXPECT_EQ(device_
                  ->write_value(stream_,
                                reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(word_) + 4), 1)
                  .error_number(),
              EINVAL);
}

TEST_F(CudaDeviceTest, announcements_come_behind_what_lay_before_them_and_in_order) {
    fake_->hold = true;
    for (uint64_t i = 1; i <= 3; ++i) {
        word_[10 + i] = i;
        EXPECT_TRUE(device_->copy(stream_, word_, word_ + 10 + i, 8).ok());
        EXPECT_TRUE(device_->announce(stream_, word_ + 1, i).ok());
    }
    bool idle = true;
    EXPECT_TRUE(device_->query(stream_, &idle).ok());
    EXPECT_FALSE(idle);
    EXPECT_EQ(word_[1], 0u);
    fake_->hold = false;
    EXPECT_TRUE(device_->synchronize(stream_, after(milliseconds(1000))).ok());
    EXPECT_EQ(word_[0], 3u);
    EXPECT_EQ(word_[1], 3u);
    EXPECT_EQ(
        device_
            ->announce(stream_, reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(word_) + 4), 1)
            .error_number(),
        EINVAL);
}

// In the queue of copies it would stand before those that the kernel waits for.
TEST_F(CudaDeviceTest, a_copy_is_not_queued_behind_a_kernel) {
    for (const bool many : {false, true}) {
        word_[0] = 0;
        ASSERT_TRUE(device_->launch(stream_, request(fake_until, word_, 1)).ok());
        std::atomic<bool> queued{false};
        std::thread copier([&] {
            const std::vector<CopyPart> parts(many ? 2 : 1, {word_ + 2, word_ + 1, 8});
            EXPECT_TRUE(device_->copy_all(stream_, parts).ok());
            queued = true;
        });
        StreamId other = 0;
        ASSERT_TRUE(device_->create_stream(0, &other).ok());
        EXPECT_TRUE(device_->copy(other, word_ + 3, word_ + 1, 8).ok()) << "no kernel is before it";
        EXPECT_TRUE(device_->synchronize(other, after(milliseconds(5000))).ok());
        EXPECT_FALSE(queued);
        __atomic_store_n(word_, 1, __ATOMIC_RELEASE);
        copier.join();
        EXPECT_TRUE(device_->synchronize(stream_, after(milliseconds(5000))).ok());
        EXPECT_TRUE(device_->destroy_stream(other).ok());
    }
    // Nor does it wait for a device that is lost.
    word_[0] = 0;
    ASSERT_TRUE(device_->launch(stream_, request(fake_until, word_, 1)).ok());
    device_->abort({EIO, "test", "lost"});
    EXPECT_EQ(device_->copy(stream_, word_ + 2, word_ + 1, 8).error_number(), EIO);
    __atomic_store_n(word_, 1, __ATOMIC_RELEASE);
}

TEST_F(CudaDeviceTest, few_copies_are_one_call) {
    constexpr size_t kParts = 300;
    StreamId stream = 0;
    ASSERT_TRUE(device_->create_stream(0, &stream).ok());
    void *memory = nullptr, *pinned = nullptr;
    ASSERT_TRUE(device_->allocate(kParts * 16, Memory::kDevice, &memory).ok());
    ASSERT_TRUE(device_->allocate(2 * kParts * 16, Memory::kPinned, &pinned).ok());
    auto* from = static_cast<uint64_t*>(pinned);
    auto* there = static_cast<uint64_t*>(memory);
    uint64_t* back = from + 2 * kParts;
    std::vector<CopyPart> parts, all = {{back, there, kParts * 16}};
    for (size_t i = 0; i < kParts; ++i) {  // every other word, backwards
        from[i] = 1000 + i;
        parts.push_back({there + 2 * (kParts - 1 - i), from + i, 8});
    }
    // Few are one call; many are not, as drivers break on them.
    const int64_t before = fake_->call_count;
    EXPECT_TRUE(device_->copy_all(stream, std::span(parts).first(16)).ok());
    EXPECT_LT(fake_->call_count - before, 8);  // with the context made current
    EXPECT_TRUE(device_->copy_all(stream, parts).ok());
    EXPECT_GE(fake_->call_count - before, static_cast<int64_t>(kParts));
    EXPECT_TRUE(device_->copy_all(stream, all).ok());
    EXPECT_TRUE(device_->copy_all(stream, {}).ok());
    ASSERT_TRUE(device_->synchronize(stream, after(milliseconds(5000))).ok());
    for (size_t i = 0; i < kParts; ++i) {
        EXPECT_EQ(back[2 * (kParts - 1 - i)], 1000 + i);
        EXPECT_EQ(back[2 * i + 1], 0u);
    }
    fake_->fault = 700;
    EXPECT_FALSE(device_->copy_all(stream, parts).ok());
    fake_->fault = 0;
    device_->free(memory);
    device_->free(pinned);
}

TEST_F(CudaDeviceTest, streams_that_are_gone_are_refused_and_reused) {
    EXPECT_EQ(device_->launch(0, request(fake_add, word_, 1)).error_number(), EINVAL);
    EXPECT_EQ(device_->copy(77, word_, word_, 8).error_number(), EINVAL);
    StreamId first = 0, second = 0;
    ASSERT_TRUE(device_->create_stream(3, &first).ok());
    const int64_t made = fake_->streams;
    EXPECT_TRUE(device_->destroy_stream(first).ok());
    EXPECT_EQ(device_->destroy_stream(first).error_number(), EINVAL);
    ASSERT_TRUE(device_->create_stream(3, &second).ok());
    EXPECT_EQ(fake_->streams, made);
    EXPECT_NE(first, second);
    bool idle = false;
    EXPECT_EQ(device_->query(first, &idle).error_number(), EINVAL);
    EXPECT_TRUE(device_->query(second, &idle).ok());
    std::vector<StreamId> all;
    StreamId id = 0;
    while (device_->create_stream(1000, &id).ok()) all.push_back(id);
    EXPECT_EQ(all.size(),
              256u - 4);  // the device's own, the second context's, stream_ and `second`
    EXPECT_EQ(device_->create_stream(0, &id).error_number(), EMFILE);
}

TEST_F(CudaDeviceTest, a_wait_ends_at_its_deadline) {
    ASSERT_TRUE(device_->launch(stream_, request(fake_until, word_, 1)).ok());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(device_->synchronize(stream_, after(milliseconds(30))).error_number(), ETIMEDOUT);
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, milliseconds(30));
    EXPECT_LT(took, milliseconds(2000));
    word_[0] = 1;
    EXPECT_TRUE(device_->synchronize(stream_, after(milliseconds(1000))).ok());
}

TEST_F(CudaDeviceTest, kernels_are_in_flight_until_they_end) {
    EXPECT_FALSE(device_->kernels_in_flight());
    fake_->hold = true;
    ASSERT_TRUE(device_->copy(stream_, word_ + 1, word_, 8).ok());
    EXPECT_FALSE(device_->kernels_in_flight()) << "a copy is no kernel";
    fake_->hold = false;
    ASSERT_TRUE(device_->launch(stream_, request(fake_until, word_, 1)).ok());
    EXPECT_TRUE(device_->kernels_in_flight());
    __atomic_store_n(word_, 1, __ATOMIC_RELEASE);
    device_->poll();
    EXPECT_FALSE(device_->kernels_in_flight());
}

TEST_F(CudaDeviceTest, memory_freed_under_a_running_kernel_is_given_back_after_it) {
    void* memory = nullptr;
    ASSERT_TRUE(device_->allocate(4096, Memory::kDevice, &memory).ok());
    ASSERT_TRUE(device_->launch(stream_, request(fake_until, word_, 1)).ok());
    device_->free(memory);
    EXPECT_EQ(fake_->device_pieces, 1);
    __atomic_store_n(word_, 1, __ATOMIC_RELEASE);
    device_->free(nullptr);
    EXPECT_EQ(fake_->device_pieces, 0);
}

TEST_F(CudaDeviceTest, a_kernels_fault_is_named_and_stays) {
    StreamId other = 0;
    ASSERT_TRUE(device_->create_stream(0, &other).ok());
    fake_->hold = true;
    ASSERT_TRUE(device_->launch(stream_, request(fake_add, word_, 1)).ok());
    ASSERT_TRUE(device_->launch(stream_, request(fake_faulty, word_, 1)).ok());
    fake_->hold = false;
    const Status faulted = device_->synchronize(stream_, after(milliseconds(1000)));
    EXPECT_EQ(faulted.error_number(), EFAULT);
    EXPECT_THAT(faulted.message(), HasSubstr("a kernel touched memory that it may not: "));
    EXPECT_THAT(faulted.message(), HasSubstr(device_->diagnosis()));
    EXPECT_THAT(device_->diagnosis(),
                HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access"));
    EXPECT_THAT(device_->diagnosis(), HasSubstr("fake/add, fake/faulty"));
    const std::string first = device_->diagnosis();
    EXPECT_EQ(device_->synchronize(other, after(milliseconds(1000))).error_number(), EFAULT);
    EXPECT_EQ(device_->launch(other, request(fake_add, word_, 1)).error_number(), EFAULT);
    EXPECT_FALSE(device_->kernels_in_flight());
    EXPECT_EQ(device_->diagnosis(), first);
}

TEST_F(CudaDeviceTest, launches_that_cannot_be_say_why) {
    EXPECT_EQ(device_->launch(stream_, request(unregistered_kernel, word_, 1)).error_number(),
              EINVAL);

    EXPECT_EQ(device_->launch(stream_, request(fake_unloadable, word_, 1)).error_number(), ENOEXEC);
    EXPECT_THAT(device_->diagnosis(), HasSubstr("fake/unloadable"));
    EXPECT_THAT(device_->diagnosis(), HasSubstr("cudaErrorNoKernelImageForDevice"));

    const Status absent = device_->launch(stream_, request(absent_kernel, word_, 1));
    EXPECT_EQ(absent.error_number(), ENOENT);
    EXPECT_THAT(absent.message(), HasSubstr("has no kernel fake/absent"));
    EXPECT_THAT(device_->diagnosis(), HasSubstr("has no kernel fake/absent"));

    EXPECT_EQ(device_->launch(stream_, request(stray_kernel, word_, 1)).error_number(), ENOENT);
    EXPECT_THAT(device_->diagnosis(), HasSubstr("libnowhere_cuda.so was not found; looked for "));
    EXPECT_THAT(device_->diagnosis(), HasSubstr(test_folder() + "/libnowhere_cuda.so"));

    const LaunchShape wrong[] = {
        {{0}, {1}, 0},       {{1}, {0}, 0},    {{1, 65536}, {1}, 0},     {{1}, {1, 1, 65}, 0},
        {{1}, {1024, 2}, 0}, {{1}, {1025}, 0}, {{1}, {1}, 232448 - 1023}};
    for (const LaunchShape& shape : wrong) {
        EXPECT_EQ(device_->launch(stream_, request(fake_add, word_, 1, shape)).error_number(),
                  EINVAL)
            << &shape - wrong;
    }
    const Status wide = device_->launch(stream_, request(fake_until, word_, 0, {{1}, {264}, 0}));
    EXPECT_EQ(wide.error_number(), EINVAL);
    EXPECT_THAT(wide.message(),
                HasSubstr("fake/until takes 32 registers a thread, so a block has 256 threads at "
                          "most, not 264; declare it __launch_bounds__(264, 1), or give "
                          "penstock_add_kernels() MAX_REGISTERS 248"));
    EXPECT_EQ(fake_->launches, 0);
    EXPECT_TRUE(
        device_->launch(stream_, request(fake_add, word_, 1, {{1, 65535}, {1024}, 232448 - 1024}))
            .ok());
}

TEST_F(CudaDeviceTest, a_kernel_registered_late_loads_only_when_nothing_runs) {
    static KernelRegistration late{"fake/late", address(late_kernel)};
    ASSERT_TRUE(device_->launch(stream_, request(fake_until, word_, 1)).ok());
    EXPECT_EQ(device_->launch(stream_, request(late_kernel, word_, 1)).error_number(), EBUSY);
    __atomic_store_n(word_, 1, __ATOMIC_RELEASE);
    // Loaded now, and found to be missing in the library.
    EXPECT_EQ(device_->launch(stream_, request(late_kernel, word_, 1)).error_number(), ENOENT);
}

TEST_F(CudaDeviceTest, a_launch_past_the_limit_waits_for_room) {
    fake_->hold = true;
    for (int i = 0; i < 512; ++i)
        ASSERT_TRUE(device_->launch(stream_, request(fake_add, word_, 1)).ok());
    std::atomic<bool> launched{false};
    std::thread launcher([&] {
        EXPECT_TRUE(device_->launch(stream_, request(fake_add, word_, 1)).ok());
        launched = true;
    });
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_FALSE(launched);
    EXPECT_TRUE(device_->kernels_in_flight()) << "who serves the kernels is not held up";
    StreamId other = 0;
    ASSERT_TRUE(device_->create_stream(0, &other).ok());
    EXPECT_TRUE(device_->copy(other, word_ + 1, word_ + 1, 8).ok());
    fake_->hold = false;
    launcher.join();
    EXPECT_TRUE(device_->destroy_stream(other).ok());
    EXPECT_TRUE(device_->synchronize(stream_, after(milliseconds(1000))).ok());
    EXPECT_EQ(word_[0], 513u);
}

TEST_F(CudaDeviceTest, an_abort_ends_launches_and_waits_with_its_cause) {
    fake_->hold = true;
    for (int i = 0; i < 512; ++i)
        ASSERT_TRUE(device_->launch(stream_, request(fake_add, word_, 1)).ok());
    std::thread launcher([&] {
        EXPECT_EQ(device_->launch(stream_, request(fake_add, word_, 1)).error_number(), ESTALE);
    });
    std::this_thread::sleep_for(milliseconds(5));
    device_->abort({ESTALE, "service", "a worker died"});
    device_->abort({EIO, "service", "another cause"});
    launcher.join();
    EXPECT_EQ(device_->launch(stream_, request(fake_add, word_, 1)).error_number(), ESTALE);
    EXPECT_EQ(device_->synchronize(stream_, after(milliseconds(5))).error_number(), ESTALE);
    fake_->hold = false;
    EXPECT_EQ(device_->synchronize(stream_, after(milliseconds(1000))).error_number(), ESTALE);
}

TEST_F(CudaDeviceTest, a_sleeper_wakes_by_notify_launch_or_limit) {
    device_->wait_changed(word_, 0, milliseconds(1));
    word_[0] = 1;
    device_->wait_changed(word_, 0, std::chrono::hours(1));  // has changed: does not sleep
    for (const bool by_launch : {false, true}) {
        std::atomic<bool> awake{false};
        std::thread sleeper([&] {
            device_->wait_changed(word_, 1, std::chrono::hours(1));
            awake = true;
        });
        while (!awake) {  // again: it may not have been asleep yet
            if (by_launch) {
                EXPECT_TRUE(device_->launch(stream_, request(fake_add, word_ + 1, 1)).ok());
            } else {
                device_->notify(word_);
            }
            std::this_thread::sleep_for(milliseconds(1));
        }
        sleeper.join();
    }
    ASSERT_TRUE(device_->launch(stream_, request(fake_until, word_, 7)).ok());
    const auto begin = std::chrono::steady_clock::now();
    device_->wait_changed(word_, 1, std::chrono::hours(1));  // a kernel runs: looks again soon
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
    __atomic_store_n(word_, 7, __ATOMIC_RELEASE);
}

TEST_F(CudaDeviceTest, threads_may_share_a_device) {
    constexpr int kThreads = 4, kRounds = 200;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            StreamId mine = 0;
            ASSERT_TRUE(device_->create_stream(t, &mine).ok());
            void* memory = nullptr;
            ASSERT_TRUE(device_->allocate(8, Memory::kDevice, &memory).ok());
            auto* there = static_cast<uint64_t*>(memory);
            for (int i = 0; i < kRounds; ++i) {
                ASSERT_TRUE(device_->launch(mine, request(fake_add, there, 1)).ok());
                if (i % 16 == 0) device_->poll();
            }
            ASSERT_TRUE(device_->copy(mine, word_ + 8 + t, there, 8).ok());
            ASSERT_TRUE(device_->synchronize(mine, after(milliseconds(5000))).ok());
            EXPECT_EQ(word_[8 + t], uint64_t{kRounds});
            device_->free(memory);
            EXPECT_TRUE(device_->destroy_stream(mine).ok());
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaDeviceTest, the_threads_own_context_stays) {
    void* library = dlopen(std::getenv("PENSTOCK_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
    auto set = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxSetCurrent"));
    auto get = reinterpret_cast<int (*)(void**)>(dlsym(library, "cuCtxGetCurrent"));
    int users_context = 0;
    void* now = nullptr;
    ASSERT_EQ(set(&users_context), 0);
    EXPECT_TRUE(device_->launch(stream_, request(fake_add, word_, 1)).ok());
    EXPECT_TRUE(device_->synchronize(stream_, after(milliseconds(1000))).ok());
    ASSERT_EQ(get(&now), 0);
    EXPECT_EQ(now, &users_context);
    set(nullptr);
}

}  // namespace
}  // namespace penstock::backend::cuda
