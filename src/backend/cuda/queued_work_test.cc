// Goal: what a program has queued is found on each kind of stream, and looking for it disturbs no
// stream capture.
#include <array>
#include <thread>

#include "backend/cuda/driver_api.h"
#include "backend/cuda/fake_test.h"

namespace penstock::backend::cuda {
namespace {

class QueuedWorkTest : public FakeDriverTest {
protected:
    void SetUp() override {
        FakeDriverTest::SetUp();
        open();
    }
    std::shared_ptr<QueuedWork> find(std::array<uintptr_t, 2> streams, size_t count = 1) {
        std::shared_ptr<QueuedWork> work;
        status_ = device_->queued_work(std::span(streams).first(count), &work);
        return work;
    }
    Status status_;
};

TEST_F(QueuedWorkTest, nothing_is_queued) {
    EXPECT_EQ(find({0}), nullptr);
    EXPECT_TRUE(status_.ok());
    EXPECT_EQ(fake_->legacy_waits, 0);
}

TEST_F(QueuedWorkTest, the_legacy_default_stream_is_waited_for_by_either_number) {
    for (const uintptr_t number : {uintptr_t{0}, uintptr_t{1}}) {
        fake_->legacy_busy = true;
        const auto work = find({number});
        ASSERT_NE(work, nullptr);
        EXPECT_FALSE(work->over());
        fake_->legacy_busy = false;
        EXPECT_TRUE(work->over());
    }
}

TEST_F(QueuedWorkTest, a_stream_of_the_program_is_waited_for_as_far_as_it_was_filled) {
    // A stream of ours stands for one of the program's: the driver knows no difference.
    void* memory = nullptr;
    ASSERT_TRUE(device_->allocate(4096, Memory::kPinned, &memory).ok());
    auto* word = static_cast<uint64_t*>(memory);
    StreamId stream = 0;
    ASSERT_TRUE(device_->create_stream(0, &stream).ok());
    ASSERT_TRUE(device_->launch(stream, request(fake_until, word, 1)).ok());
    const auto number = fake_->last_launch_stream.load();
    const auto work = find({0, number}, 2);
    ASSERT_NE(work, nullptr) << status_.message();
    EXPECT_FALSE(work->over());
    ASSERT_TRUE(device_->launch(stream, request(fake_until, word + 1, 1)).ok());  // behind it
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    EXPECT_TRUE(work->over());
    __atomic_store_n(word + 1, 1, __ATOMIC_RELEASE);
    EXPECT_TRUE(device_->synchronize(stream, after(std::chrono::seconds(10))).ok());
    EXPECT_EQ(find({number}), nullptr);
    device_->free(memory);
}

TEST_F(QueuedWorkTest, a_capture_is_refused_by_name_and_never_broken) {
    fake_->legacy_captured = true;
    EXPECT_EQ(find({0}), nullptr);
    EXPECT_TRUE(status_.ok());
    EXPECT_EQ(fake_->legacy_waits, 0) << "an event was recorded in it";
    fake_->stream_captured = true;
    EXPECT_EQ(find({4096}), nullptr);
    EXPECT_EQ(status_.error_number(), EBUSY);
    EXPECT_THAT(status_.message(), testing::HasSubstr("captured"));
}

TEST_F(QueuedWorkTest, what_is_no_stream_is_an_error) {
    EXPECT_EQ(find({4096}), nullptr);
    EXPECT_EQ(status_.error_number(), EINVAL);
}

}  // namespace
}  // namespace penstock::backend::cuda
