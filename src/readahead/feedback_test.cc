// Goal: the state machine of the header, enumerated: every sequence of five judgements over all
// bands of accuracy, lateness and pollution does what the table says; suspension ends after 2, 4,
// 8 ... confirmations in a row and not before.
#include "readahead/feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace penstock::readahead {
namespace {

using State = Feedback::State;

struct Round {
    double accuracy;
    bool late, polluted;
};

// 64 completions of this kind.
void play(Feedback& feedback, const Round& round) {
    for (uint32_t i = 0; i < (round.polluted ? 5U : 4U); ++i) feedback.polluted();
    const auto uses = static_cast<uint32_t>(round.accuracy * Feedback::kCompletions);
    for (uint32_t i = 0; i < Feedback::kCompletions; ++i) {
        if (i < uses) {
            // One in eight is not late; one more is.
            feedback.used(4096, round.late && i <= uses / 8);
        } else {
            feedback.wasted(4096);
        }
    }
}

// The table of the header, written down a second time.
struct Table {
    State state = State::kRunning;
    double scale = 1;
    uint32_t needed = 2;

    void judge(const Round& round) {
        if (state == State::kSuspended) return;
        const bool bad = round.accuracy < 0.25;
        const bool halve = round.accuracy < 0.5 || round.polluted;
        if (halve) scale = std::max(scale / 2, 1.0 / 16);
        if (bad) {
            state = state == State::kWarned ? State::kSuspended : State::kWarned;
            return;
        }
        state = State::kRunning;
        if (halve || round.accuracy <= 0.9) return;
        if (round.late) scale = std::min(scale * 2, 16.0);
        needed = std::max(needed / 2, 2U);
    }
};

TEST(Feedback, EverySequenceOfFourJudgementsFollowsTheTable) {
    std::array<Round, 20> rounds;
    size_t count = 0;
    for (const double accuracy : {0.0, 0.2, 0.3, 0.7, 1.0}) {
        for (const bool late : {false, true}) {
            for (const bool polluted : {false, true}) {
                rounds[count++] = {accuracy, late, polluted};
            }
        }
    }
    const size_t sequences = count * count * count * count;
    for (size_t sequence = 0; sequence < sequences; ++sequence) {
        Feedback feedback;
        Table table;
        for (size_t rest = sequence, step = 0; step < 4; ++step, rest /= count) {
            play(feedback, rounds[rest % count]);
            table.judge(rounds[rest % count]);
            ASSERT_EQ(feedback.state(), table.state) << "sequence " << sequence;
            ASSERT_EQ(feedback.scale(), table.scale) << "sequence " << sequence;
            ASSERT_EQ(feedback.confirmations_needed(), table.needed) << "sequence " << sequence;
        }
    }
}

TEST(Feedback, NothingIsJudgedBefore64Completions) {
    Feedback feedback;
    for (uint32_t i = 1; i < Feedback::kCompletions; ++i) feedback.wasted(1);
    EXPECT_EQ(feedback.state(), State::kRunning);
    feedback.wasted(1);
    EXPECT_EQ(feedback.state(), State::kWarned);
}

void suspend(Feedback& feedback) {
    play(feedback, {0, false, false});
    play(feedback, {0, false, false});
    ASSERT_TRUE(feedback.suspended());
}

TEST(Feedback, ReArmsAfter2Then4Then8ConfirmationsInARowUpToTheLimit) {
    Feedback feedback;
    uint32_t needed = 2;
    for (int round = 0; round < 14; ++round) {
        suspend(feedback);
        EXPECT_EQ(feedback.suspensions(), static_cast<uint64_t>(round) + 1);
        for (uint32_t i = 1; i < needed; ++i) feedback.confirmed();
        EXPECT_TRUE(feedback.suspended()) << "after " << needed - 1;
        feedback.refuted();  // the row is broken
        for (uint32_t i = 1; i < needed; ++i) feedback.confirmed();
        EXPECT_TRUE(feedback.suspended()) << "after " << needed - 1;
        feedback.confirmed();
        EXPECT_FALSE(feedback.suspended()) << "after " << needed;
        EXPECT_EQ(feedback.scale(), Feedback::kScaleMin);
        needed = std::min(needed * 2, Feedback::kConfirmationsMax);
        EXPECT_EQ(feedback.confirmations_needed(), needed);
    }
}

TEST(Feedback, WhatArrivesDuringASuspensionNeitherEndsNorRenewsIt) {
    Feedback feedback;
    suspend(feedback);
    play(feedback, {1, false, false});
    play(feedback, {0, false, false});
    EXPECT_TRUE(feedback.suspended());
    EXPECT_EQ(feedback.suspensions(), 1U);
}

TEST(Feedback, ConfirmationsOutsideASuspensionCountForNothing) {
    Feedback feedback;
    for (int i = 0; i < 100; ++i) feedback.confirmed();
    suspend(feedback);
    feedback.confirmed();
    EXPECT_TRUE(feedback.suspended());
}

}  // namespace
}  // namespace penstock::readahead
