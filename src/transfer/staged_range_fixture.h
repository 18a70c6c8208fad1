// Shared by tests of staged ranges: files of known bytes, a device whose memory the host cannot
// address, and reads by an engine. Files and device stop or fail when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

#include "testing/bytes.h"
#include "transfer/engine.h"
#include "transfer/queue_storage_fixture.h"
#include "transfer/staged_range.h"

namespace penstock::transfer::staged_range_fixture {

using namespace std::chrono_literals;
using backend::StreamId;
using storage::Completion;
using storage::Operation;

inline constexpr uint64_t kMiB = 1 << 20, kFileSize = 40 * kMiB + 12'345;

// The bytes of each file from `offset` on, at least 64 KiB: a pattern that repeats, but not by
// pages.
inline const std::byte* content(uint64_t offset) {
    constexpr uint64_t kPeriod = 1'000'003;
    static const std::vector<std::byte> all = [] {
        std::vector<std::byte> bytes(kPeriod + 65536);
        testing::fill_randomly(bytes.data(), kPeriod, 7);
        std::copy_n(bytes.begin(), 65536, bytes.begin() + kPeriod);
        return bytes;
    }();
    return all.data() + offset % kPeriod;
}
inline void fill(std::byte* to, uint64_t offset, uint64_t size) {
    for (uint64_t at = 0; at < size; at += 65536)
        std::memcpy(to + at, content(offset + at), std::min<uint64_t>(65536, size - at));
}
inline bool is_right(const std::byte* bytes, uint64_t offset, uint64_t size) {
    for (uint64_t at = 0; at < size; at += 65536) {
        const uint64_t part = std::min<uint64_t>(65536, size - at);
        if (!testing::equal(bytes + at, content(offset + at), part)) return false;
    }
    return true;
}

// A file without direct reads, unless `alignment` is set, so that all reads go through the page
// cache.
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
    // Reads from this byte on are held.
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

// Streams execute operations at once. While hold() is in force, operations wait for its end.
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
        if (copied_.size() == fail_copy) bad_ = to;
        if (to == bad_) return {EIO, "copy", "as the test asked"};
        operations_.push_back({stream, static_cast<std::byte*>(to), from, size, 0});
        go_on();
        return {};
    }
    Status copy_all(StreamId stream, std::span<const backend::CopyPart> parts) override {
        {
            const std::lock_guard lock(mutex_);
            calls_.push_back(parts.size());
        }
        return backend::Device::copy_all(stream, parts);
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
        calls_.clear();
        fail_copy = fail_write = writes = 0;
        bad_ = nullptr;
    }
    // Sizes of the copies, in the order of submission.
    std::vector<size_t> copies() {
        const std::lock_guard lock(mutex_);
        return sizes_of(copied_);
    }
    // The number of copies of each call.
    std::vector<size_t> calls() {
        const std::lock_guard lock(mutex_);
        return calls_;
    }
    // Sizes of the copies by destination. A preempted thread may send the first copy of a read
    // late.
    std::vector<size_t> copies_by_place() {
        const std::lock_guard lock(mutex_);
        auto copied = copied_;
        std::sort(copied.begin(), copied.end());
        return sizes_of(copied);
    }

    // The n-th copy fails, and from then on each copy to that place; 0: none.
    size_t fail_copy = 0, fail_write = 0, writes = 0;
    size_t pinned_size = 0, pinned_size_max = SIZE_MAX;
    // Each is called once, before the device's operation; on_pin only for more than 1 MiB.
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
    std::vector<size_t> calls_;
    void* bad_ = nullptr;
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

inline void expect_sums(const Report& report) {
    const auto sum = [](const auto& all) {
        return std::accumulate(all.begin(), all.end(), uint64_t{0});
    };
    EXPECT_EQ(sum(report.route_bytes), report.bytes);
    EXPECT_EQ(sum(report.reason_bytes), report.bytes);
    EXPECT_EQ(sum(report.residency_bytes), report.bytes);
}

class StagedRangeFixture : public ::testing::Test {
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
    // Checks that all staging is free again, and that everything works.
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

}  // namespace penstock::transfer::staged_range_fixture
