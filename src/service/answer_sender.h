// Brings answers to a device whose memory the host cannot address. Workers write a copy of the
// device's words in pinned memory, and the copy engine copies it to the device.
//
// Each ring has one sender for all workers. Answers that are added while a copy is in flight go
// with the next copy. It brings all words from the first to the last new one, whichever workers
// wrote them. Each copy takes the copy engine and the driver some microseconds at any size
// (docs/design/0009-batches-to-a-gpu.md).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/status.h"
#include "service/copy_stream.h"

namespace penstock::service {

// Adjacent slots of a ring.
struct SlotRange {
    uint64_t begin = 0, end = 0;  // empty if equal

    [[nodiscard]] bool empty() const { return begin == end; }
    // Extends the range to contain `other`, which is not empty.
    void add(SlotRange other) {
        begin = empty() ? other.begin : std::min(begin, other.begin);
        end = std::max(end, other.end);
    }
};

class AnswerSender {
public:
    // Makes the sender of `ring`, which is as the host sees it and must have answers. ENOMEM.
    static Result<std::unique_ptr<AnswerSender>> create(backend::Device& device,
                                                        const RingState& ring);
    ~AnswerSender();
    AnswerSender(const AnswerSender&) = delete;
    AnswerSender& operator=(const AnswerSender&) = delete;

    // put() stores one answer; publish() must follow, with a range that contains its slot. Any
    // thread.
    void put(uint64_t slot, uint64_t answer);
    void publish(SlotRange slots);
    // Sends what was published, unless enough copies are in flight already. The worker that looks
    // next then sends it; workers look all the time. Any thread. After an error the answers never
    // arrive.
    Status flush();
    // See CopyStream::look_after.
    Status look_after(uint64_t now_ns) { return stream_->look_after(now_ns); }

private:
    AnswerSender(backend::Device& device, const RingState& ring) : device_(device), ring_(ring) {}
    [[nodiscard]] bool is_due() const;

    backend::Device& device_;
    const RingState& ring_;
    uint64_t* words_ = nullptr;  // pinned; the slots have the same indices
    std::unique_ptr<CopyStream> stream_;

    std::mutex news_mutex_;
    SlotRange news_;                     // contains the slots with new answers
    std::atomic<bool> has_news_{false};  // checked before the mutex is locked
    std::atomic_flag sending_;           // held by the thread that calls the driver
};

// The answers of a worker that have been put and not published. One thread at a time.
class AnswerBatch {
public:
    void put(AnswerSender& sender, uint64_t slot, uint64_t answer) {
        sender.put(slot, answer);
        slots_.add({slot, slot + 1});
    }
    [[nodiscard]] bool empty() const { return slots_.empty(); }
    // Publishes the answers and sends them.
    Status send(AnswerSender& sender) {
        sender.publish(std::exchange(slots_, {}));
        return sender.flush();
    }

private:
    SlotRange slots_;
};

}  // namespace penstock::service
