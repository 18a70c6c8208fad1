// Goal: what an executor writes, by any route, from host memory in any pieces or from a device,
// beside reads and other writes, leaves a file that equals a flat byte array; and what fails is
// told with how far the bytes got.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "storage/storage_fixture.h"
#include "testing/bytes.h"
#include "testing/effort.h"
#include "testing/fault_storage.h"
#include "testing/remote_device.h"
#include "transfer/executor.h"

namespace penstock::transfer {
namespace {

using storage::Bytes;
using storage::random_bytes;
using testing::Action;
using testing::Call;
using testing::FaultStorage;
using testing::RemoteDevice;

constexpr uint64_t kFileSize = 12 << 20;
constexpr uint32_t kRequests = 4;
constexpr uint64_t kPart = kFileSize / kRequests;  // of one request at a time

class ExecutorWriteTest : public ::testing::TestWithParam<storage::Kind> {
protected:
    void SetUp() override {
        auto under = storage::make_storage({.kind = GetParam()});
        if (!under.ok()) GTEST_SKIP() << under.status().message();
        storage_ = std::make_shared<FaultStorage>(under.value());
        flat_ = random_bytes(1, kFileSize);
        folder_.write("f", 0, flat_);
        source_ = std::make_unique<Source>(storage_->open(folder_.path("f"), O_RDWR).value());
        device_ = std::make_unique<RemoteDevice>(
            backend::open_cpu({.permits = 1, .memory_size = 64 << 20}).value());
        void* memory = nullptr;
        ASSERT_TRUE(device_->allocate(kFileSize, backend::Memory::kDevice, &memory).ok());
        device_memory_ = static_cast<std::byte*>(memory);
        auto made = Executor::create(*storage_, device_.get(), {.requests = kRequests});
        ASSERT_TRUE(made.ok());
        executor_ = std::move(made.value());
    }
    void TearDown() override {
        executor_.reset();
        if (device_memory_ != nullptr) device_->free(device_memory_);
    }

    Outcome run(const Request& request) {
        EXPECT_TRUE(executor_->submit(request));
        Outcome outcome;
        EXPECT_EQ(executor_->reap({&outcome, 1}, true), 1u);
        return outcome;
    }
    Request whole_write(uint64_t offset, const iovec& piece) {
        Request request;
        request.source = source_.get();
        request.offset = offset;
        request.size = piece.iov_len;
        request.pieces = {&piece, 1};
        request.write = true;
        return request;
    }
    // By the kernel alone.
    Bytes file_now() {
        storage::Identity now;
        EXPECT_TRUE(source_->file->stat(&now).ok());
        Bytes bytes(now.size);
        auto plain = storage::make_storage({.kind = storage::Kind::kPosix}).value();
        const auto file = plain->open(folder_.path("f"), O_RDONLY).value();
        const std::unique_ptr<storage::Queue> queue = std::move(plain->make_queue(1).value());
        EXPECT_EQ(storage::read_into(queue.get(), file.get(), 0, &bytes).bytes, now.size);
        return bytes;
    }
    bool has_direct() const { return source_->file->direct_alignment().offset != 0; }

    storage::ScratchFolder folder_;
    std::shared_ptr<FaultStorage> storage_;
    std::unique_ptr<Source> source_;
    std::unique_ptr<RemoteDevice> device_;
    std::byte* device_memory_ = nullptr;
    std::unique_ptr<Executor> executor_;
    Bytes flat_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ExecutorWriteTest,
                         ::testing::Values(storage::Kind::kAuto, storage::Kind::kPosix,
                                           storage::Kind::kUring),
                         [](const auto& made) { return std::string(storage::name(made.param)); });

ReadOptions random_options(base::Prng* prng) {
    ReadOptions options;
    options.cache = static_cast<CachePolicy>(prng->below(4));
    if (prng->below(3) == 0) options.route = static_cast<Route>(prng->below(3));
    return options;
}

// One request of the random test, in its own part of the file.
struct Cell {
    Request request;
    Bytes memory;  // of the host
    std::vector<iovec> pieces;
    Report report;
    bool busy = false;

    // Random pieces of memory that may be aligned as the file is.
    void scatter(base::Prng* prng, std::byte* base) {
        pieces.clear();
        uint64_t at = 0;
        while (at < request.size) {
            uint64_t size = 1 + prng->below(prng->below(3) == 0 ? request.size : 70'000);
            if (prng->below(2) == 0) size = (size + 4095) / 4096 * 4096;
            size = std::min(size, request.size - at);
            pieces.push_back({base + at, size});
            at += size;
        }
        request.pieces = pieces;
    }
};

TEST_P(ExecutorWriteTest, RandomWritesBesideReadsEqualAFlatArray) {
    base::Prng prng(1);
    std::vector<Cell> cells(kRequests);
    uint64_t direct_bytes = 0;
    const auto begin = [&](size_t index) {
        Cell& cell = cells[index];
        Request& request = cell.request;
        request = {};
        request.source = source_.get();
        uint64_t grain = prng.below(2) == 0 ? 4096 : 1;
        request.size = 1 + prng.below(prng.below(2) == 0 ? 5000 : kPart);
        request.offset = prng.below(kPart - request.size + 1) / grain * grain + index * kPart;
        request.write = prng.below(3) != 0;
        request.device_memory = prng.below(2) == 0;
        request.options = random_options(&prng);
        cell.report = {};
        request.report = &cell.report;
        request.cookie = index;
        const Bytes bytes = random_bytes(prng.next(), request.size);
        std::byte* base;
        if (request.device_memory) {
            base = device_memory_ + index * kPart;  // which this test may address
        } else {
            cell.memory.resize(request.size + 8192);
            base = cell.memory.data();
            base += (4096 - reinterpret_cast<uintptr_t>(base) % 4096) % 4096;
            base += (request.offset + prng.below(2)) % 4096;
        }
        std::memcpy(base, bytes.data(), bytes.size());
        cell.scatter(&prng, base);
        if (request.device_memory && !request.write) {
            cell.pieces.assign(1, {base, request.size});
            request.pieces = cell.pieces;
        }
        if (request.write)
            std::copy(bytes.begin(), bytes.end(),
                      flat_.begin() + static_cast<ptrdiff_t>(request.offset));
        cell.busy = true;
        ASSERT_TRUE(executor_->submit(request));
    };
    const auto check = [&](const Outcome& outcome) {
        Cell& cell = cells[outcome.cookie];
        const Request& request = cell.request;
        cell.busy = false;
        ASSERT_EQ(outcome.error, 0);
        ASSERT_EQ(outcome.bytes, request.size);
        ASSERT_EQ(cell.report.bytes, request.size);
        ASSERT_EQ(cell.report.error_number, 0);
        if (request.write) direct_bytes += cell.report.bytes_by(Route::kDirect);
        uint64_t at = request.offset;
        for (const iovec& piece : cell.pieces) {  // sources stay as they are
            ASSERT_TRUE(testing::equal(piece.iov_base, flat_.data() + at, piece.iov_len));
            at += piece.iov_len;
        }
    };
    for (int turn = 0; turn < 300; ++turn) {
        for (size_t i = 0; i < cells.size(); ++i) {
            if (!cells[i].busy && prng.below(2) == 0) begin(i);
        }
        Outcome outcomes[kRequests];
        const size_t count = executor_->reap(outcomes, prng.below(2) == 0);
        for (size_t i = 0; i < count; ++i) check(outcomes[i]);
        if (HasFatalFailure()) return;
    }
    while (executor_->outstanding() > 0) {
        Outcome outcome;
        if (executor_->reap({&outcome, 1}, true) == 1) check(outcome);
    }
    EXPECT_EQ(file_now(), flat_);
    if (has_direct()) {
        EXPECT_GT(direct_bytes, 10u << 20);
    }
}

TEST_P(ExecutorWriteTest, GrowsTheFileByAllRoutesAndReportsThem) {
    const Bytes more = random_bytes(2, (2 << 20) + 5000);
    const iovec piece{const_cast<std::byte*>(more.data()), more.size()};
    for (const bool direct : {false, true}) {
        Request request = whole_write(flat_.size() + 1000, piece);
        if (direct) request.options.cache = CachePolicy::kBypass;
        Report report;
        request.report = &report;
        const Outcome outcome = run(request);
        EXPECT_EQ(outcome.error, 0);
        EXPECT_EQ(outcome.bytes, more.size());
        flat_.resize(flat_.size() + 1000);
        flat_.insert(flat_.end(), more.begin(), more.end());
        if (!direct) {
            EXPECT_EQ(report.bytes_by(RouteReason::kDeferred), more.size());
            EXPECT_EQ(report.bytes_by(Route::kCached), more.size());
        } else if (has_direct()) {
            EXPECT_EQ(report.bytes_by(RouteReason::kAsked), 2u << 20);
            EXPECT_EQ(report.bytes_by(RouteReason::kUnaligned), 5000u);
        }
    }
    EXPECT_EQ(file_now(), flat_);
    Bytes got(100);
    const iovec to{got.data(), got.size()};
    EXPECT_EQ(executor_->move_small(*source_, flat_.size() - 50, to, false, {}).completion.bytes,
              50u);
    EXPECT_EQ(executor_->move_small(*source_, flat_.size() - 50, to, true, {}).completion.bytes,
              100u);
    EXPECT_EQ(file_now().size(), flat_.size() + 50);
}

TEST_P(ExecutorWriteTest, StrictWritesAllOfItByThatRouteOrNothing) {
    const Bytes more = random_bytes(3, 3 << 20);
    const iovec piece{const_cast<std::byte*>(more.data()), more.size()};
    for (const Route route : {Route::kDirect, Route::kPeer}) {
        Request request = whole_write(5, piece);
        request.options.route = route;
        request.options.strict = true;
        const Outcome outcome = run(request);
        EXPECT_EQ(outcome.error, EOPNOTSUPP);
        EXPECT_EQ(outcome.bytes, 0u);
    }
    EXPECT_EQ(file_now(), flat_);
    if (!has_direct()) GTEST_SKIP() << "no direct I/O on this file system";
    Request request = whole_write(4096, piece);  // from memory that is not aligned, perhaps
    request.options.route = Route::kDirect;
    request.options.strict = true;
    EXPECT_EQ(run(request).bytes, more.size());
    std::copy(more.begin(), more.end(), flat_.begin() + 4096);
    EXPECT_EQ(file_now(), flat_);
}

// The n-th storage operation of a write fails, for n from 1 until none does.
TEST_P(ExecutorWriteTest, TellsHowFarTheBytesGot) {
    for (const bool device : {false, true}) {
        for (const bool direct : {false, true}) {
            bool failed = true;
            for (uint64_t n = 1; failed; n += testing::usually(1, 1 + n / 2)) {
                SCOPED_TRACE(::testing::Message() << device << direct << " n " << n);
                ASSERT_LT(n, 100u);
                const Bytes bytes = random_bytes(n, 7 << 20);
                std::memcpy(device_memory_, bytes.data(), bytes.size());
                const iovec piece{device ? device_memory_ : const_cast<std::byte*>(bytes.data()),
                                  bytes.size()};
                Request request = whole_write(12'345, piece);
                request.device_memory = device;
                if (direct) request.options.route = Route::kDirect;
                Report report;
                request.report = &report;
                testing::FaultPlan& plan = storage_->plan();
                plan.clear();
                plan.inject({.call = Call::kWrite,
                             .action = Action::kShort,
                             .first = plan.calls(Call::kWrite) + n,
                             .error = ENOSPC,
                             .bytes = 8192});
                const Outcome outcome = run(request);
                plan.clear();
                failed = outcome.error != 0;
                if (!failed) {
                    EXPECT_EQ(outcome.bytes, bytes.size());
                } else {
                    EXPECT_EQ(outcome.error, ENOSPC);
                    EXPECT_LT(outcome.bytes, bytes.size());
                    EXPECT_EQ(report.error_number, ENOSPC);
                    EXPECT_EQ(report.error_offset, 12'345 + outcome.bytes);
                }
                const Bytes now = file_now();
                EXPECT_TRUE(std::equal(bytes.begin(),
                                       bytes.begin() + static_cast<ptrdiff_t>(outcome.bytes),
                                       now.begin() + 12'345));
                EXPECT_EQ(now.size(), flat_.size());
                EXPECT_TRUE(std::equal(now.begin(), now.begin() + 12'345, flat_.begin()));
            }
        }
    }
}

TEST_P(ExecutorWriteTest, WhatDirectWritesAreRefusedGoesThroughTheCache) {
    if (!has_direct()) GTEST_SKIP() << "no direct I/O on this file system";
    for (const bool device : {false, true}) {
        const Bytes bytes = random_bytes(5, 3 << 20);
        std::memcpy(device_memory_, bytes.data(), bytes.size());
        const iovec piece{device ? device_memory_ : const_cast<std::byte*>(bytes.data()),
                          bytes.size()};
        source_->direct_refused = false;
        testing::FaultPlan& plan = storage_->plan();
        plan.clear();
        plan.inject({.call = Call::kWrite,
                     .first = plan.calls(Call::kWrite) + 1,
                     .count = 2,
                     .error = EINVAL});
        Request request = whole_write(100, piece);
        request.device_memory = device;
        request.options.route = Route::kDirect;
        Report report;
        request.report = &report;
        const Outcome outcome = run(request);
        EXPECT_EQ(outcome.error, 0);
        EXPECT_EQ(outcome.bytes, bytes.size());
        EXPECT_GT(report.bytes_by(RouteReason::kRefused), 0u);
        EXPECT_TRUE(source_->direct_refused);
        std::copy(bytes.begin(), bytes.end(), flat_.begin() + 100);
        EXPECT_EQ(file_now(), flat_);
    }
}

// The n-th copy from the device, or word behind copies, fails, for n from 1 until none does.
TEST_P(ExecutorWriteTest, CopiesThatFailAreErrorsAndLeaveAnExecutorThatWorks) {
    const Bytes bytes = random_bytes(6, 3 << 20);
    std::memcpy(device_memory_, bytes.data(), bytes.size());
    std::vector<iovec> pieces;
    for (size_t at = 0; at < bytes.size(); at += 256 << 10)
        pieces.push_back({device_memory_ + at, 256 << 10});
    for (const bool words : {false, true}) {
        bool failed = true;
        for (int64_t n = 1; failed; ++n) {
            SCOPED_TRACE(::testing::Message() << (words ? "word " : "copy ") << n);
            ASSERT_LT(n, 100);
            words ? device_->fail_write(n) : device_->fail_copy(n);
            Request request = whole_write(0, {device_memory_, bytes.size()});
            request.pieces = pieces;
            request.device_memory = true;
            const Outcome outcome = run(request);
            failed = outcome.error != 0;
            if (failed) {
                EXPECT_EQ(outcome.error, EIO);
            }
            device_->fail_copy(0);
            device_->fail_write(0);
            const Bytes now = file_now();
            EXPECT_TRUE(std::equal(
                bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(outcome.bytes), now.begin()));
            EXPECT_EQ(run(request).bytes, bytes.size());
        }
    }
}

}  // namespace
}  // namespace penstock::transfer
