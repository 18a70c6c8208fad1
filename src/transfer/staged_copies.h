// Decides which memory each storage operation of an executor moves, and makes the copies between
// staging and the bytes' place in the request.
//
// If the storage cannot move bytes between the file and their place, they pass through staging:
// after the storage in a read, before it in a write. Copies to and from a device run in order, and
// collect() reports their ends. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transfer/active_request.h"
#include "transfer/staging.h"

namespace penstock::transfer {

class StagedCopies {
public:
    // `staging` has `slots` slots and must outlive this object.
    StagedCopies(Staging& staging, uint32_t slots);

    // Sets the operation's pieces: the bytes' place in the request if possible, otherwise staging.
    // Returns false if there is no staging now.
    [[nodiscard]] bool place(ActiveOperation* operation);
    // Gives the operation's staging back.
    void release(ActiveOperation* operation);

    // Copies from the request to staging, or from staging to the request. The host can address
    // both. `skipped` is the number of bytes moved before the operation's range.
    void gather(const ActiveOperation& operation);
    void scatter(const ActiveOperation& operation, uint64_t skipped);
    // Submits a copy from the device to staging, or from staging to the device, behind the copies
    // in flight.
    void fetch(ActiveOperation* operation);
    void send(ActiveOperation* operation, uint64_t skipped);
    [[nodiscard]] bool copying() const { return staging_.copying(); }
    // Returns operations whose copies have ended, until the next call. With `wait`, sleeps for some
    // microseconds if there are none. A failed copy sets the operation's error.
    [[nodiscard]] std::span<ActiveOperation* const> collect(bool wait);

private:
    Staging& staging_;
    uint64_t staged_size_ = 0;               // sum of staged_size of all operations
    std::vector<ActiveOperation*> copying_;  // by slot of staging
    std::vector<int32_t> ended_slots_;
    std::vector<ActiveOperation*> ended_;
    std::vector<iovec> parts_;  // of one fetch
};

}  // namespace penstock::transfer
