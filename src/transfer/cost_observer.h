// Times what an executor does, and refines the costs of the file system by it.
//
// A direct transfer's time counts only if its end was noticed at once: a cached call keeps the
// executor's thread busy meanwhile. One thread.
#pragma once

#include <cstdint>

#include "transfer/active_request.h"

namespace penstock::transfer {

class CostObserver {
public:
    // Records that a cached call is about to be submitted.
    void begin_cached() { caught_up_ = false; }
    // Records that all completions behind the last cached call have been seen. A completion that is
    // seen from now on is noticed when it happens.
    void catch_up() { caught_up_ = true; }

    // Must be called before and after a batch is submitted. `lone` is its only operation; null if
    // it has none or several. If that is a long copy, the submission is timed as its call.
    void begin_submission(const ActiveOperation* lone);
    void end_submission();
    // Observes a completed operation if its call was timed. Its completion came with the call, so
    // the submission time is the time of the call.
    void observe_call(const ActiveOperation& operation, uint64_t bytes);
    // Observes the direct transfers of a finished request, if it has any: the time from the first
    // to the last, without the time that an earlier request's transfers took.
    void observe_direct(const ActiveRequest& active);

private:
    bool caught_up_ = true;
    uint64_t direct_end_ns_ = 0;             // end of the last request with direct transfers
    bool direct_end_seen_ = false;           // that end was noticed at once
    const ActiveOperation* call_ = nullptr;  // of the last submission; null: none, or observed
    uint64_t call_ns_ = 0;                   // start of the submission, then its duration
};

}  // namespace penstock::transfer
