#include "bench/plan/mixed_reads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/units.h"
#include "bench/harness/report.h"

namespace penstock::bench {
namespace {

using Clock = std::chrono::steady_clock;
// Of a cached read: then completions are looked at, so that the storage does not run dry.
constexpr uint64_t kCallSizeMax = 128 * base::kKiB;

double since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

}  // namespace

MixedReads::MixedReads(const std::string& path)
    : path_(path),
      cached_(open(path.c_str(), O_RDONLY | O_CLOEXEC)),
      direct_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)) {
    if (cached_ < 0) fail(path + ": cannot be opened");
    if (direct_ < 0) fail(path + ": cannot be opened for direct I/O");
    posix_fadvise(cached_, 0, 0, POSIX_FADV_RANDOM);
    if (const int error = io_uring_queue_init(kDepth, &ring_, 0); error != 0)
        fail(std::string("io_uring: ") + std::strerror(-error));
}

bool MixedReads::offered(const std::string& path) {
    io_uring ring{};
    if (io_uring_queue_init(1, &ring, 0) != 0) return false;
    io_uring_queue_exit(&ring);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (file >= 0) close(file);
    return file >= 0;
}

MixedReads::~MixedReads() {
    io_uring_queue_exit(&ring_);
    close(direct_);
    close(cached_);
}

void MixedReads::copy(unsigned char* to, uint64_t size, uint64_t offset) const {
    while (size > 0) {
        const ssize_t got = pread(cached_, to, size, static_cast<off_t>(offset));
        if (got <= 0) fail(path_ + ": a cached read failed");
        to += got;
        offset += static_cast<uint64_t>(got);
        size -= static_cast<uint64_t>(got);
    }
}

void MixedReads::submit_direct() {
    if (next_ == direct_transfers_.size() || in_flight_ == kDepth) return;
    for (; next_ < direct_transfers_.size() && in_flight_ < kDepth; ++next_, ++in_flight_) {
        const extent::Extent& moved = direct_transfers_[next_].moved;
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        io_uring_prep_read(entry, direct_, to_ + (moved.offset - offset_),
                           static_cast<unsigned>(moved.size), moved.offset);
        entry->user_data = moved.size;
    }
    int submitted = -EINTR;
    while (submitted == -EINTR) submitted = io_uring_submit(&ring_);
    if (submitted < 0) fail(path_ + ": io_uring: " + std::strerror(-submitted));
}

void MixedReads::reap(bool wait) {
    io_uring_cqe* completion = nullptr;
    int error = wait ? -EINTR : 0;
    while (error == -EINTR) error = io_uring_wait_cqe(&ring_, &completion);
    if (error < 0) fail(path_ + ": io_uring: " + std::strerror(-error));
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        if (completion->res < 0 || static_cast<uint64_t>(completion->res) != completion->user_data)
            fail(path_ + ": a direct read failed or was short");
        io_uring_cqe_seen(&ring_, completion);
        --in_flight_;
    }
}

MixedReads::Times MixedReads::execute(const planner::Plan& plan, unsigned char* to,
                                      uint64_t offset) {
    const auto start = Clock::now();
    to_ = to;
    offset_ = offset;
    next_ = 0;
    direct_transfers_.clear();
    for (const planner::Transfer& transfer : plan.transfers)
        if (transfer.route != Route::kCached) direct_transfers_.push_back(transfer);
    Times times;
    const auto look = [&](bool wait) {
        if (in_flight_ == 0) return;
        reap(wait);
        submit_direct();
        if (in_flight_ == 0) times.direct_ns = since(start);
    };
    submit_direct();
    for (size_t i = 0; i < plan.transfers.size();) {
        if (plan.transfers[i].route != Route::kCached) {
            ++i;
            continue;
        }
        // Neighbours differ in their reasons only.
        uint64_t at = plan.transfers[i].range.offset, end = at;
        for (; i < plan.transfers.size() && plan.transfers[i].route == Route::kCached; ++i)
            end = plan.transfers[i].range.end();
        while (at < end) {
            const uint64_t size = std::min(end - at, kCallSizeMax);
            copy(to + (at - offset), size, at);
            at += size;
            look(false);
        }
    }
    times.copy_ns = since(start);
    while (in_flight_ > 0) look(true);
    times.total_ns = since(start);
    return times;
}

}  // namespace penstock::bench
