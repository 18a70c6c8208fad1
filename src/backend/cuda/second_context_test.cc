// Goal: what kernels wait for does not depend on the program's context, whatever the program calls;
// where it must, the call that does not return is seen. Pinned memory is ours to its last byte.
#include <cstring>
#include <thread>

#include "backend/cuda/fake_test.h"
#include "base/clock.h"

namespace penstock::backend::cuda {
namespace {

class SecondContextTest : public FakeDriverTest {
protected:
    void* allocate(size_t size, Memory memory) {
        void* out = nullptr;
        EXPECT_TRUE(device_->allocate(size, memory, &out).ok());
        return out;
    }
    // A kernel that ends when `*word` is 1.
    StreamId launch_waiting_kernel(uint64_t* word) {
        StreamId stream = 0;
        EXPECT_TRUE(device_->create_stream(0, &stream).ok());
        EXPECT_TRUE(device_->launch(stream, request(fake_until, word, 1)).ok());
        return stream;
    }
};

TEST_F(SecondContextTest, copies_for_kernels_go_on_while_the_programs_context_is_held) {
    open();
    auto* word = static_cast<uint64_t*>(allocate(4096, Memory::kPinned));
    auto* from = static_cast<char*>(allocate(4096, Memory::kPinned));
    auto* to = static_cast<char*>(allocate(3 << 20, Memory::kServed));
    StreamId copies = 0;
    ASSERT_TRUE(device_->create_copy_stream(&copies).ok());
    const StreamId stream = launch_waiting_kernel(word);
    fake_->held = true;

    std::memset(from, 0x77, 4096);
    ASSERT_TRUE(device_->copy(copies, to + 12345, from, 4096).ok());
    const CopyPart parts[] = {{to, from, 8}, {to + (2 << 20), from, 100}};
    ASSERT_TRUE(device_->copy_all(copies, parts).ok());
    // Short copies of every form: words, a single word, odd sizes.
    for (const size_t size : {1, 2, 3, 8, 9, 16, 24, 56, 100, 67 * 8, 71, 127 * 8, 1021, 4000}) {
        std::memset(to, 0, 4096);
        ASSERT_TRUE(device_->copy(copies, to, from, size).ok());
        ASSERT_TRUE(device_->synchronize(copies, after(std::chrono::seconds(10))).ok());
        EXPECT_EQ(std::memcmp(to, from, size), 0) << size;
        EXPECT_EQ(to[size], 0) << size;
    }
    ASSERT_TRUE(device_->write_value(copies, word + 1, 9).ok());
    ASSERT_TRUE(device_->announce(copies, word + 2, 10).ok());
    EXPECT_TRUE(device_->kernels_seen_in_flight());
    ASSERT_TRUE(device_->synchronize(copies, after(std::chrono::seconds(10))).ok());

    EXPECT_EQ(fake_->calls_while_held, 0) << "a call went to the context that is held";
    EXPECT_EQ(std::memcmp(to + 12345, from, 4096), 0);
    EXPECT_EQ(std::memcmp(to + (2 << 20), from, 100), 0);
    EXPECT_EQ(word[1], 9u);
    EXPECT_EQ(word[2], 10u);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    EXPECT_TRUE(device_->synchronize(stream, after(std::chrono::seconds(10))).ok());
    fake_->held = false;
    for (void* memory :
         {static_cast<void*>(word), static_cast<void*>(from), static_cast<void*>(to)})
        device_->free(memory);
    EXPECT_TRUE(device_->destroy_stream(copies).ok());
}

TEST_F(SecondContextTest, without_one_a_copy_that_is_held_up_is_seen) {
    fake_->refuse_second_context = true;
    open();
    auto* word = static_cast<uint64_t*>(allocate(4096, Memory::kPinned));
    auto* to = static_cast<char*>(allocate(4096, Memory::kServed));
    StreamId copies = 0;
    ASSERT_TRUE(device_->create_copy_stream(&copies).ok());
    const StreamId stream = launch_waiting_kernel(word);
    EXPECT_EQ(device_->longest_copy_call_ns(base::monotonic_ns()), 0u);
    fake_->held = true;
    std::thread copier([&] { EXPECT_TRUE(device_->copy(copies, to, word, 8).ok()); });
    while (device_->longest_copy_call_ns(base::monotonic_ns()) < 1'000'000)
        std::this_thread::yield();
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    copier.join();
    fake_->held = false;
    EXPECT_EQ(device_->longest_copy_call_ns(base::monotonic_ns()), 0u);
    EXPECT_TRUE(device_->synchronize(stream, after(std::chrono::seconds(10))).ok());
}

TEST_F(SecondContextTest, none_is_made_where_none_is_wanted) {
    CudaOptions options;
    options.second_context = false;
    device_ = open_cuda(options).value();
    StreamId copies = 0;
    ASSERT_TRUE(device_->create_copy_stream(&copies).ok());
    EXPECT_EQ(fake_->second_contexts, 0);
}

TEST_F(SecondContextTest, host_reads_alone_make_none) {
    CudaOptions options;
    options.runs_kernels = false;
    device_ = open_cuda(options).value();
    EXPECT_EQ(fake_->second_contexts, 0);
    StreamId copies = 0;
    ASSERT_TRUE(device_->create_copy_stream(&copies).ok());  // a file system makes it late
    EXPECT_EQ(fake_->second_contexts, 1);
}

TEST_F(SecondContextTest, every_failure_on_the_way_to_it_leaves_nothing_behind) {
    for (int64_t n = 1;; ++n) {
        reset();
        fake_->fail_at = n;
        if (auto opened = open_cuda({}); opened.ok()) {
            StreamId copies = 0;
            device_ = opened.value();
            static_cast<void>(device_->create_copy_stream(&copies));
        }
        const bool reached = fake_->call_count >= n;
        device_.reset();
        ASSERT_EQ(fake_->second_contexts, 0) << "call " << n;
        ASSERT_EQ(fake_->contexts, 0) << "call " << n;
        if (!reached) break;
    }
}

TEST_F(SecondContextTest, pinned_memory_ends_where_it_was_asked_to) {
    fake_->refuse_register = true;
    open();
    for (const size_t size :
         {size_t{1}, size_t{4096}, size_t{8200}, size_t{1} << 20, size_t{5} << 20}) {
        void* memory = allocate(size, Memory::kPinned);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
        std::memset(memory, 1, size);
        device_->free(memory);
        EXPECT_EQ(fake_->overruns, 0) << size;
    }
}

}  // namespace
}  // namespace penstock::backend::cuda
