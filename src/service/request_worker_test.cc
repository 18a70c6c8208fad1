// Goal: on a device that the host cannot address, pages arrive by staging, in few calls of the
// driver, and no page is announced before a fence of the stream behind its bytes, nor as good after
// a copy that failed; drains are read while others are being copied, and staging is used again
// only behind its announcements.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "service/request_worker_fixture.h"
#include "testing/bytes.h"

namespace penstock::service {
namespace {

using backend::StreamId;
using device::SystemWords;

TEST_F(RequestWorkerTest, ARunInAdjacentFramesIsOneCopyAndOneAnnouncement) {
    for (uint64_t i = 0; i < 16; ++i) {  // in any order
        const uint64_t page = i * 5 % 16;
        ask(page, static_cast<FrameIndex>(100 + page));
    }
    EXPECT_TRUE(worker_->serve_requests(0));
    EXPECT_EQ(device_.copy_sizes, std::vector<size_t>{16 * kPage});
    EXPECT_EQ(device_.write_calls, 2) << "behind the bytes, and behind their words";
    EXPECT_EQ(device_.words_copies, 1);
    EXPECT_EQ(check_announced(), 0u) << "nothing has been copied";
    finish_copies();
    EXPECT_EQ(check_announced(), 16u);
    EXPECT_EQ(worker_->counters().reads.load(), 1u);
}

TEST_F(RequestWorkerTest, WordsComeBehindTheFenceBehindTheirBytes) {
    ask_many(0, 4);
    ask_many(10, 3);
    EXPECT_TRUE(worker_->serve_requests(0));
    // A copy for each run, a store, words for each, a store.
    for (const size_t announced : {0u, 0u, 0u, 4u, 7u, 7u}) {
        EXPECT_TRUE(device_.step(streams_[0]));
        EXPECT_EQ(check_announced(), announced);
    }
    EXPECT_FALSE(device_.step(streams_[0]));
}

// A team that waits for a slow read gets at once what was read before it.
TEST_F(RequestWorkerTest, WhatIsReadGoesAtOnceWhenNothingElseIsOnItsWayForLong) {
    shared_.send_period_ns = 0;
    ask_many(0, 4);
    ask_many(10, 3);
    EXPECT_TRUE(worker_->serve_requests(0));
    // For each run: copy, store, words, store.
    for (const size_t announced : {0u, 0u, 4u, 4u, 4u, 4u, 7u, 7u}) {
        EXPECT_TRUE(device_.step(streams_[0]));
        EXPECT_EQ(check_announced(), announced);
    }
    EXPECT_FALSE(device_.step(streams_[0]));
}

TEST_F(RequestWorkerTest, FramesApartAreCopiedApart) {
    const FrameIndex frames[] = {7, 8, 9, 20, 21, 5, 4, 3};
    for (PageIndex page = 0; page < 8; ++page) ask(page, frames[page]);
    EXPECT_TRUE(worker_->serve_requests(0));
    EXPECT_EQ(device_.copy_sizes, (std::vector<size_t>{3 * kPage, 2 * kPage, kPage, kPage, kPage}));
    EXPECT_EQ(device_.write_calls, 2);
    EXPECT_EQ(device_.words_copies, 5);
    finish_copies();
    EXPECT_EQ(check_announced(), 8u);
}

TEST_F(RequestWorkerTest, NoAnnouncementOvertakesItsBytes) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        base::Prng prng(seed);
        std::vector<FrameIndex> frames(kPages);
        for (uint32_t i = 0; i < kPages; ++i) frames[i] = i;
        for (size_t i = kPages; i > 1; --i) {
            if (prng.next() % 4 == 0) std::swap(frames[i - 1], frames[prng.next() % i]);
        }
        asked_.clear();
        std::fill_n(memory_.state().completions, kPages, 0);
        std::memset(memory_.state().frames, 0xee, kPages * kPage);
        for (PageIndex page = 0; page < kPages; ++page) ask(page, frames[page]);
        size_t steps = 0;
        while (check_announced() < kPages) {
            ASSERT_LT(++steps, 100'000u);
            (void)worker_->serve_requests(0);
            for (uint64_t n = prng.next() % 40; n > 0; --n) (void)device_.step(streams_[0]);
        }
    }
    EXPECT_EQ(aborted_, 0);
}

TEST_F(RequestWorkerTest, DrainsAreReadWhileOthersAreCopied) {
    constexpr PageIndex kDrains = 64;
    for (PageIndex i = 0; i < kDrains; ++i) {
        ask_many(i, 1);
        EXPECT_TRUE(worker_->serve_requests(0)) << "there is room";
    }
    EXPECT_EQ(worker_->counters().requests.load(), kDrains);
    ask_many(kDrains, 1);
    for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(worker_->serve_requests(0)) << "all of it is being copied";
        base::sleep_until_ns(base::monotonic_ns() + 1000);
    }
    EXPECT_EQ(shared_.heads[0].ticket, kDrains) << "left to another worker";
    EXPECT_EQ(worker_->activity(), Activity::kIdle);
    for (const size_t announced : {0u, 0u, 1u}) {  // copy, store, words
        EXPECT_TRUE(device_.step(streams_[0]));
        EXPECT_EQ(check_announced(), announced);
        EXPECT_FALSE(worker_->serve_requests(0)) << "the words may still be on their way";
    }
    EXPECT_TRUE(device_.step(streams_[0]));
    EXPECT_TRUE(worker_->serve_requests(0));
    EXPECT_EQ(worker_->counters().requests.load(), kDrains + 1) << "the room is free again";
    finish_copies();
    EXPECT_EQ(check_announced(), kDrains + 1);
}

TEST_F(RequestWorkerTest, FewCopiesAreBeforeAStreamAtATime) {
    for (PageIndex i = 0; i < 64; ++i) ask(i, static_cast<FrameIndex>(2 * i));
    EXPECT_TRUE(worker_->serve_requests(0));
    EXPECT_EQ(device_.copy_sizes.size() + static_cast<size_t>(device_.words_copies), 128u);
    ask_many(200, 1);
    EXPECT_FALSE(worker_->serve_requests(0)) << "the driver has enough";
    while (device_.step(streams_[0])) {
    }
    EXPECT_TRUE(worker_->serve_requests(0));
    finish_copies();
    EXPECT_EQ(check_announced(), 65u);
}

TEST_F(RequestWorkerTest, TheEndOfTheFileIsZeros) {
    std::memset(memory_.state().frames, 0xee, kPages * kPage);
    ask_many(kPages - 2, 2);
    EXPECT_TRUE(worker_->serve_requests(0));
    finish_copies();
    EXPECT_EQ(check_announced(), 2u);
}

TEST_F(RequestWorkerTest, ACopyThatFailsIsAnErrorOfThePagesThatWentWithIt) {
    ask_many(0, 4);
    ask_many(10, 4);
    ask_many(20, 4);
    device_.fail_copy = 2;
    EXPECT_TRUE(worker_->serve_requests(0));
    finish_copies();
    EXPECT_EQ(check_announced(), 12u);
    for (const auto& [frame, page] : asked_)
        EXPECT_EQ(completion_error(announced(frame)), static_cast<uint32_t>(EIO)) << page;
    EXPECT_EQ(aborted_, 0);
    ask_many(30, 4);
    EXPECT_TRUE(worker_->serve_requests(0));
    finish_copies();
    EXPECT_EQ(completion_error(announced(30)), 0u) << "the next ones go well";
}

TEST_F(RequestWorkerTest, RequestsForAFileThatIsGoneAreRefused) {
    ASSERT_TRUE(files_.close(file_, Opener::kHost).ok());
    ask_many(0, 3);
    EXPECT_TRUE(worker_->serve_requests(0));
    finish_copies();
    for (const auto& [frame, page] : asked_)
        EXPECT_EQ(completion_error(announced(frame)), static_cast<uint32_t>(kErrorClosed)) << page;
}

TEST_F(RequestWorkerTest, PagesThatCannotBeAnnouncedEndEverything) {
    for (const int fail : {1, 2}) {  // the fence, and the store behind the words
        SCOPED_TRACE(fail);
        aborted_ = 0;
        device_.write_calls = 0;
        device_.fail_write = fail;
        worker_ = std::move(RequestWorker::create(shared_, *storage_).value());
        EXPECT_TRUE(worker_->take_staging().ok());
        ask_many(0, 4);
        EXPECT_TRUE(worker_->serve_requests(0));
        EXPECT_EQ(aborted_, EIO);
        EXPECT_TRUE(worker_->stopped());
        EXPECT_FALSE(worker_->serve_requests(0));
    }
}

TEST_F(RequestWorkerTest, CopiesThatAreLostEndEverything) {
    ask_many(0, 4);
    EXPECT_TRUE(worker_->serve_requests(0));
    device_.fail_query = true;
    while (aborted_ == 0) EXPECT_FALSE(worker_->serve_requests(0));
    EXPECT_EQ(aborted_, EIO);
    EXPECT_TRUE(worker_->stopped());
    EXPECT_FALSE(worker_->serve_requests(0));
}

// Memory of which some bytes cannot be read: what lies before one arrives, then EIO.
class BadBytes final : public storage::Storage {
public:
    BadBytes(std::shared_ptr<storage::Storage> under, std::vector<uint64_t> bad)
        : under_(std::move(under)), bad_(std::move(bad)) {}

    storage::Kind kind() const override { return under_->kind(); }
    std::string description() const override { return "bad bytes"; }
    Result<std::shared_ptr<storage::File>> open(const std::string& name, int flags) override {
        return under_->open(name, flags);
    }
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        auto queue = under_->make_queue(depth);
        if (!queue.ok()) return queue.status();
        return std::unique_ptr<storage::Queue>(new BadQueue(std::move(queue.value()), bad_));
    }

private:
    class BadQueue final : public storage::Queue {
    public:
        BadQueue(std::unique_ptr<storage::Queue> under, const std::vector<uint64_t>& bad)
            : Queue(under->depth()), under_(std::move(under)), bad_(bad) {}
        size_t submit(std::span<const storage::Operation> operations) override {
            for (const storage::Operation& operation : operations) submit_one(operation);
            return operations.size();
        }
        size_t reap(std::span<storage::Completion> out, bool) override {
            size_t count = 0;
            for (; count < out.size() && !done_.empty(); ++count, done_.pop_front())
                out[count] = done_.front();
            return count;
        }
        size_t outstanding() const override { return done_.size(); }

    private:
        void submit_one(storage::Operation operation) {
            uint64_t good = UINT64_MAX;
            for (const uint64_t bad : bad_)
                if (bad >= operation.offset) good = std::min(good, bad - operation.offset);
            std::vector<iovec> pieces;
            uint64_t asked = 0, size = 0;
            for (const iovec& piece : operation.pieces) {
                asked += piece.iov_len;
                pieces.push_back({piece.iov_base, std::min(piece.iov_len, good - size)});
                size += pieces.back().iov_len;
            }
            operation.pieces = pieces;
            storage::Completion completion;
            EXPECT_EQ(under_->submit({&operation, 1}), 1u);
            EXPECT_EQ(under_->reap({&completion, 1}, true), 1u);
            if (size < asked) completion.error = EIO;
            done_.push_back(completion);
        }

        const std::unique_ptr<storage::Queue> under_;
        const std::vector<uint64_t>& bad_;
        std::deque<storage::Completion> done_;
    };

    const std::shared_ptr<storage::Storage> under_;
    const std::vector<uint64_t> bad_;
};

// Two windows that became one read, with a page in each that cannot be read: whatever is announced
// as good lies in its frame by then, and only the two pages fail.
TEST(RequestWorkerRetryTest, NothingIsAnnouncedBeforeItIsReadAgain) {
    constexpr uint64_t kWindow = 64, kBad[] = {1, kWindow + 40};
    std::vector<std::byte> bytes(2 * kWindow * kPage);
    testing::fill_randomly(bytes.data(), bytes.size(), 12);
    auto ram = std::make_shared<storage::RamStorage>();
    ASSERT_TRUE(ram->create("file", bytes.size()).ok());
    ASSERT_TRUE(ram->write("file", 0, bytes).ok());
    auto storage = std::make_shared<BadBytes>(
        ram, std::vector<uint64_t>{kBad[0] * kPage + 10, kBad[1] * kPage + 10});
    SlowDevice device(true);
    page_cache::Memory memory({.frames = 2 * kWindow, .teams = 64});
    FileSystemState& state = memory.state();
    FileTable files(storage, &device, 0, &state, state.files, nullptr);
    Shared shared;
    shared.device = &device;
    shared.state = &state;
    shared.files = &files;
    const Descriptor file = files.open("file", 0, Opener::kHost).value();
    auto worker = RequestWorker::create(shared, *storage);
    ASSERT_TRUE(worker.ok());
    ASSERT_TRUE(worker.value()->take_staging().ok());
    device.on_notify = [&](const uint64_t* words, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            const auto frame = static_cast<size_t>(words + i - state.completions);
            if (frame >= 2 * kWindow || completion_generation(words[i]) != 1 ||
                completion_error(words[i]) != 0)
                continue;
            EXPECT_TRUE(
                testing::equal(state.frames + frame * kPage, bytes.data() + frame * kPage, kPage))
                << "page " << frame << " was announced before it was there";
        }
    };
    RingState& ring = state.rings[0];
    for (const uint64_t first : {uint64_t{0}, kWindow}) {
        Request request;
        request.kind = RequestKind::kReadWindow;
        request.file_slot = descriptor_slot(file);
        request.opened = static_cast<uint32_t>(file >> kDescriptorSlotBits) & 0xffff;
        request.page = first;
        request.frame = static_cast<FrameIndex>(first);
        request.generation = 1;
        request.page_count = kWindow;
        device::submit<SystemWords>(ring.slots, ring.shift, ring.tail++, request);
    }
    EXPECT_TRUE(worker.value()->serve_requests(0));
    for (uint64_t page = 0; page < 2 * kWindow; ++page) {
        const bool bad = page == kBad[0] || page == kBad[1];
        EXPECT_EQ(completion_generation(state.completions[page]), 1u) << page;
        EXPECT_EQ(completion_error(state.completions[page]), bad ? EIO : 0u) << page;
    }
    worker.value().reset();
}

}  // namespace
}  // namespace penstock::service
