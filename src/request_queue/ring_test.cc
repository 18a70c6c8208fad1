// Goal: requests leave the ring once each, whole and in order, over many laps, however workers
// divide them.
#include "request_queue/ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/device/atomic.cuh"
#include "penstock/device/request_queue.cuh"

namespace penstock::request_queue {
namespace {

using device::DeviceWords;
using device::SystemWords;

bool operator==(const Request& a, const Request& b) {
    return a.kind == b.kind && a.file_slot == b.file_slot && a.generation == b.generation &&
           a.page == b.page && a.frame == b.frame && a.page_count == b.page_count &&
           a.behind == b.behind && a.block == b.block;
}

// A ring with both its ends.
class Ring {
public:
    explicit Ring(int shift) : shift_(shift), slots_(size_t{4} << shift) {}

    uint64_t take_tickets(uint64_t count) {
        return device::take_tickets<DeviceWords>(tail_, count);
    }
    void submit(uint64_t ticket, const Request& request) {
        device::submit<SystemWords>(slots_.data(), shift_, ticket, request);
    }
    void submit_pages(uint64_t count) {
        const uint64_t first = take_tickets(count);
        for (uint64_t i = 0; i < count; ++i) submit(first + i, {.page = first + i});
    }
    std::vector<Request> drain(size_t max, size_t share = 1, size_t least = 1) {
        std::vector<Request> out(max);
        out.resize(request_queue::drain<SystemWords, DeviceWords>(head_, slots_.data(), shift_,
                                                                  out.data(), max, share, least));
        return out;
    }

private:
    const int shift_;
    uint64_t tail_ = 0, head_ = 0;
    std::vector<uint64_t> slots_;
};

TEST(RequestTest, EveryFieldKeepsItsExtremes) {
    const Request largest{.file_slot = limits::kFilesMax - 1,
                          .generation = static_cast<uint32_t>(kGenerationMax),
                          .page = (uint64_t{1} << 56) - 1,
                          .frame = (1u << limits::kFrameBits) - 1,
                          .page_count = 0xfff,
                          .behind = 0xffffff,
                          .block = 0xffffffff};
    for (const Request& request : {largest, Request{}}) {
        for (const uint64_t lap : {1, 255}) {
            uint64_t words[4];
            encode_request(request, lap, words);
            EXPECT_TRUE(decode_request(words) == request);
            for (const uint64_t word : words) EXPECT_EQ(word & 0xff, lap);
        }
    }
    const Completion completion = make_completion(static_cast<uint32_t>(kGenerationMax), 0x7fff,
                                                  limits::kPageSizeMax);
    EXPECT_EQ(completion_generation(completion), kGenerationMax);
    EXPECT_EQ(completion_error(completion), 0x7fffu);
    EXPECT_EQ(completion_bytes(completion), limits::kPageSizeMax);
}

TEST(RingTest, NeighbouringLapsDifferAndNoneIsZero) {
    for (const int shift : {1, 2, 12}) {
        for (uint64_t ticket = 0; ticket < (uint64_t{600} << shift);
             ticket += uint64_t{1} << shift) {
            EXPECT_NE(lap_of(ticket, shift), 0u);
            EXPECT_NE(lap_of(ticket, shift), lap_of(ticket + (uint64_t{1} << shift), shift));
            EXPECT_LE(lap_of(ticket, shift), 255u);
        }
    }
}

// Also when the ring is as full as it can be, and when the laps' numbers repeat.
TEST(RingTest, InOrderOverThreeHundredLaps) {
    for (const int shift : {1, 2, 6}) {
        Ring ring(shift);
        EXPECT_TRUE(ring.drain(64).empty());
        uint64_t next = 0;
        const uint64_t size = uint64_t{1} << shift;
        for (uint64_t lap = 0; lap < 300; ++lap) {
            const uint64_t count = lap % 3 == 0 ? size : 1 + lap % size;
            ring.submit_pages(count);
            const std::vector<Request> got = ring.drain(64);
            ASSERT_EQ(got.size(), count);
            for (const Request& request : got) ASSERT_EQ(request.page, next++);
            EXPECT_TRUE(ring.drain(64).empty());
        }
    }
}

TEST(RingTest, StopsAtATicketThatIsNotWrittenYet) {
    Ring ring(4);
    const uint64_t first = ring.take_tickets(3);
    ring.submit(first, {.page = 1});
    ring.submit(first + 2, {.page = 3});
    EXPECT_EQ(ring.drain(8).size(), 1u);
    EXPECT_TRUE(ring.drain(8).empty());
    ring.submit(first + 1, {.page = 2});
    const std::vector<Request> rest = ring.drain(8);
    ASSERT_EQ(rest.size(), 2u);
    EXPECT_EQ(rest[0].page, 2u);
    EXPECT_EQ(rest[1].page, 3u);
}

// `share` workers divide what is ready, about, also where one may take no more than a part of its
// share; none takes fewer than `least`, if there are as many, or
// more than `max`.
TEST(RingTest, WorkersTakeTheirShare) {
    struct Case {
        uint64_t ready;
        size_t max, share, least, taken;
    };
    for (const Case& one : {Case{40, 64, 4, 1, 10}, Case{41, 64, 4, 1, 11}, Case{40, 64, 4, 16, 16},
                            Case{3, 64, 4, 8, 3}, Case{40, 8, 4, 16, 8}, Case{64, 64, 1, 1, 64},
                            Case{1, 64, 16, 1, 1}, Case{5, 64, 2, 0, 3}, Case{60, 16, 4, 1, 12},
                            Case{64, 16, 4, 1, 16}, Case{64, 8, 4, 1, 8}}) {
        Ring ring(6);
        ring.submit_pages(one.ready);
        EXPECT_EQ(ring.drain(one.max, one.share, one.least).size(), one.taken)
            << one.ready << " ready";
        uint64_t left = one.ready - one.taken;
        while (left > 0) left -= ring.drain(64).size();
        EXPECT_TRUE(ring.drain(64).empty());
    }
}

// Requests that belong together are taken together, also where a worker's share would end among
// them, and not before the last of them is there.
TEST(RingTest, WhatBelongsTogetherIsTakenTogether) {
    Ring ring(6);
    const uint64_t first = ring.take_tickets(9);
    const auto submit = [&](uint64_t i, uint32_t behind) {
        ring.submit(first + i, {.page = i, .behind = behind});
    };
    submit(0, 0);
    submit(1, 2);
    submit(2, 1);
    EXPECT_EQ(ring.drain(64).size(), 1u);
    EXPECT_TRUE(ring.drain(64).empty()) << "the third is not there yet";
    submit(3, 0);
    for (uint64_t i = 4; i < 8; ++i) submit(i, 0);
    EXPECT_EQ(ring.drain(64, 4).size(), 3u) << "more than the share, which is two";
    submit(8, 1);
    EXPECT_EQ(ring.drain(64).size(), 4u);
    EXPECT_TRUE(ring.drain(64).empty());
}

// Teams wait for their requests before they take more tickets, so the ring is never full.
TEST(RingTest, ManyTeamsAndManyWorkers) {
    constexpr int kTeams = 4, kWorkers = 3;
    constexpr uint64_t kBatch = 4, kBatches = 3000;
    Ring ring(4);
    static_assert(kTeams * kBatch <= 16);
    std::vector<std::atomic<uint64_t>> done(kTeams);
    std::atomic<bool> wrong{false};
    std::atomic<int> working{kTeams};
    std::vector<std::thread> threads;
    for (uint32_t team = 0; team < kTeams; ++team) {
        threads.emplace_back([&, team] {
            for (uint64_t batch = 0; batch < kBatches; ++batch) {
                const uint64_t first = ring.take_tickets(kBatch);
                for (uint64_t i = 0; i < kBatch; ++i) {
                    const uint64_t page = batch * kBatch + i;
                    ring.submit(first + i, {.page = page,
                                            .frame = static_cast<FrameIndex>(page * 7 + team),
                                            .block = team});
                }
                while (done[team].load(std::memory_order_acquire) < (batch + 1) * kBatch)
                    std::this_thread::yield();
            }
            --working;
        });
    }
    for (int worker = 0; worker < kWorkers; ++worker) {
        threads.emplace_back([&] {
            while (working.load() > 0) {
                const std::vector<Request> got = ring.drain(8, kWorkers);
                if (got.empty()) std::this_thread::yield();
                for (const Request& request : got) {
                    if (request.frame != request.page * 7 + request.block) wrong = true;
                    done[request.block].fetch_add(1, std::memory_order_release);
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(wrong);
    for (const auto& count : done) EXPECT_EQ(count, kBatches * kBatch);
}

}  // namespace
}  // namespace penstock::request_queue
