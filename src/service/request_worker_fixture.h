// A worker of a device that the host cannot address. Its streams move when the test says so, and it
// takes requests as from a kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "page_cache/page_cache_fixture.h"
#include "penstock/device/request_queue.cuh"
#include "service/request_worker.h"
#include "service/slow_device_fixture.h"
#include "storage/ram.h"
#include "testing/bytes.h"

namespace penstock::service {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kPages = 256;
inline constexpr uint64_t kFileSize = kPages * kPage - 1000;  // the last page ends early

class RequestWorkerTest : public ::testing::Test {
protected:
    RequestWorkerTest() {
        testing::fill_randomly(bytes_.data(), bytes_.size(), 11);
        EXPECT_TRUE(storage_->create("file", kFileSize).ok());
        EXPECT_TRUE(storage_->write("file", 0, {bytes_.data(), kFileSize}).ok());
        std::fill(bytes_.begin() + kFileSize, bytes_.end(), std::byte{0});
        shared_.device = &device_;
        shared_.state = &memory_.state();
        shared_.files = &files_;
        shared_.abort = [this](int error, const char*) { aborted_ = error; };
        shared_.send_period_ns = 60'000'000'000;
        file_ = files_.open("file", 0, Opener::kHost).value();
        worker_ = std::move(RequestWorker::create(shared_, *storage_).value());
        EXPECT_TRUE(worker_->take_staging().ok());
        for (const auto& [stream, operations] : device_.streams) streams_.push_back(stream);
    }

    // Requests `page` in `frame`, as a kernel would.
    void ask(PageIndex page, FrameIndex frame, RequestKind kind = RequestKind::kReadPages) {
        RingState& ring = memory_.state().rings[0];
        Request request;
        request.kind = kind;
        request.file_slot = descriptor_slot(file_);
        request.page = page;
        request.frame = frame;
        request.generation = 1;
        asked_[frame] = page;
        device::submit<device::SystemWords>(ring.slots, ring.shift, ring.tail++, request);
    }
    void ask_many(PageIndex first, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) ask(first + i, static_cast<FrameIndex>(first + i));
    }
    RingState& let_teams_pull() {
        RingState& ring = memory_.state().rings[0];
        answers_.resize(size_t{1} << ring.shift);
        ring.answers = answers_.data();
        answer_sender_ = std::move(AnswerSender::create(device_, ring).value());
        shared_.answer_senders[0] = answer_sender_.get();
        shared_.tickets_behind_max = limits::kDrainMax + 32;
        return ring;
    }
    // Completes the streams, and lets the worker look.
    void finish_copies() {
        for (const auto& [stream, operations] : device_.streams) {
            while (device_.step(stream)) {
            }
        }
        EXPECT_FALSE(worker_->serve_requests(0)) << "nothing is left";
    }

    [[nodiscard]] Completion announced(FrameIndex frame) {
        return memory_.state().completions[frame];
    }
    // Checks that each page announced as good lies in its frame. Returns how many are announced.
    size_t check_announced() {
        size_t count = 0;
        for (const auto& [frame, page] : asked_) {
            if (completion_generation(announced(frame)) != 1) continue;
            ++count;
            if (completion_error(announced(frame)) != 0) continue;
            EXPECT_TRUE(testing::equal(memory_.state().frames + frame * kPage,
                                       bytes_.data() + page * kPage, kPage))
                << "page " << page << " in frame " << frame;
            EXPECT_EQ(completion_bytes(announced(frame)),
                      std::min(kPage, kFileSize - page * kPage));
        }
        return count;
    }

    std::vector<std::byte> bytes_ = std::vector<std::byte>(kPages * kPage);
    page_cache::Memory memory_{{.frames = kPages, .teams = 64}};
    SlowDevice device_;
    std::shared_ptr<storage::RamStorage> storage_ = std::make_shared<storage::RamStorage>();
    FileTable files_{storage_, &device_, 0, &memory_.state(), memory_.state().files, nullptr};
    Shared shared_;
    Descriptor file_ = -1;
    int aborted_ = 0;
    std::vector<uint64_t> answers_;
    std::unique_ptr<AnswerSender> answer_sender_;
    std::unique_ptr<RequestWorker> worker_;
    std::vector<backend::StreamId> streams_;
    std::map<FrameIndex, PageIndex> asked_;
};

}  // namespace penstock::service
