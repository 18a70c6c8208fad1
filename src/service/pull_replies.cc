#include "service/pull_replies.h"

#include <algorithm>
#include <utility>

#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::SystemWords;

// One copy is in flight while the next waits for the copy engine.
constexpr uint64_t kCopiesMax = 2;

}  // namespace

Result<std::unique_ptr<PullReplies>> PullReplies::create(backend::Device& device,
                                                         const RingState& ring) {
    std::unique_ptr<PullReplies> replies(new PullReplies(device, ring));
    const size_t count = size_t{1} << ring.shift;
    void* memory = nullptr;
    Status status = device.allocate((count + 1) * sizeof(uint64_t), backend::Memory::kPinned,
                                    &memory);
    if (!status.ok()) return status;
    replies->words_ = static_cast<uint64_t*>(memory);
    auto stream = CopyStream::create(device, replies->words_ + count);
    if (!stream.ok()) return stream.status();
    replies->stream_ = std::move(stream.value());
    return replies;
}

PullReplies::~PullReplies() {
    stream_.reset();  // first: it uses a word in the memory freed below
    if (words_ != nullptr) device_.free(words_);
}

void PullReplies::put(uint64_t slot, uint64_t answer) {
    // The partner is the copy engine, which reads the words in the order in which they were
    // written, after the bytes that they announce.
    SystemWords::store(words_[slot], answer, site::kComplete);
}

void PullReplies::publish(uint64_t begin, uint64_t end) {
    const std::lock_guard lock(range_mutex_);
    const bool news = begin_ != end_;
    begin_ = news ? std::min(begin_, begin) : begin;
    end_ = news ? std::max(end_, end) : end;
    has_news_.store(true, std::memory_order_relaxed);
}

bool PullReplies::is_due() const {
    return has_news_.load(std::memory_order_relaxed) &&
           stream_->sent() - stream_->done() < kCopiesMax;
}

Status PullReplies::flush() {
    // The second turn sends what other threads published while they found sending_ taken.
    for (int i = 0; i < 2 && is_due() && !sending_.test_and_set(std::memory_order_acquire); ++i) {
        Status status;
        if (is_due()) {
            uint64_t begin = 0, end = 0;
            {
                const std::lock_guard lock(range_mutex_);
                std::swap(begin, begin_);
                std::swap(end, end_);
                has_news_.store(false, std::memory_order_relaxed);
            }
            status = device_.copy_words(stream_->id(), ring_.answers + begin, words_ + begin,
                                        end - begin);
            if (status.ok()) status = stream_->mark();
        }
        sending_.clear(std::memory_order_release);
        if (!status.ok()) return status;
    }
    return {};
}

}  // namespace penstock::service
