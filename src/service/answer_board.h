// Answers on their way to a device whose memory the host cannot address: a copy of the device's
// words in pinned memory, which servers write and the copy engine brings over.
//
// Each ring has one, for all servers. Answers that come while a copy is under way go with the next:
// one copy of all words between the first and the last new one, however many servers gave them, as
// the copy engine and the driver take some microseconds for each copy, whatever its size
// (docs/design/0009-batches-to-a-gpu.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/status.h"
#include "service/copy_stream.h"

namespace penstock::service {

class AnswerBoard {
public:
    // Of a ring as the host sees it, which has answers. ENOMEM.
    static Result<std::unique_ptr<AnswerBoard>> create(backend::Device& device,
                                                       const RingState& ring);
    ~AnswerBoard();
    AnswerBoard(const AnswerBoard&) = delete;
    AnswerBoard& operator=(const AnswerBoard&) = delete;

    // Any thread; `publish` follows, with slots from the lowest to one past the highest of them.
    void put(uint64_t slot, uint64_t answer);
    void publish(uint64_t begin, uint64_t end);
    // Sends what was published, unless as many copies as pay are under way: who looks next does,
    // which servers do all the time. Any thread. An error: it never arrives.
    Status flush();
    // As CopyStream::look_after.
    Status look_after(uint64_t now_ns) { return stream_->look_after(now_ns); }

private:
    AnswerBoard(backend::Device& device, const RingState& ring) : device_(device), ring_(ring) {}
    [[nodiscard]] bool is_due() const;

    backend::Device& device_;
    const RingState& ring_;
    uint64_t* words_ = nullptr;  // pinned; of the slots with the same index
    std::unique_ptr<CopyStream> stream_;

    std::mutex range_mutex_;
    uint64_t begin_ = 0, end_ = 0;       // slots that have news; none where equal
    std::atomic<bool> has_news_{false};  // for a look without the mutex
    std::atomic_flag sending_;           // who has it calls the driver
};

}  // namespace penstock::service
