// Goal: a caller that waits for a long read into device memory learns of its end soon, even while
// the device, another file, or a thread that pins memory stands still.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "base/waits.h"
#include "transfer/staged_range_fixture.h"

namespace penstock::transfer {
namespace {

using namespace staged_range_fixture;

class StagedRangeWaitTest : public StagedRangeFixture {};

// Waking up takes longer than those copies do. For each read once: copies that never end cost no
// CPU.
TEST_F(StagedRangeWaitTest, TheCallerSpinsForAMomentWhenOnlyCopiesAreMissing) {
    if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "no thread spins on one CPU";
    start(2);
    bool counted = true, spun = false;
    // This thread may be preempted before it waits, and the time for spinning may be over then.
    for (int i = 0; i < 100 && counted && !spun; ++i) {
        file_->hold_from(0);
        device_.hold(true);
        device_.forget();
        const Read read = make(0, 2 * kMiB);
        engine_->start(read.job);
        const auto waits = [&](std::chrono::nanoseconds limit) {
            (void)base::waited_since_asked();
            const auto begin = std::chrono::steady_clock::now();
            EXPECT_FALSE(read.job->wait(limit));
            const bool waited = base::waited_since_asked();
            EXPECT_GE(std::chrono::steady_clock::now() - begin, limit);
            return waited;
        };
        EXPECT_TRUE(waits(2ms)) << "bytes are missing";
        (void)base::waited_since_asked();
        counted = !base::waited_since_asked();
        file_->hold_from(UINT64_MAX);
        const auto sent = [this] {
            const std::vector<size_t> copies = device_.copies();
            return std::accumulate(copies.begin(), copies.end(), uint64_t{0});
        };
        while (sent() < 2 * kMiB) std::this_thread::yield();
        for (int k = 0; k < 10 && !spun; ++k) spun = !waits(100us);
        EXPECT_FALSE(read.job->wait(0ns));
        EXPECT_FALSE(read.job->wait(-24h));
        EXPECT_TRUE(waits(5ms)) << "the moment is over";
        EXPECT_TRUE(waits(100us));
        device_.hold(false);
        ASSERT_TRUE(read.job->wait(20s));
        expect_right(read);
    }
    EXPECT_TRUE(spun || !counted);
}

TEST_F(StagedRangeWaitTest, WhileTheDeviceStandsStillOtherReadsOfTheHostGoOn) {
    start(2);
    device_.hold(true);
    std::vector<Read> reads;
    for (int i = 0; i < 3; ++i) {
        reads.push_back(make(0, kFileSize));
        engine_->start(reads.back().job);
    }
    // Two copies always come; more come only if staged ranges finish in order. The windows that
    // have staging are all read.
    const auto limit = std::chrono::steady_clock::now() + 20s;
    for (uint64_t seen = 0; device_.copies().size() < 2 || seen != file_->reads;) {
        ASSERT_LT(std::chrono::steady_clock::now(), limit);
        seen = file_->reads;
        std::this_thread::sleep_for(20ms);
    }
    const auto other = std::make_shared<Source>(std::make_shared<TestFile>());
    std::vector<std::byte> memory(kFileSize);
    const auto job = std::make_shared<Job>(other, std::vector<Piece>{{memory.data(), kFileSize, 0}},
                                           false, false, ReadOptions{}, kMiB, nullptr);
    engine_->start(job);
    ASSERT_TRUE(job->wait(20s));
    EXPECT_TRUE(is_right(memory.data(), 0, kFileSize));
    for (const Read& read : reads) EXPECT_FALSE(read.job->done());
    device_.hold(false);
    for (const Read& read : reads) {
        ASSERT_TRUE(read.job->wait(20s));
        expect_right(read);
    }
}

// A caller begins the last copy of another read and then returns, at a moment when the engine's
// thread sees no copy in flight. If the naps below are too short, the test passes without that
// case.
TEST_F(StagedRangeWaitTest, AReadWhoseLastCopyACallerBeginsIsToldOfWithoutAnother) {
    constexpr auto kNap = 20ms;
    start(1);
    const auto file = std::make_shared<TestFile>();
    file->hold_from(kMiB / 2);
    const Read left = make(0, kMiB, std::make_shared<Source>(file));
    const Read whole = make(0, kMiB);
    device_.hold(true);
    engine_->start(left.job);
    ASSERT_TRUE(file->wait_inside(1));
    device_.on_query = [&] {  // by the caller, which collects its own copy
        file->hold_from(UINT64_MAX);
        std::this_thread::sleep_for(kNap);  // all of `left` is in staging
        device_.hold(false);
        device_.on_copy = [&] { std::this_thread::sleep_for(kNap); };
    };
    engine_->run(whole.job);
    expect_right(whole);
    ASSERT_TRUE(left.job->wait(20s));
    expect_right(left);
}

TEST_F(StagedRangeWaitTest, AReadWhoseSenderThenStandsStillInAnotherFileIsToldOf) {
    start(2);
    const auto file = std::make_shared<TestFile>();
    file->hold_from(0);
    const Read standing = make(0, 4096, std::make_shared<Source>(file));
    // Called by the thread that sends the copy, which then spins for more work.
    device_.on_write = [&] { engine_->start(standing.job); };
    device_.hold(true);
    const Read read = make(0, kMiB);
    engine_->start(read.job);
    ASSERT_TRUE(file->wait_inside(1));
    device_.hold(false);
    EXPECT_TRUE(read.job->wait(20s));
    file->hold_from(UINT64_MAX);
    ASSERT_TRUE(standing.job->wait(20s));
    ASSERT_TRUE(read.job->wait(20s));
    expect_right(read);
}

TEST_F(StagedRangeWaitTest, WhileMemoryIsPinnedTheReadCanBeStopped) {
    std::promise<void> inside, pinned;
    device_.on_pin = [&, ready = pinned.get_future().share()] {
        inside.set_value();
        ready.wait();
    };
    start(2);
    const Read read = make(0, kFileSize);
    engine_->start(read.job);
    EXPECT_EQ(inside.get_future().wait_for(20s), std::future_status::ready);
    auto stopped = std::async(std::launch::async, [&] { read.job->stop(); });
    EXPECT_EQ(stopped.wait_for(20s), std::future_status::ready);
    pinned.set_value();
    ASSERT_TRUE(read.job->wait(20s));
    EXPECT_EQ(read.job->result().status().error_number(), ECANCELED);
    expect_well();
}

}  // namespace
}  // namespace penstock::transfer
