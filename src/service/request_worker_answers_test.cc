// Goal: teams that copy pages themselves are told by ticket where they lie, each of its part; the
// bytes stay there until the team has them, no slot is used again before that, and answers that
// cannot be sent end every wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "service/request_worker_fixture.h"

namespace penstock::service {
namespace {

using device::SystemWords;

// What a team copies itself is told by ticket, and stays where it is until the team has said that
// it has it.
TEST_F(RequestWorkerTest, PagesThatTeamsPullLieStillUntilTheyAreCopied) {
    const RingState& ring = let_teams_pull();
    const auto pull = [&](PageIndex page) {
        ask(page, static_cast<FrameIndex>(page), RequestKind::kPullPage);
    };
    const auto bytes_of = [&](uint64_t ticket) {
        EXPECT_EQ(lap_of_answer(answers_[ticket]), lap_of(ticket, ring.shift));
        return bytes_of_answer(answers_[ticket]);
    };
    for (const PageIndex page : {7, 3, 4}) pull(page);
    pull(kPages - 1);  // not whole: it is completed as any other
    ASSERT_TRUE(worker_->serve_requests(0));
    EXPECT_EQ(answers_[0], 0u) << "nothing has been sent";
    finish_copies();
    EXPECT_EQ(check_announced(), 1u);
    EXPECT_EQ(bytes_of_answer(answers_[3]), nullptr);
    const PageIndex pages[] = {7, 3, 4};
    const auto check_pages = [&] {
        for (uint64_t i = 0; i < 3; ++i)
            EXPECT_EQ(std::memcmp(bytes_of(i), bytes_.data() + pages[i] * kPage, kPage), 0) << i;
    };
    check_pages();
    const std::byte* lowest = std::min({bytes_of(0), bytes_of(1), bytes_of(2)});
    for (uint64_t ticket = 4; ticket < 8; ++ticket) {
        pull(20 + ticket);
        ASSERT_TRUE(worker_->serve_requests(0));
        finish_copies();
        check_pages();
        // All but one of the first have been copied, and of the others each at once.
        SystemWords::store(ring.slots[4 * ticket], 0, site::kPulled);
        if (ticket < 6) SystemWords::store(ring.slots[4 * (ticket - 4)], 0, site::kPulled);
        EXPECT_NE(bytes_of(ticket), lowest);
    }
    SystemWords::store(ring.slots[4 * 2], 0, site::kPulled);
    pull(40);
    ASSERT_TRUE(worker_->serve_requests(0));
    finish_copies();
    EXPECT_EQ(bytes_of(8), lowest) << "the lowest room is free again";
}

// Parts of a window are read together, and each team is told of its own; of one that is not whole,
// every page is announced by its word.
TEST_F(RequestWorkerTest, WindowsThatTeamsPullAreAnsweredByPart) {
    const RingState& ring = let_teams_pull();
    const auto pull = [&](PageIndex first, uint32_t parts, uint32_t pages) {
        for (uint32_t i = 0; i < parts; ++i) {
            Request request;
            request.kind = RequestKind::kPullWindow;
            request.file_slot = descriptor_slot(file_);
            request.opened = memory_.state().files[request.file_slot].generation & 0xffff;
            request.page = first + i * pages;
            request.frame = static_cast<FrameIndex>(request.page);
            request.page_count = pages;
            request.generation = 1;
            request.behind = parts - 1 - i;
            for (uint32_t k = 0; k < pages; ++k) asked_[request.frame + k] = request.page + k;
            device::submit<SystemWords>(ring.slots, ring.shift, memory_.state().rings[0].tail++,
                                        request);
        }
    };
    pull(16, 4, 8);
    ASSERT_TRUE(worker_->serve_requests(0));
    EXPECT_EQ(worker_->counters().reads.load(), 1u);
    finish_copies();
    EXPECT_EQ(check_announced(), 0u);
    for (uint64_t i = 0; i < 4; ++i) {
        ASSERT_EQ(lap_of_answer(answers_[i]), lap_of(i, ring.shift));
        EXPECT_EQ(std::memcmp(bytes_of_answer(answers_[i]), bytes_.data() + (16 + 8 * i) * kPage,
                              8 * kPage),
                  0);
        SystemWords::store(ring.slots[4 * i], 0, site::kPulled);
    }
    pull(kPages - 8, 2, 4);  // the file ends in it
    ASSERT_TRUE(worker_->serve_requests(0));
    finish_copies();
    EXPECT_EQ(check_announced(), 8u);
    for (uint64_t i = 4; i < 6; ++i) {
        EXPECT_EQ(lap_of_answer(answers_[i]), lap_of(i, ring.shift));
        EXPECT_EQ(bytes_of_answer(answers_[i]), nullptr);
    }
    EXPECT_EQ(aborted_, 0);
}

TEST_F(RequestWorkerTest, NothingIsClaimedFarAheadOfAPageThatIsNotPulled) {
    const RingState& ring = let_teams_pull();
    ask(0, 0, RequestKind::kPullPage);
    for (PageIndex page = 1; page < 100; ++page) {
        ask(page, static_cast<FrameIndex>(page));
        (void)worker_->serve_requests(0);
        finish_copies();
    }
    EXPECT_EQ(shared_.heads[0].ticket, 32u) << "two stretches of 16";
    SystemWords::store(ring.slots[0], 0, site::kPulled);
    while (worker_->serve_requests(0)) {
        for (const auto& [stream, operations] : device_.streams) {
            while (device_.step(stream)) {
            }
        }
    }
    EXPECT_EQ(shared_.heads[0].ticket, 100u);
}

TEST_F(RequestWorkerTest, AnswersThatDoNotArriveEndEveryWait) {
    let_teams_pull();
    ask(3, 3, RequestKind::kPullPage);
    device_.fail_write = 1;
    EXPECT_TRUE(worker_->serve_requests(0));
    EXPECT_EQ(aborted_, EIO);
    EXPECT_TRUE(worker_->stopped());
}

}  // namespace
}  // namespace penstock::service
