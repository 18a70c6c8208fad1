#include "service/answer_sender.h"

#include <utility>

#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::SystemWords;

// One copy is in flight while the next waits for the copy engine.
constexpr uint64_t kCopiesMax = 2;

}  // namespace

Result<std::unique_ptr<AnswerSender>> AnswerSender::create(backend::Device& device,
                                                           const RingState& ring) {
    std::unique_ptr<AnswerSender> sender(new AnswerSender(device, ring));
    const size_t count = size_t{1} << ring.shift;
    void* memory = nullptr;
    Status status = device.allocate((count + 1) * sizeof(uint64_t), backend::Memory::kPinned,
                                    &memory);
    if (!status.ok()) return status;
    sender->words_ = static_cast<uint64_t*>(memory);
    auto stream = CopyStream::create(device, sender->words_ + count);
    if (!stream.ok()) return stream.status();
    sender->stream_ = std::move(stream.value());
    return sender;
}

AnswerSender::~AnswerSender() {
    stream_.reset();  // first: it uses a word in the memory freed below
    if (words_ != nullptr) device_.free(words_);
}

void AnswerSender::put(uint64_t slot, uint64_t answer) {
    // The partner is the copy engine, which reads the words in the order in which they were
    // written, after the bytes that they announce.
    SystemWords::store(words_[slot], answer, site::kComplete);
}

void AnswerSender::publish(SlotRange slots) {
    const std::lock_guard lock(news_mutex_);
    news_.add(slots);
    has_news_.store(true, std::memory_order_relaxed);
}

bool AnswerSender::is_due() const {
    return has_news_.load(std::memory_order_relaxed) &&
           stream_->sent() - stream_->done() < kCopiesMax;
}

Status AnswerSender::flush() {
    // The second turn sends what other threads published while they found sending_ taken.
    for (int i = 0; i < 2 && is_due() && !sending_.test_and_set(std::memory_order_acquire); ++i) {
        Status status;
        if (is_due()) {
            SlotRange slots;
            {
                const std::lock_guard lock(news_mutex_);
                slots = std::exchange(news_, {});
                has_news_.store(false, std::memory_order_relaxed);
            }
            status = device_.copy_words(stream_->id(), ring_.answers + slots.begin,
                                        words_ + slots.begin, slots.end - slots.begin);
            if (status.ok()) status = stream_->mark();
        }
        sending_.clear(std::memory_order_release);
        if (!status.ok()) return status;
    }
    return {};
}

}  // namespace penstock::service
