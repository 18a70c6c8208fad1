// A stream of copies to a device whose memory the host cannot address, and its progress. After
// copies it stores a number in a word of pinned memory, which any thread may read.
//
// One thread at a time submits operations; any thread may read the progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "penstock/status.h"

namespace penstock::service {

class CopyStream {
public:
    // `word` is zeroed pinned memory that outlives the object. Fails with the device's errors.
    static Result<std::unique_ptr<CopyStream>> create(backend::Device& device, uint64_t* word);
    // Does not wait: the driver completes the operations in the stream.
    ~CopyStream();
    CopyStream(const CopyStream&) = delete;
    CopyStream& operator=(const CopyStream&) = delete;

    [[nodiscard]] backend::StreamId id() const { return id_; }
    // Makes the stream store the next number after the operations submitted so far, with a fence:
    // no later copy overtakes an earlier one. All operations must end within a minute.
    Status mark();
    // sent() is the last number that the stream was told to store; done() is the last one that it
    // has stored. A thread that reads done() sees everything copied before it.
    [[nodiscard]] uint64_t sent() const { return sent_.load(std::memory_order_acquire); }
    [[nodiscard]] uint64_t done() const;
    // Asks the driver from time to time whether the copies in flight succeed and end in time. EIO:
    // they do not.
    Status look_after(uint64_t now_ns);

private:
    CopyStream(backend::Device& device, uint64_t* word) : device_(device), word_(word) {}

    backend::Device& device_;
    uint64_t* const word_;
    backend::StreamId id_ = 0;
    std::atomic<uint64_t> sent_{0};
    std::atomic<uint64_t> limit_ns_{0};  // when the operations in flight must have ended
    std::atomic<uint64_t> look_ns_{0};   // when to ask the driver again
};

}  // namespace penstock::service
