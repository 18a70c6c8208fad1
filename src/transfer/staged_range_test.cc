// Goal: long reads into memory that the host cannot address take few copies, each of what several
// threads have read, and are byte for byte the file; whatever fails, ends early or is stopped costs
// the bytes it struck and no staging.
#include "transfer/staged_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "transfer/staged_range_fixture.h"
#include "transfer/thread_executor.h"

namespace penstock::transfer {
namespace {

using namespace staged_range_fixture;

class StagedRangeTest : public StagedRangeFixture {};

TEST_F(StagedRangeTest, ALongReadTakesFewCopiesTheFirstAndTheLastOfThemShort) {
    for (const unsigned threads : {1u, 2u, 7u, 16u}) {
        SCOPED_TRACE(::testing::Message() << threads << " threads");
        start(threads);
        for (const uint64_t offset : {uint64_t{0}, uint64_t{12'345}}) {
            for (const uint64_t size : {36 * kMiB, 16 * kMiB, 5 * kMiB + 77}) {
                device_.forget();
                const Read read = make(offset, size);
                engine_->run(read.job);
                expect_right(read);
                const std::vector<size_t> copies = device_.copies_by_place();
                EXPECT_LE(copies.size(), size / (8 * kMiB) + 7) << size;
                EXPECT_GE(copies.size(), 3u) << "reading and copying overlap";
                EXPECT_LE(*std::min_element(copies.begin(), copies.end()), kMiB);
                EXPECT_LE(copies.front(), 4 * kMiB) << "not behind much that is read";
            }
        }
        EXPECT_LE(device_.pinned_size, (56 + 3) * kMiB) << "the ring, and words";
        device_.pinned_size = 0;
        engine_.reset();
    }
}

TEST_F(StagedRangeTest, NoStagedRangeIsAFewBytesLong) {
    start(2);
    for (const uint64_t offset : {kMiB - 1, kMiB - 4096, kMiB / 2 + 1, kMiB / 2 - 1}) {
        for (const uint64_t size : {12 * kMiB, 3 * kMiB + 2, 2 * kMiB}) {
            SCOPED_TRACE(::testing::Message() << size << " bytes from " << offset);
            device_.forget();
            const Read read = make(offset, size);
            engine_->run(read.job);
            expect_right(read);
            const std::vector<size_t> copies = device_.copies();
            EXPECT_GE(*std::min_element(copies.begin(), copies.end()), kMiB / 2);
        }
    }
}

TEST_F(StagedRangeTest, AfterAMissStagedRangesBeginOnlyBehindALongHotStretch) {
    constexpr int kLong = 16;  // looks
    StagedRanges ranges(&device_);
    std::vector<std::byte> memory(kFileSize);
    const auto file = std::make_shared<TestFile>(storage::DirectAlignment{4096, 4096});
    const auto source = std::make_shared<Source>(file);
    const auto job = std::make_shared<Job>(source,
                                           std::vector<Piece>{{memory.data(), kFileSize, 0}}, false,
                                           true, ReadOptions{}, kMiB, nullptr);
    std::vector<StagedRange*> opened;
    bool missed = false;
    uint64_t end = 0;
    const auto in_range = [&] {
        Window window;
        EXPECT_EQ(job->take({&window, 1}, &ranges), 1u);
        if (missed) {
            EXPECT_EQ(window.offset, end) << "behind a miss in the file's order";
        }
        end = window.offset + window.size;
        if (window.range != nullptr && (opened.empty() || opened.back() != window.range))
            opened.push_back(window.range);
        return window.range != nullptr;
    };
    source->record_residency(true);
    EXPECT_TRUE(in_range()) << "a read begins in good faith";
    source->record_residency(false);
    int taken = 1;
    while (taken < 100 && in_range()) ++taken;
    EXPECT_LT(taken, 100) << "what was cut is given out, and no more";
    missed = true;
    for (int look = 1; look < kLong; ++look) {
        source->record_residency(true);
        EXPECT_FALSE(in_range()) << look;
    }
    source->record_residency(true);
    for (int window = 0; window < 4; ++window) EXPECT_TRUE(in_range());
    EXPECT_EQ(opened.size(), 2u);
}

TEST_F(StagedRangeTest, RandomReadsOfManyCallersEqualTheFileOrAreStopped) {
    for (uint64_t seed = 1; seed <= testing::usually(10, 4); ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        start(1 + static_cast<unsigned>(prng.below(5)));
        const auto other = std::make_shared<Source>(std::make_shared<TestFile>());
        std::vector<Read> reads;
        std::vector<bool> stopped;
        for (int i = 0; i < 12; ++i) {
            const uint64_t size = 1 + prng.below(prng.below(3) == 0 ? 24 * kMiB : 3 * kMiB);
            reads.push_back(
                make(prng.below(kFileSize), size, prng.below(3) == 0 ? other : source_));
            stopped.push_back(i % 3 != 0 && prng.below(4) == 0);
        }
        std::thread caller([&] {
            for (size_t i = 0; i < reads.size(); i += 3) engine_->run(reads[i].job);
        });
        // Makes batches long.
        std::atomic<bool> over{false};
        std::thread brake([&, nap = std::chrono::microseconds(prng.below(2'000))] {
            while (!over) {
                device_.hold(true);
                std::this_thread::sleep_for(nap);
                device_.hold(false);
                std::this_thread::sleep_for(nap / 4);
            }
        });
        for (size_t i = 0; i < reads.size(); ++i) {
            if (i % 3 != 0) engine_->start(reads[i].job);
            if (i > 1 && stopped[i - 1]) reads[i - 1].job->stop();
        }
        caller.join();
        std::vector<bool> ended;
        for (const Read& read : reads) ended.push_back(read.job->wait(30s));
        over = true;
        brake.join();
        for (size_t i = 0; i < reads.size(); ++i) {
            ASSERT_TRUE(ended[i]);
            const int error = reads[i].job->result().status().error_number();
            ASSERT_TRUE(error == 0 || (stopped[i] && error == ECANCELED)) << error;
            if (error == 0) expect_right(reads[i]);
            expect_sums(reads[i].job->report());
            if (HasFailure()) return;
        }
        expect_well();
        engine_.reset();
    }
}

// One thread reads a hot file. Staging is free for all of the file.
class CopyBatchTest : public StagedRangeFixture {
protected:
    void SetUp() override {
        source_->record_residency(true);
        auto made = ThreadExecutor::make(*storage_, &device_, &staged_ranges_, {});
        ASSERT_TRUE(made.ok()) << made.status().message();
        executor_ = std::move(made.value());
        read_.job = std::make_shared<Job>(source_,
                                          std::vector<Piece>{{read_.memory.data(), kFileSize, 0}},
                                          false, true, ReadOptions{}, kMiB, nullptr);
    }
    // Reads until `copies` copies have been submitted, or all is read.
    void read_until(size_t copies) {
        while (device_.copies().size() < copies &&
               executor_->take(read_.job) == ThreadExecutor::Taken::kHeld) {
            executor_->work(true, nullptr);
            executor_->finish();
        }
    }
    void read_rest() {
        read_until(SIZE_MAX);
        ASSERT_FALSE(read_.job->has_windows());
    }

    StagedRanges staged_ranges_{&device_};
    std::unique_ptr<ThreadExecutor> executor_;
    Read read_{std::vector<std::byte>(kFileSize, std::byte{0xee}), 0, nullptr};
};

TEST_F(CopyBatchTest, WhileEnoughWaitsForTheDeviceStagedRangesWaitAndGoTogether) {
    device_.hold(true);
    read_rest();
    EXPECT_EQ(device_.copies(), (std::vector<size_t>{kMiB, 2 * kMiB, 4 * kMiB, 8 * kMiB}));
    EXPECT_EQ(device_.writes, 4u) << "each is announced";
    staged_ranges_.collect();
    EXPECT_EQ(device_.writes, 4u) << "none is over";
    std::this_thread::sleep_for(20ms);

    device_.hold(false);
    ASSERT_TRUE(staged_ranges_.ready());
    staged_ranges_.collect();
    EXPECT_EQ(device_.calls(), (std::vector<size_t>{1, 1, 1, 1, 5})) << "the others together";
    EXPECT_EQ(device_.writes, 5u);
    EXPECT_FALSE(read_.job->done());
    staged_ranges_.collect();
    EXPECT_FALSE(staged_ranges_.copying());
    ASSERT_TRUE(read_.job->done());
    expect_right(read_);
    EXPECT_GE(read_.job->report().copy_ns, 20'000'000u) << "what lies in staging is read";
}

TEST_F(CopyBatchTest, WhatIsCopiedDoesNotWait) {
    read_until(3);
    staged_ranges_.collect();
    EXPECT_FALSE(staged_ranges_.copying());
    device_.hold(true);
    read_rest();
    const std::vector<size_t> copies = device_.copies();
    ASSERT_EQ(copies.size(), 5u) << "one of 8 MiB is copied, one waits";
    EXPECT_EQ(copies[3], 8 * kMiB);
    EXPECT_EQ(copies[4], 8 * kMiB);
    device_.hold(false);
    while (staged_ranges_.copying()) staged_ranges_.collect();
    ASSERT_TRUE(read_.job->done());
    expect_right(read_);
}

TEST_F(CopyBatchTest, AnErrorOfOneStagedRangeCostsNoOtherOfItsBatch) {
    device_.hold(true);
    device_.fail_copy = 6;  // of the batch that begins with the fifth
    read_rest();
    device_.hold(false);
    while (staged_ranges_.copying()) staged_ranges_.collect();
    ASSERT_TRUE(read_.job->done());
    const Report& report = read_.job->report();
    const uint64_t lost = device_.copies()[5], at = report.error_offset;
    EXPECT_EQ(report.error_number, EIO);
    EXPECT_EQ(report.bytes, kFileSize - lost);
    expect_sums(report);
    EXPECT_TRUE(is_right(read_.memory.data(), 0, at));
    EXPECT_EQ(read_.memory[at], std::byte{0xee});
    EXPECT_TRUE(is_right(read_.memory.data() + at + lost, at + lost, kFileSize - at - lost));
}

TEST_F(StagedRangeTest, TheNthReadThatFailsCostsItsPage) {
    start(3);
    for (uint64_t n = 1; n <= 25; n += testing::usually(1, 3)) {
        SCOPED_TRACE(n);
        file_->reads = 0;
        file_->fail_read = n;
        const Read read = make(0, 18 * kMiB);
        engine_->run(read.job);
        ASSERT_EQ(read.job->result().status().error_number(), EIO);
        const Report& report = read.job->report();
        EXPECT_EQ(report.bytes, 18 * kMiB - 4096);
        expect_sums(report);
        EXPECT_EQ(report.error_route, Route::kCached);
        EXPECT_TRUE(is_right(read.memory.data(), 0, report.error_offset));
        const uint64_t behind = report.error_offset + 4096;
        EXPECT_TRUE(is_right(read.memory.data() + behind, behind, 18 * kMiB - behind));
        EXPECT_EQ(read.memory[report.error_offset], std::byte{0xee}) << "nothing was copied there";
    }
    expect_well();
}

TEST_F(StagedRangeTest, TheNthCopyThatFailsCostsItsBytesAndNoOthers) {
    start(3);
    for (const bool of_word : {false, true}) {
        bool struck = true;
        for (uint64_t n = 1; struck && n < 40; n += testing::usually(1, 2)) {
            SCOPED_TRACE(::testing::Message() << (of_word ? "word " : "copy ") << n);
            device_.forget();
            (of_word ? device_.fail_write : device_.fail_copy) = n;
            const Read read = make(4321, 30 * kMiB);
            engine_->run(read.job);
            const Report& report = read.job->report();
            struck = (of_word ? device_.writes : device_.copies().size()) >= n;
            expect_sums(report);
            if (!struck) {
                expect_right(read);
                continue;
            }
            ASSERT_EQ(read.job->result().status().error_number(), EIO);
            EXPECT_LT(report.bytes, 30 * kMiB);
            if (!of_word) {  // else batches before it may be lost with it
                EXPECT_EQ(report.bytes, 30 * kMiB - device_.copies()[n - 1]);
            }
            EXPECT_EQ(report.error_number, EIO);
            EXPECT_EQ(report.error_route, Route::kCached);
            EXPECT_TRUE(is_right(read.memory.data(), 4321, report.error_offset - 4321));
        }
        EXPECT_FALSE(struck);
    }
    expect_well();
}

TEST_F(StagedRangeTest, ShortReadsThatAreNotCopiedGiveTheirStagingBack) {
    start(1);
    for (const bool of_word : {false, true}) {
        for (int i = 0; i < 40; ++i) {  // more than an executor has slots
            SCOPED_TRACE(::testing::Message() << (of_word ? "word " : "copy ") << i);
            device_.forget();
            (of_word ? device_.fail_write : device_.fail_copy) = 1;
            const Read read = make(4321, 900 << 10);
            engine_->run(read.job);
            ASSERT_EQ(read.job->result().status().error_number(), EIO);
            const Report& report = read.job->report();
            EXPECT_EQ(report.error_number, EIO);
            EXPECT_LT(report.bytes, read.memory.size());
            expect_sums(report);
            EXPECT_TRUE(is_right(read.memory.data(), 4321, report.error_offset - 4321));
        }
    }
    expect_well();
    const Read read = make(4321, 900 << 10);
    engine_->run(read.job);
    expect_right(read);
}

TEST_F(StagedRangeTest, AFileThatIsShorterThanItWasGivesWhatIsThere) {
    start(2);
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const uint64_t now = prng.below(40 * kMiB);
        file_->size_now = now;
        const Read read = make(prng.below(8 * kMiB), 32 * kMiB);
        engine_->run(read.job);
        expect_right(read, now);
        for (uint64_t i = read.there(now); i < read.memory.size(); i += 61)
            ASSERT_EQ(read.memory[i], std::byte{0xee});
    }
    file_->size_now = kFileSize;
    expect_well();
}

TEST_F(StagedRangeTest, AReadThatIsStoppedInTheMiddleOfAStagedRangeEndsAndGivesItsStagingBack) {
    for (const unsigned threads : {1u, 3u}) {
        for (const bool stands : {true, false}) {
            SCOPED_TRACE(::testing::Message() << threads << " threads " << stands);
            start(threads);
            device_.forget();
            // Else some has been sent when it is stopped, and some not been read.
            const uint64_t held_from = stands ? 0 : 32 * kMiB;
            file_->hold_from(held_from);
            device_.hold(!stands);
            for (int i = 0; i < 5; ++i) {
                const Read read = make(0, kFileSize);
                engine_->start(read.job);
                if (stands) {
                    ASSERT_TRUE(file_->wait_inside(threads));
                } else {
                    while (device_.copies().empty()) std::this_thread::yield();
                }
                read.job->stop();
                EXPECT_FALSE(read.job->wait(1ms));
                file_->hold_from(UINT64_MAX);
                device_.hold(false);
                ASSERT_TRUE(read.job->wait(20s));
                EXPECT_EQ(read.job->result().status().error_number(), ECANCELED);
                const Report& report = read.job->report();
                EXPECT_LT(report.bytes, kFileSize);
                EXPECT_EQ(report.error_number, 0) << "nothing failed";
                expect_sums(report);
                uint64_t arrived = 0;
                for (uint64_t at = 0; at + 65536 <= kFileSize; at += 65536)
                    arrived += is_right(read.memory.data() + at, at, 65536) ? 65536 : 0;
                EXPECT_EQ(arrived, report.bytes) << "told is what arrived";
                file_->hold_from(held_from);
                device_.hold(!stands);
                device_.forget();
            }
            file_->hold_from(UINT64_MAX);
            device_.hold(false);
            expect_well();
            engine_.reset();
        }
    }
}

TEST_F(StagedRangeTest, WindowsOfAStoppedReadAreNoError) {
    StagedRanges ranges(&device_);
    std::vector<std::byte> memory(kFileSize);
    const auto job = std::make_shared<Job>(source_,
                                           std::vector<Piece>{{memory.data(), kFileSize, 0}}, false,
                                           true, ReadOptions{}, kMiB, nullptr);
    Window window;
    ASSERT_EQ(job->take({&window, 1}, &ranges), 1u);
    ASSERT_NE(window.range, nullptr);
    FinishedWindow finished{window, {0, window.size, 0}, {}, {}};
    finished.staged_part.extents.push_back({0, window.size});
    finished.staged_part.report.bytes = window.size;
    ranges.finish_window(finished);
    job->stop();
    ASSERT_TRUE(job->done());
    EXPECT_EQ(job->result().status().error_number(), ECANCELED);
    EXPECT_EQ(job->report().error_number, 0);
    EXPECT_EQ(job->report().bytes, 0u);
    EXPECT_TRUE(device_.copies().empty());
}

TEST_F(StagedRangeTest, WithoutPinnedMemoryReadsTakeAnother) {
    device_.pinned_size_max = 4096;
    start(2);
    const Read read = make(99, 20 * kMiB);
    engine_->run(read.job);
    expect_right(read);
    EXPECT_LE(device_.pinned_size, 64 << 10);
}

}  // namespace
}  // namespace penstock::transfer
