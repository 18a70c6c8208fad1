// A stream of copies to a device whose memory the host cannot address, and how far it is: behind
// copies it stores a number in a word of pinned memory, which anybody may read.
//
// One thread at a time puts operations in; any thread looks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "penstock/status.h"

namespace penstock::service {

class CopyStream {
public:
    // `word`: zeroed pinned memory that outlives it. Errors of the device.
    static Result<std::unique_ptr<CopyStream>> create(backend::Device& device, uint64_t* word);
    // Does not wait: the driver does what is in it.
    ~CopyStream();
    CopyStream(const CopyStream&) = delete;
    CopyStream& operator=(const CopyStream&) = delete;

    [[nodiscard]] backend::StreamId id() const { return id_; }
    // Behind what is in the stream it stores the next number, with a fence: no later copy overtakes
    // an earlier one. All of it must be there in a minute.
    Status mark();
    // The last number that it was told to store, and the last one that it has stored: who reads
    // that sees what was copied before it.
    [[nodiscard]] uint64_t sent() const { return sent_.load(std::memory_order_acquire); }
    [[nodiscard]] uint64_t done() const;
    // Asks the driver now and then whether copies under way go well and end in time. EIO: they do
    // not.
    Status look_after(uint64_t now_ns);

private:
    CopyStream(backend::Device& device, uint64_t* word) : device_(device), word_(word) {}

    backend::Device& device_;
    uint64_t* const word_;
    backend::StreamId id_ = 0;
    std::atomic<uint64_t> sent_{0};
    std::atomic<uint64_t> limit_ns_{0};  // when all of it must be there
    std::atomic<uint64_t> look_ns_{0};   // when to ask the driver again
};

}  // namespace penstock::service
