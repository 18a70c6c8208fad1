// Goal: no file's reads wait for another file's longer than for what is under way; what a thread
// gives back is read once and can be stopped; executors are made when they are needed; callers of
// short reads do not wait for each other; kernels are told of small reads ahead exactly where reads
// one by one are slow.
#include "transfer/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "planner/route_policy.h"
#include "testing/bytes.h"
#include "transfer/job_scheduler.h"
#include "transfer/queue_storage_fixture.h"

namespace penstock::transfer {
namespace {

using namespace std::chrono_literals;
using storage::Completion;
using storage::Operation;

constexpr uint64_t kFileSize = 64 << 20;

// The bytes of every file here, from `offset` on: a pattern that repeats, but not by pages.
const std::byte* content(uint64_t offset) {
    constexpr uint64_t kPeriod = 1'000'003, kSizeMax = 4 << 20;
    static const std::vector<std::byte> all = [] {
        base::Prng prng(7);
        std::vector<std::byte> period(kPeriod), bytes;
        for (std::byte& byte : period) byte = std::byte(prng.next());
        while (bytes.size() < kPeriod + kSizeMax)
            bytes.insert(bytes.end(), period.begin(), period.end());
        return bytes;
    }();
    return all.data() + offset % kPeriod;
}

// Holds each caller until it is let through.
class Gate {
public:
    void pass() {
        std::unique_lock lock(mutex_);
        ++inside_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return tokens_ > 0; });
        --tokens_;
        --inside_;
        ++passed_;
    }
    // From now on so many more may pass.
    void let(uint64_t count) {
        const std::lock_guard lock(mutex_);
        tokens_ += count;
        changed_.notify_all();
    }
    bool wait_inside(unsigned count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 20s, [&] { return inside_ == count; });
    }
    [[nodiscard]] uint64_t passed() const {
        const std::lock_guard lock(mutex_);
        return passed_;
    }

private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t tokens_ = 0, passed_ = 0;
    unsigned inside_ = 0;
};

// A file without a page cache whose reads pass a gate, if it has one.
class TestFile final : public storage::File {
public:
    explicit TestFile(Gate* gate = nullptr, std::chrono::nanoseconds delay_ns = {})
        : File({.size = kFileSize}, {}, -1), delay(delay_ns), gate_(gate) {}

    Status stat(storage::Identity* out) const override {
        *out = identity();
        return {};
    }
    Completion read(const Operation& operation) {
        if (gate_ != nullptr) gate_->pass();
        if (delay.load() > 0ns) std::this_thread::sleep_for(delay.load());
        ++reads;
        Completion completion{operation.cookie, 0, 0};
        for (const iovec& piece : operation.pieces) {
            std::memcpy(piece.iov_base, content(operation.offset + completion.bytes),
                        piece.iov_len);
            completion.bytes += piece.iov_len;
        }
        return completion;
    }

    void announce(uint64_t offset, uint64_t size) const override {
        announced_size += size;
        announced_last = offset;
    }

    std::atomic<std::chrono::nanoseconds> delay;  // of each read
    std::atomic<uint64_t> reads{0};
    mutable std::atomic<uint64_t> announced_size{0}, announced_last{0};

private:
    Gate* const gate_;
};

class TestStorage final : public QueueStorage {
public:
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        if (++queues > queues_max) return Status{ENOMEM, "make_queue", "no more"};
        return std::unique_ptr<storage::Queue>(
            std::make_unique<storage::InstantQueue<ReadByFile<TestFile>>>(depth));
    }

    std::atomic<unsigned> queues{0};
    unsigned queues_max = 1000;
};

// A file whose reads each wait to be let through.
struct StandingFile {
    Gate gate;
    std::shared_ptr<TestFile> file = std::make_shared<TestFile>(&gate);
    std::shared_ptr<Source> source = std::make_shared<Source>(file);
};

class EngineTest : public ::testing::Test {
protected:
    void start(unsigned threads) {
        auto made = Engine::create(storage_, nullptr, {threads, {}});
        ASSERT_TRUE(made.ok()) << made.status().message();
        engine_ = std::move(made.value());
    }

    // `count` pieces of `size` bytes each, from the start of the file on.
    std::shared_ptr<Job> make_job(const std::shared_ptr<Source>& source, size_t count,
                                  uint64_t size) {
        auto memory = std::make_shared<std::vector<std::byte>>(count * size);
        std::vector<Piece> pieces;
        for (size_t i = 0; i < count; ++i)
            pieces.push_back({memory->data() + i * size, size, i * size});
        memory_.push_back(memory);
        return std::make_shared<Job>(source, std::move(pieces), false, false, ReadOptions{},
                                     1 << 20, nullptr);
    }
    // Pieces of 64 bytes each, `apart` from one to the next.
    std::shared_ptr<Job> make_scattered(const std::shared_ptr<Source>& source, size_t count,
                                        uint64_t apart, const ReadOptions& options = {}) {
        auto memory = std::make_shared<std::vector<std::byte>>(count * 64);
        std::vector<Piece> pieces;
        for (size_t i = 0; i < count; ++i)
            pieces.push_back({memory->data() + i * 64, 64, i * apart});
        memory_.push_back(memory);
        return std::make_shared<Job>(source, std::move(pieces), false, false, options, 1 << 20,
                                     nullptr);
    }
    std::shared_ptr<Job> start_job(const std::shared_ptr<Source>& source, size_t count,
                                   uint64_t size) {
        auto job = make_job(source, count, size);
        engine_->start(job);
        return job;
    }
    static void expect_right(const Job& job, size_t count) {
        ASSERT_TRUE(job.result().ok()) << job.result().status().message();
        uint64_t size = 0;
        for (size_t i = 0; i < count; ++i) {
            const Piece& piece = job.piece(i);
            size += piece.size;
            ASSERT_TRUE(testing::equal(piece.to, content(piece.offset), piece.size));
        }
        EXPECT_EQ(job.result().value(), size);
        EXPECT_EQ(job.report().bytes, size);
    }

    std::shared_ptr<TestStorage> storage_ = std::make_shared<TestStorage>();
    std::shared_ptr<Source> quick_ = std::make_shared<Source>(std::make_shared<TestFile>());
    std::vector<std::shared_ptr<std::vector<std::byte>>> memory_;
    std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AFileThatStandsStillHoldsOthersUpForTheOperationUnderWayOnly) {
    constexpr uint64_t kMiB = 1 << 20;
    for (const unsigned threads : {1u, 2u, 5u}) {
        for (const uint64_t size : {uint64_t{4096}, kMiB}) {
            SCOPED_TRACE(::testing::Message() << threads << " threads, pieces of " << size);
            StandingFile slow;
            start(threads);
            const size_t count = size == kMiB ? 20 : 500;
            const auto many = start_job(slow.source, count, size);
            ASSERT_TRUE(slow.gate.wait_inside(threads)) << "all are in the slow file";
            const auto few = start_job(quick_, 1, 4096);
            EXPECT_FALSE(few->wait(1ms));
            std::this_thread::sleep_for(25ms);  // longer than a batch may take
            slow.gate.let(1);
            EXPECT_TRUE(few->wait(20s));
            EXPECT_EQ(slow.gate.passed(), 1u);
            slow.gate.let(1000);
            ASSERT_TRUE(many->wait(20s));
            expect_right(*many, count);
            ASSERT_TRUE(few->wait(20s));
            expect_right(*few, 1);
            engine_.reset();
        }
    }
}

TEST_F(EngineTest, WhatASlowBatchPutsBackIsReadOnceOrStopped) {
    for (const bool stopped : {false, true}) {
        SCOPED_TRACE(stopped);
        StandingFile slow;
        start(1);
        const auto job = start_job(slow.source, 100, 4096);
        ASSERT_TRUE(slow.gate.wait_inside(1));
        std::this_thread::sleep_for(25ms);
        slow.gate.let(1);
        while (slow.gate.passed() < 1) std::this_thread::yield();
        ASSERT_TRUE(slow.gate.wait_inside(1));
        std::this_thread::sleep_for(25ms);
        if (stopped) job->stop();
        slow.gate.let(1000);
        ASSERT_TRUE(job->wait(20s));
        if (stopped) {
            EXPECT_EQ(job->result().status().error_number(), ECANCELED);
            EXPECT_EQ(slow.file->reads, 2u);
        } else {
            expect_right(*job, 100);
            EXPECT_EQ(slow.file->reads, 100u);
        }
        engine_.reset();
    }
}

TEST_F(EngineTest, ExecutorsAreMadeWhenTheyAreNeeded) {
    start(8);
    EXPECT_EQ(storage_->queues, 1u);
    SmallOutcome outcome;
    std::byte to[100];
    ASSERT_TRUE(engine_->move_small(*quick_, {to, sizeof to, 5}, false, {}, &outcome));
    EXPECT_EQ(outcome.completion.bytes, sizeof to);
    EXPECT_LE(storage_->queues, 2u);
    StandingFile slow;
    std::vector<std::shared_ptr<Job>> jobs;
    for (int i = 0; i < 8; ++i) jobs.push_back(start_job(slow.source, 1, 4096));
    ASSERT_TRUE(slow.gate.wait_inside(8)) << "all threads work";
    EXPECT_LE(storage_->queues, 9u);
    slow.gate.let(8);
    for (const auto& job : jobs) ASSERT_TRUE(job->wait(20s));
}

TEST_F(EngineTest, WithoutMemoryForMoreOneExecutorDoesIt) {
    storage_->queues_max = 1;
    start(4);
    std::vector<std::shared_ptr<Job>> jobs;
    for (int i = 0; i < 50; ++i) {
        jobs.push_back(start_job(quick_, 100, 1000));
        if (i % 10 == 0) engine_->run(make_job(quick_, 3, 2 << 20));
    }
    for (const auto& job : jobs) {
        ASSERT_TRUE(job->wait(20s));
        expect_right(*job, 100);
    }
}

TEST_F(EngineTest, ReadsThatACallbackStartsAreInSeveralHands) {
    constexpr unsigned kThreads = 4;
    StandingFile slow;
    start(kThreads);
    std::vector<std::shared_ptr<Job>> jobs;
    for (unsigned i = 0; i < kThreads; ++i) jobs.push_back(make_job(slow.source, 1, 1 << 20));
    const auto first = make_job(quick_, 1, 1 << 20);
    first->on_done([&] {
        for (const auto& job : jobs) engine_->start(job);
    });
    engine_->start(first);
    EXPECT_TRUE(slow.gate.wait_inside(kThreads));
    slow.gate.let(1000);
    for (const auto& job : jobs) {
        ASSERT_TRUE(job->wait(20s));
        expect_right(*job, 1);
    }
}

TEST_F(EngineTest, AReadThatIsStartedWhileACallbackRunsIsInOtherHands) {
    start(2);
    Gate gate;
    const auto first = make_job(quick_, 1, 1 << 20);
    first->on_done([&] { gate.pass(); });
    engine_->start(first);
    ASSERT_TRUE(gate.wait_inside(1));
    EXPECT_TRUE(start_job(quick_, 1, 1 << 20)->wait(20s));
    gate.let(1);
    engine_.reset();
}

// A thread that still spins takes one of the reads, and a thread that is woken takes the other.
TEST_F(EngineTest, ReadsThatAreStartedAtOnceAreInSeveralHands) {
    start(2);
    for (int i = 0; i < 300; ++i) {
        StandingFile slow;
        const std::shared_ptr<Job> jobs[] = {make_job(slow.source, 1, 1 << 20),
                                             make_job(slow.source, 1, 1 << 20)};
        ASSERT_TRUE(start_job(quick_, 1, 1 << 20)->wait(20s));
        for (const auto& job : jobs) engine_->start(job);
        const bool both = slow.gate.wait_inside(2);
        slow.gate.let(2);
        for (const auto& job : jobs) ASSERT_TRUE(job->wait(20s));
        ASSERT_TRUE(both) << i;
        memory_.clear();
    }
}

// Callers that wait for storage need no CPU, so more of them than threads read at the same time.
// The callers that share a longer job with the threads are no more than the threads.
TEST_F(EngineTest, CallersOfShortReadsDoNotWaitForEachOther) {
    constexpr unsigned kCallers = 12;
    for (const uint64_t size : {uint64_t{4096}, uint64_t{1} << 20}) {
        SCOPED_TRACE(size);
        StandingFile slow;
        start(2);
        std::vector<std::shared_ptr<Job>> jobs;
        for (unsigned i = 0; i < kCallers; ++i) jobs.push_back(make_job(slow.source, 1, size));
        std::vector<std::byte> bytes(kCallers * size);
        std::vector<std::thread> callers;
        for (unsigned i = 0; i < kCallers; ++i) {
            callers.emplace_back([&, i] {
                SmallOutcome outcome;
                const Piece piece{bytes.data() + i * size, size, 0};
                const bool small = size < planner::kPlanSizeMin;
                if (!small || !engine_->move_small(*slow.source, piece, false, {}, &outcome))
                    engine_->run(jobs[i]);
            });
        }
        EXPECT_TRUE(slow.gate.wait_inside(kCallers));
        slow.gate.let(kCallers);
        for (std::thread& caller : callers) caller.join();
        EXPECT_EQ(slow.gate.passed(), kCallers);
        engine_.reset();
    }
}

TEST_F(EngineTest, BatchesThatAreSlowAreAnnouncedUntilTheyAreQuickAgain) {
    start(1);
    const auto file = std::make_shared<TestFile>(nullptr, 30us);
    const auto source = std::make_shared<Source>(file);
    constexpr uint64_t kApart = 64 << 10;
    const auto run = [&](size_t count, uint64_t apart, const ReadOptions& options = {}) {
        const auto job = make_scattered(source, count, apart, options);
        engine_->run(job);
        expect_right(*job, count);
        return file->announced_size.exchange(0);
    };
    EXPECT_EQ(run(1, kApart), 0u) << "nothing was known";
    EXPECT_GE(run(16, kApart), 16u * 64);  // more when it was put back in between
    EXPECT_EQ(file->announced_last, 15 * kApart);
    EXPECT_EQ(run(16, 64), 0u) << "the kernel reads ahead in one stretch";
    ReadOptions drop;
    drop.cache = CachePolicy::kDrop;
    EXPECT_EQ(run(16, kApart, drop), 0u) << "nothing is to stay";
    file->delay = 0us;
    for (int i = 0; i < 1000 && source->trial.slow_batches(); ++i) (void)run(16, kApart);
    EXPECT_EQ(run(16, kApart), 0u);
}

TEST_F(EngineTest, RandomJobsOfManyFilesAndCallersEndRight) {
    std::vector<std::shared_ptr<Source>> sources;
    for (int i = 0; i < 6; ++i) {
        const auto delay = i == 5 ? 3ms : i == 4 ? 200us : 0us;  // some put their batches back
        sources.push_back(std::make_shared<Source>(std::make_shared<TestFile>(nullptr, delay)));
    }
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        start(1 + static_cast<unsigned>(prng.below(4)));
        struct One {
            std::shared_ptr<Job> job;
            size_t count;
            bool stopped;
        };
        std::vector<One> all;
        for (int i = 0; i < 40; ++i) {
            const size_t count = 1 + prng.below(prng.below(4) == 0 ? 80 : 5);
            const uint64_t size = prng.below(count > 5 || prng.below(2) == 0 ? 6000 : 3 << 20);
            const auto& source = sources[prng.below(sources.size())];
            all.push_back({make_job(source, count, size), count, prng.below(8) == 0});
        }
        std::thread caller([&] {
            for (size_t i = 0; i < all.size(); i += 4) engine_->run(all[i].job);
        });
        for (size_t i = 0; i < all.size(); ++i) {
            if (i % 4 != 0) engine_->start(all[i].job);
            if (i % 4 != 0 && all[i].stopped) all[i].job->stop();
        }
        caller.join();
        for (size_t i = 0; i < all.size(); ++i) {
            ASSERT_TRUE(all[i].job->wait(30s));
            const bool stopped = all[i].job->result().status().error_number() == ECANCELED;
            ASSERT_TRUE(!stopped || all[i].stopped);
            if (!stopped) expect_right(*all[i].job, all[i].count);
            if (HasFatalFailure()) return;
        }
        engine_.reset();
        memory_.clear();
    }
}

class JobSchedulerTest : public ::testing::Test {
protected:
    static std::shared_ptr<Source> make_source() {
        return std::make_shared<Source>(std::make_shared<TestFile>());
    }
    std::shared_ptr<Job> add(JobScheduler* scheduler, const std::shared_ptr<Source>& source,
                             uint64_t now_ns) {
        auto job = std::make_shared<Job>(source, std::vector<Piece>{{&byte_, 1, 0}}, false, false,
                                         ReadOptions{}, 1 << 20, nullptr);
        scheduler->add(job, now_ns);
        return job;
    }
    std::byte byte_{};
    const std::shared_ptr<Source> first_ = make_source(), second_ = make_source(),
                                  third_ = make_source();
};

TEST_F(JobSchedulerTest, SourcesTakeTurnsAndTheJobsOfOneGoInOrder) {
    JobScheduler scheduler(2);
    const auto a = add(&scheduler, first_, 0), b = add(&scheduler, first_, 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(scheduler.begin(0, 0), a);
    const auto c = add(&scheduler, second_, 0), d = add(&scheduler, third_, 0);
    std::vector<std::shared_ptr<Job>> seen;
    for (int i = 0; i < 6; ++i) seen.push_back(scheduler.begin(1, 0));
    for (const auto& job : {a, c, d}) EXPECT_EQ(std::count(seen.begin(), seen.end(), job), 2);
    scheduler.retire(a);
    scheduler.retire(a);
    scheduler.retire(c);
    EXPECT_EQ(scheduler.waiting(), 2u);
    seen.clear();
    for (int i = 0; i < 4; ++i) seen.push_back(scheduler.begin(1, 0));
    for (const auto& job : {b, d}) EXPECT_EQ(std::count(seen.begin(), seen.end(), job), 2);
    scheduler.restore(c);
    scheduler.restore(c);
    EXPECT_EQ(scheduler.waiting(), 3u);
}

TEST_F(JobSchedulerTest, ASlowSourceLeavesOneThreadToOthersWhileThereAreAny) {
    constexpr uint64_t kSlow = JobScheduler::kSlowNs;
    JobScheduler scheduler(3);
    const auto slow = add(&scheduler, first_, 0);
    for (unsigned thread = 0; thread < 3; ++thread) EXPECT_EQ(scheduler.begin(thread, 0), slow);
    scheduler.end(2, first_.get(), kSlow, kSlow);
    EXPECT_EQ(scheduler.begin(2, kSlow), slow) << "no other source has jobs";
    const auto quick = add(&scheduler, second_, kSlow);
    scheduler.end(2, first_.get(), kSlow, 2 * kSlow);
    EXPECT_EQ(scheduler.begin(2, 2 * kSlow), quick);
    scheduler.end(2, second_.get(), 0, 2 * kSlow);
    scheduler.retire(quick);
    EXPECT_EQ(scheduler.begin(2, 2 * kSlow), nullptr) << "the others may come again";
    scheduler.end(1, first_.get(), kSlow, 3 * kSlow);
    EXPECT_EQ(scheduler.begin(2, 3 * kSlow), slow) << "now thread 1 is left";
    EXPECT_EQ(scheduler.begin(2, 3 * kSlow), slow) << "it makes no difference to them";
    EXPECT_EQ(scheduler.begin(1, 3 * kSlow), nullptr);
    EXPECT_EQ(scheduler.begin(1, kSlow + JobScheduler::kSharedForNs), slow) << "they did not come";
}

TEST_F(JobSchedulerTest, OneThreadGoesOnWithASlowSource) {
    JobScheduler scheduler(1);
    const auto slow = add(&scheduler, first_, 0);
    const auto quick = add(&scheduler, second_, 0);
    std::vector<std::shared_ptr<Job>> seen;
    for (int i = 0; i < 4; ++i) {
        seen.push_back(scheduler.begin(0, 0));
        scheduler.end(0, &seen.back()->source(), JobScheduler::kSlowNs, 0);
    }
    for (const auto& job : {slow, quick}) EXPECT_EQ(std::count(seen.begin(), seen.end(), job), 2);
}

}  // namespace
}  // namespace penstock::transfer
