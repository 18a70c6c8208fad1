#include "service/answer_board.h"

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::SystemWords;

// One is under way while the next waits before the copy engine.
constexpr uint64_t kCopiesMax = 2;
constexpr uint64_t kCopyLimitNs = 60'000'000'000;
constexpr uint64_t kLookNs = 1'000'000;  // between two looks at a stream with copies under way

}  // namespace

Result<std::unique_ptr<AnswerBoard>> AnswerBoard::create(backend::Device& device,
                                                         const RingState& ring) {
    std::unique_ptr<AnswerBoard> board(new AnswerBoard(device, ring));
    const size_t count = size_t{1} << ring.shift;
    void* memory = nullptr;
    Status status = device.allocate((count + 1) * sizeof(uint64_t), backend::Memory::kPinned,
                                    &memory);
    if (!status.ok()) return status;
    board->words_ = static_cast<uint64_t*>(memory);
    std::fill_n(board->words_, count + 1, uint64_t{0});
    board->done_ = board->words_ + count;
    status = device.create_stream(0, &board->stream_);
    if (!status.ok()) return status;
    return board;
}

AnswerBoard::~AnswerBoard() {
    if (stream_ != 0) (void)device_.destroy_stream(stream_);
    if (words_ != nullptr) device_.free(words_);
}

void AnswerBoard::put(uint64_t slot, uint64_t answer) {
    // Read by the copy engine, in the order in which it was written behind the bytes it tells of.
    SystemWords::store(words_[slot], answer, site::kComplete);
}

void AnswerBoard::publish(uint64_t first, uint64_t last) {
    const std::lock_guard lock(range_mutex_);
    const bool news = first_ != end_;
    first_ = news ? std::min(first_, first) : first;
    end_ = news ? std::max(end_, last + 1) : last + 1;
    has_news_.store(true, std::memory_order_relaxed);
}

bool AnswerBoard::is_due() const {
    return has_news_.load(std::memory_order_relaxed) &&
           sent_.load(std::memory_order_relaxed) - SystemWords::load(*done_, site::kRelaxed) <
               kCopiesMax;
}

Status AnswerBoard::flush() {
    // Once more, for what was published meanwhile by who found it busy.
    for (int i = 0; i < 2 && is_due() && !sending_.test_and_set(std::memory_order_acquire); ++i) {
        Status status;
        if (is_due()) {
            uint64_t first = 0, end = 0;
            {
                const std::lock_guard lock(range_mutex_);
                std::swap(first, first_);
                std::swap(end, end_);
                has_news_.store(false, std::memory_order_relaxed);
            }
            const uint64_t next = sent_.load(std::memory_order_relaxed) + 1;
            limit_ns_.store(base::monotonic_ns() + kCopyLimitNs, std::memory_order_relaxed);
            sent_.store(next, std::memory_order_release);  // partner: look_after
            status = device_.copy(stream_, ring_.answers + first, words_ + first,
                                  (end - first) * sizeof(uint64_t));
            if (status.ok()) status = device_.write_value(stream_, done_, next);
        }
        sending_.clear(std::memory_order_release);
        if (!status.ok()) return status;
    }
    return {};
}

Status AnswerBoard::look_after(uint64_t now_ns) {
    if (SystemWords::load(*done_, site::kRelaxed) == sent_.load(std::memory_order_acquire))
        return {};
    uint64_t look = look_ns_.load(std::memory_order_relaxed);
    if (now_ns < look || !look_ns_.compare_exchange_strong(look, now_ns + kLookNs)) return {};
    bool idle = false;
    if (Status status = device_.query(stream_, &idle); !status.ok()) return status;
    if (now_ns < limit_ns_.load(std::memory_order_relaxed)) return {};
    return {EIO, "copy", "copies of answers to the device do not end"};
}

}  // namespace penstock::service
