// Goal: long reads into memory that the host cannot address take few copies, each of what several
// threads have read, and are byte for byte the file; whatever fails, ends early, stands still or is
// stopped costs the bytes it struck and no staging. Long, since the device, the file and the checks
// are the same for all.
#include "transfer/section.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "base/waits.h"
#include "testing/bytes.h"
#include "transfer/engine.h"
#include "transfer/queue_storage_fixture.h"

namespace penstock::transfer {
namespace {

using namespace std::chrono_literals;
using backend::StreamId;
using storage::Completion;
using storage::Operation;

constexpr uint64_t kMiB = 1 << 20, kFileSize = 40 * kMiB + 12'345;

// The bytes of every file here, from `offset` on, at least 64 KiB of them: a pattern that repeats,
// but not by pages.
const std::byte* content(uint64_t offset) {
    constexpr uint64_t kPeriod = 1'000'003;
    static const std::vector<std::byte> all = [] {
        std::vector<std::byte> bytes(kPeriod + 65536);
        testing::fill_randomly(bytes.data(), kPeriod, 7);
        std::copy_n(bytes.begin(), 65536, bytes.begin() + kPeriod);
        return bytes;
    }();
    return all.data() + offset % kPeriod;
}
void fill(std::byte* to, uint64_t offset, uint64_t size) {
    for (uint64_t at = 0; at < size; at += 65536)
        std::memcpy(to + at, content(offset + at), std::min<uint64_t>(65536, size - at));
}
bool is_right(const std::byte* bytes, uint64_t offset, uint64_t size) {
    for (uint64_t at = 0; at < size; at += 65536) {
        const uint64_t part = std::min<uint64_t>(65536, size - at);
        if (!testing::equal(bytes + at, content(offset + at), part)) return false;
    }
    return true;
}

// A file that no direct reads are offered of, so that all of it goes through the page cache; but
// for what `alignment` says.
class TestFile final : public storage::File {
public:
    explicit TestFile(storage::DirectAlignment alignment = {})
        : File({.size = kFileSize}, alignment, -1) {}
    Status stat(storage::Identity* out) const override {
        *out = identity();
        return {};
    }
    Completion read(const Operation& operation) {
        {
            std::unique_lock lock(mutex_);
            ++inside_;
            changed_.notify_all();
            changed_.wait(lock, [&] { return operation.offset < held_from_; });
            --inside_;
        }
        Completion completion{operation.cookie, 0, 0};
        if (++reads == fail_read) {
            completion.error = EIO;
            return completion;
        }
        for (const iovec& piece : operation.pieces) {
            const uint64_t at = operation.offset + completion.bytes, end = size_now.load();
            const uint64_t good = at < end ? std::min<uint64_t>(piece.iov_len, end - at) : 0;
            fill(static_cast<std::byte*>(piece.iov_base), at, good);
            completion.bytes += good;
            if (good < piece.iov_len) break;
        }
        return completion;
    }
    // Reads from this byte on stand still.
    void hold_from(uint64_t offset) {
        const std::lock_guard lock(mutex_);
        held_from_ = offset;
        changed_.notify_all();
    }
    bool wait_inside(unsigned count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 20s, [&] { return inside_ == count; });
    }

    std::atomic<uint64_t> reads{0}, fail_read{0}, size_now{kFileSize};

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t held_from_ = UINT64_MAX;
    unsigned inside_ = 0;
};

class TestStorage final : public QueueStorage {
public:
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override {
        return std::unique_ptr<storage::Queue>(
            std::make_unique<storage::InstantQueue<ReadByFile<TestFile>>>(depth));
    }
};

// Its streams do what they are told at once, or, where they are held, when they are let go on.
class TestDevice final : public backend::Device {
public:
    TestDevice() {
        properties_.name = "test";
        properties_.host_addressable = false;
    }
    const backend::Properties& properties() const override { return properties_; }
    Status allocate(size_t size, backend::Memory, void** out) override {
        if (size > kMiB) call(&on_pin);
        const std::lock_guard lock(mutex_);
        if (size > pinned_size_max) return {ENOMEM, "allocate", "as the test asked"};
        pinned_size += size;
        *out = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
        std::memset(*out, 0, std::min<size_t>(size, 4096));
        return {};
    }
    void free(void* pointer) override { std::free(pointer); }
    size_t free_memory() const override { return size_t{1} << 30; }
    Status create_stream(int, StreamId* out) override {
        const std::lock_guard lock(mutex_);
        *out = ++streams_;
        return {};
    }
    Status destroy_stream(StreamId) override { return {}; }
    Status launch(StreamId, LaunchRequest) override { return {ENOSYS, "launch", ""}; }
    Status copy(StreamId stream, void* to, const void* from, size_t size) override {
        call(&on_copy);
        const std::lock_guard lock(mutex_);
        copied_.emplace_back(static_cast<std::byte*>(to), size);
        if (copied_.size() == fail_copy) return {EIO, "copy", "as the test asked"};
        operations_.push_back({stream, static_cast<std::byte*>(to), from, size, 0});
        go_on();
        return {};
    }
    Status fill(StreamId, void*, uint8_t, size_t) override { return {ENOSYS, "fill", ""}; }
    Status write_value(StreamId stream, uint64_t* address, uint64_t value) override {
        call(&on_write);
        const std::lock_guard lock(mutex_);
        if (++writes == fail_write) return {EIO, "write_value", "as the test asked"};
        operations_.push_back({stream, reinterpret_cast<std::byte*>(address), nullptr, 8, value});
        go_on();
        return {};
    }
    Status synchronize(StreamId, backend::Deadline) override { return {ENOSYS, "wait", ""}; }
    Status query(StreamId stream, bool* idle) override {
        call(&on_query);
        const std::lock_guard lock(mutex_);
        *idle = std::none_of(operations_.begin(), operations_.end(),
                             [&](const Operation& one) { return one.stream == stream; });
        return {};
    }
    bool kernels_in_flight() const override { return false; }
    void poll() override {}
    Status add_help(backend::Help) override { return {}; }
    void remove_help(void*) override {}
    void notify(const uint64_t*, size_t) override {}
    void wait_changed(const uint64_t*, uint64_t, std::chrono::nanoseconds) override {}
    std::string diagnosis() const override { return ""; }
    void abort(Status) override {}

    void hold(bool held) {
        const std::lock_guard lock(mutex_);
        held_ = held;
        go_on();
    }
    void forget() {
        const std::lock_guard lock(mutex_);
        copied_.clear();
        fail_copy = fail_write = writes = 0;
    }
    // Their sizes, in the order in which they were asked for.
    std::vector<size_t> copies() {
        const std::lock_guard lock(mutex_);
        return sizes_of(copied_);
    }
    // By where they go: a thread that was stopped may send the first of a read late.
    std::vector<size_t> copies_by_place() {
        const std::lock_guard lock(mutex_);
        auto copied = copied_;
        std::sort(copied.begin(), copied.end());
        return sizes_of(copied);
    }

    size_t fail_copy = 0, fail_write = 0, writes = 0;  // the n-th fails; 0: none
    size_t pinned_size = 0, pinned_size_max = SIZE_MAX;
    // Called once, before the device does as it is told; the last for more than a MiB.
    std::function<void()> on_copy, on_query, on_write, on_pin;

private:
    void call(std::function<void()>* hook) {
        std::function<void()> now;
        {
            const std::lock_guard lock(mutex_);
            now.swap(*hook);
        }
        if (now) now();
    }
    struct Operation {
        StreamId stream;
        std::byte* to;
        const void* from;  // null: a store of `value`
        size_t size;
        uint64_t value;
    };

    static std::vector<size_t> sizes_of(const std::vector<std::pair<std::byte*, size_t>>& copied) {
        std::vector<size_t> sizes;
        for (const auto& [to, size] : copied) sizes.push_back(size);
        return sizes;
    }
    void go_on() {
        for (; !held_ && !operations_.empty(); operations_.pop_front()) {
            const Operation& one = operations_.front();
            if (one.from != nullptr) {
                std::memcpy(one.to, one.from, one.size);
            } else {
                __atomic_store_n(reinterpret_cast<uint64_t*>(one.to), one.value, __ATOMIC_RELEASE);
            }
        }
    }

    mutable std::mutex mutex_;
    backend::Properties properties_;
    StreamId streams_ = 0;
    std::deque<Operation> operations_;
    std::vector<std::pair<std::byte*, size_t>> copied_;
    bool held_ = false;
};

// A read into device memory.
struct Read {
    std::vector<std::byte> memory;
    uint64_t offset = 0;
    std::shared_ptr<Job> job;

    [[nodiscard]] uint64_t there(uint64_t file_size = kFileSize) const {
        return offset < file_size ? std::min<uint64_t>(memory.size(), file_size - offset) : 0;
    }
};

void expect_sums(const Report& report) {
    const auto sum = [](const auto& all) {
        return std::accumulate(all.begin(), all.end(), uint64_t{0});
    };
    EXPECT_EQ(sum(report.route_bytes), report.bytes);
    EXPECT_EQ(sum(report.reason_bytes), report.bytes);
    EXPECT_EQ(sum(report.residency_bytes), report.bytes);
}

class SectionTest : public ::testing::Test {
protected:
    void start(unsigned threads) {
        auto made = Engine::create(storage_, &device_, {threads, {}});
        ASSERT_TRUE(made.ok()) << made.status().message();
        engine_ = std::move(made.value());
    }
    Read make(uint64_t offset, uint64_t size, const std::shared_ptr<Source>& source) {
        Read read{std::vector<std::byte>(size, std::byte{0xee}), offset, nullptr};
        const uint64_t window_size = engine_->window_size(size, source->hot(), true, true);
        read.job = std::make_shared<Job>(source,
                                         std::vector<Piece>{{read.memory.data(), size, offset}},
                                         false, true, ReadOptions{}, window_size, nullptr);
        return read;
    }
    Read make(uint64_t offset, uint64_t size) { return make(offset, size, source_); }
    static void expect_right(const Read& read, uint64_t file_size = kFileSize) {
        ASSERT_TRUE(read.job->result().ok()) << read.job->result().status().message();
        EXPECT_EQ(read.job->result().value(), read.there(file_size));
        EXPECT_EQ(read.job->report().bytes, read.there(file_size));
        EXPECT_TRUE(is_right(read.memory.data(), read.offset, read.there(file_size)));
        expect_sums(read.job->report());
    }
    // All staging is free again, and everything works.
    void expect_well() {
        device_.forget();
        file_->fail_read = 0;
        const Read whole = make(0, kFileSize);
        engine_->run(whole.job);
        expect_right(whole);
    }

    TestDevice device_;
    const std::shared_ptr<TestStorage> storage_ = std::make_shared<TestStorage>();
    std::shared_ptr<TestFile> file_ = std::make_shared<TestFile>();
    std::shared_ptr<Source> source_ = std::make_shared<Source>(file_);
    std::unique_ptr<Engine> engine_;
};

TEST_F(SectionTest, ALongReadTakesFewCopiesTheFirstAndTheLastOfThemShort) {
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
        EXPECT_LE(device_.pinned_size, (32 + 3) * kMiB) << "the ring, and words";
        device_.pinned_size = 0;
        engine_.reset();
    }
}

TEST_F(SectionTest, NoSectionIsAFewBytesLong) {
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

TEST_F(SectionTest, WhereSomethingMissedSectionsBeginOnlyBehindALongHotStretch) {
    constexpr int kLong = 16;  // looks
    Sections sections(&device_);
    std::vector<std::byte> memory(kFileSize);
    const auto file = std::make_shared<TestFile>(storage::DirectAlignment{4096, 4096});
    const auto source = std::make_shared<Source>(file);
    const auto job = std::make_shared<Job>(source,
                                           std::vector<Piece>{{memory.data(), kFileSize, 0}}, false,
                                           true, ReadOptions{}, kMiB, nullptr);
    std::vector<Section*> opened;
    const auto in_section = [&] {
        Window window;
        EXPECT_EQ(job->take({&window, 1}, &sections), 1u);
        if (window.section != nullptr && (opened.empty() || opened.back() != window.section))
            opened.push_back(window.section);
        return window.section != nullptr;
    };
    source->looked(true);
    EXPECT_TRUE(in_section()) << "a read begins in good faith";
    source->looked(false);
    int taken = 1;
    while (taken < 100 && in_section()) ++taken;
    EXPECT_LT(taken, 100) << "what was cut is given out, and no more";
    for (int look = 1; look < kLong; ++look) {
        source->looked(true);
        EXPECT_FALSE(in_section()) << look;
    }
    source->looked(true);
    EXPECT_TRUE(in_section());
    EXPECT_EQ(opened.size(), 2u);
}

TEST_F(SectionTest, RandomReadsOfManyCallersEqualTheFileOrAreStopped) {
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
        for (size_t i = 0; i < reads.size(); ++i) {
            if (i % 3 != 0) engine_->start(reads[i].job);
            if (i > 1 && stopped[i - 1]) reads[i - 1].job->stop();
        }
        caller.join();
        for (size_t i = 0; i < reads.size(); ++i) {
            ASSERT_TRUE(reads[i].job->wait(30s));
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

TEST_F(SectionTest, TheNthReadThatFailsCostsItsPage) {
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

TEST_F(SectionTest, TheNthCopyThatFailsCostsItsBytesAndNoOthers) {
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
            if (!of_word) {  // else lots before it may be lost with it
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

TEST_F(SectionTest, AFileThatIsShorterThanItWasGivesWhatIsThere) {
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

TEST_F(SectionTest, AReadThatIsStoppedInTheMiddleOfASectionEndsAndGivesItsStagingBack) {
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

TEST_F(SectionTest, WhatNobodyWantsAnyMoreIsNoError) {
    Sections sections(&device_);
    std::vector<std::byte> memory(kFileSize);
    const auto job = std::make_shared<Job>(source_,
                                           std::vector<Piece>{{memory.data(), kFileSize, 0}}, false,
                                           true, ReadOptions{}, kMiB, nullptr);
    Window window;
    ASSERT_EQ(job->take({&window, 1}, &sections), 1u);
    ASSERT_NE(window.section, nullptr);
    Section::Landed landed{window, {0, window.size, 0}, {}, {}};
    landed.landing.extents.push_back({0, window.size});
    landed.landing.report.bytes = window.size;
    sections.land(window.section, landed);
    job->stop();
    ASSERT_TRUE(job->done());
    EXPECT_EQ(job->result().status().error_number(), ECANCELED);
    EXPECT_EQ(job->report().error_number, 0);
    EXPECT_EQ(job->report().bytes, 0u);
    EXPECT_TRUE(device_.copies().empty());
}

// Waking up takes longer than those copies do. For each read once: copies that never end cost no
// CPU.
TEST_F(SectionTest, WhoWaitsIsAwakeForAMomentWhenNothingButCopiesIsMissing) {
    if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "nobody is awake on one CPU";
    start(2);
    bool counted = true, awake = false;
    // It may be held up before it comes to wait, and the moment be over.
    for (int i = 0; i < 100 && counted && !awake; ++i) {
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
        for (int k = 0; k < 10 && !awake; ++k) awake = !waits(100us);
        EXPECT_FALSE(read.job->wait(0ns));
        EXPECT_FALSE(read.job->wait(-24h));
        EXPECT_TRUE(waits(5ms)) << "the moment is over";
        EXPECT_TRUE(waits(100us));
        device_.hold(false);
        ASSERT_TRUE(read.job->wait(20s));
        expect_right(read);
    }
    EXPECT_TRUE(awake || !counted);
}

TEST_F(SectionTest, WhileTheDeviceStandsStillOtherReadsOfTheHostGoOn) {
    start(2);
    device_.hold(true);
    std::vector<Read> reads;
    for (int i = 0; i < 3; ++i) {
        reads.push_back(make(0, kFileSize));
        engine_->start(reads.back().job);
    }
    while (device_.copies().size() < 4) std::this_thread::yield();
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

// Its copy is begun by a caller who then has nothing left to do here, at a moment when the engine's
// thread sees none under way. Where the naps below are too short there is nothing to see.
TEST_F(SectionTest, AReadWhoseLastCopyACallerBeginsIsToldOfWithoutAnother) {
    constexpr auto kNap = 20ms;
    start(1);
    const auto file = std::make_shared<TestFile>();
    file->hold_from(kMiB / 2);
    const Read left = make(0, kMiB, std::make_shared<Source>(file));
    const Read whole = make(0, kMiB);
    device_.hold(true);
    engine_->start(left.job);
    ASSERT_TRUE(file->wait_inside(1));
    device_.on_query = [&] {  // by the caller, who looks after his own copy
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

TEST_F(SectionTest, AReadWhoseSenderThenStandsStillInAnotherFileIsToldOf) {
    start(2);
    const auto file = std::make_shared<TestFile>();
    file->hold_from(0);
    const Read standing = make(0, 4096, std::make_shared<Source>(file));
    // By the thread that sends the copy, which looks out for more behind it.
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

TEST_F(SectionTest, WhileMemoryIsPinnedTheReadCanBeStopped) {
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

TEST_F(SectionTest, WithoutPinnedMemoryReadsTakeAnother) {
    device_.pinned_size_max = 4096;
    start(2);
    const Read read = make(99, 20 * kMiB);
    engine_->run(read.job);
    expect_right(read);
    EXPECT_LE(device_.pinned_size, 64 << 10);
}

}  // namespace
}  // namespace penstock::transfer
