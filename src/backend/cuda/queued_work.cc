#include "backend/cuda/queued_work.h"

#include <algorithm>

namespace penstock::backend::cuda {

Status EventWork::of(Context& context, std::span<const uintptr_t> streams,
                     std::shared_ptr<QueuedWork>* out) {
    out->reset();
    const Driver& driver = context.driver();
    std::shared_ptr<EventWork> work;
    for (const uintptr_t number : streams) {
        const auto stream = number == 0 ? kLegacyStream : reinterpret_cast<StreamHandle>(number);
        int capturing = kNotCapturing;
        const int captured = context.raw(driver.stream_is_capturing, stream, &capturing);
        // While a stream that synchronises with it is captured, the program can queue nothing on
        // the legacy default stream, and a record in it would break the capture.
        if (captured == kErrorCaptureImplicit) continue;
        if (captured == kSuccess && capturing != kNotCapturing)
            return {EBUSY, "stream",
                    "it is being captured into a graph: a transfer is no part of one"};
        // For the legacy default stream, the driver also reports what is queued on streams that
        // synchronise with it (seen with 580.159).
        const int code = captured == kSuccess ? context.raw(driver.stream_query, stream) : captured;
        if (code == kSuccess) continue;
        if (code != kErrorNotReady)
            return context.failed(code, driver.stream_query.name, driver.describe(code));
        if (work == nullptr) work.reset(new EventWork(context));
        if (Status status = work->record(stream); !status.ok()) return status;
    }
    *out = std::move(work);
    return {};
}

Status EventWork::record(StreamHandle stream) {
    const Driver& driver = context_.driver();
    EventHandle event = nullptr;
    if (Status s = context_.call(driver.event_create, &event, kEventUntimed); !s.ok()) return s;
    events_.push_back(event);
    return context_.call(driver.event_record, event, stream);
}

EventWork::~EventWork() {
    for (const EventHandle event : events_)
        static_cast<void>(context_.raw(context_.driver().event_destroy, event));
}

// An error counts as an end too: the transfer after it meets the same error.
bool EventWork::over() {
    return std::all_of(events_.begin(), events_.end(), [this](EventHandle event) {
        return context_.raw(context_.driver().event_query, event) != kErrorNotReady;
    });
}

}  // namespace penstock::backend::cuda
