// Goal: answers that are given while copies are under way go together with the next, none is lost,
// and copies that fail or stand still are told.
#include "service/answer_sender.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "service/slow_device_fixture.h"

namespace penstock::service {
namespace {

class AnswerSenderTest : public ::testing::Test {
protected:
    AnswerSenderTest() {
        ring_.shift = 8;
        ring_.answers = answers_.data();
        sender_ = std::move(AnswerSender::create(device_, ring_).value());
        stream_ = device_.streams.begin()->first;
    }
    void give(uint64_t slot) {
        sender_->put(slot, 1000 + slot);
        sender_->publish({slot, slot + 1});
    }
    size_t arrived() {
        size_t count = 0;
        for (uint64_t slot = 0; slot < answers_.size(); ++slot) {
            if (answers_[slot] == 0) continue;
            EXPECT_EQ(answers_[slot], 1000 + slot);
            ++count;
        }
        return count;
    }
    void step_copy() {  // the copy, and the store behind it
        EXPECT_TRUE(device_.step(stream_));
        EXPECT_TRUE(device_.step(stream_));
    }

    SlowDevice device_;
    RingState ring_{};
    std::vector<uint64_t> answers_ = std::vector<uint64_t>(256);
    std::unique_ptr<AnswerSender> sender_;
    backend::StreamId stream_ = 0;
};

TEST_F(AnswerSenderTest, WhatComesWhileTwoCopiesAreUnderWayGoesTogether) {
    for (const uint64_t slot : {9u, 200u, 3u, 255u, 17u, 0u}) {
        give(slot);
        EXPECT_TRUE(sender_->flush().ok());
    }
    EXPECT_EQ(device_.write_calls, 2);
    step_copy();
    EXPECT_EQ(arrived(), 1u);
    EXPECT_TRUE(sender_->flush().ok());
    EXPECT_EQ(device_.write_calls, 3);
    step_copy();
    step_copy();
    EXPECT_EQ(arrived(), 6u);
    EXPECT_FALSE(device_.step(stream_));
    EXPECT_TRUE(sender_->flush().ok());
    EXPECT_EQ(device_.write_calls, 3) << "there is nothing new";
}

TEST_F(AnswerSenderTest, CopiesThatFailAreTold) {
    give(5);
    device_.fail_write = 1;
    EXPECT_EQ(sender_->flush().error_number(), EIO);
    give(6);
    EXPECT_TRUE(sender_->flush().ok());
    device_.fail_query = true;
    EXPECT_EQ(sender_->look_after(1'000'000'000).error_number(), EIO);
}

TEST_F(AnswerSenderTest, CopiesThatDoNotEndAreTold) {
    EXPECT_TRUE(sender_->look_after(~0ull).ok()) << "there are none";
    give(5);
    EXPECT_TRUE(sender_->flush().ok());
    EXPECT_TRUE(sender_->look_after(1).ok());
    EXPECT_EQ(sender_->look_after(~0ull >> 1).error_number(), EIO);
}

}  // namespace
}  // namespace penstock::service
