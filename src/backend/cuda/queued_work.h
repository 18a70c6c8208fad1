// The work that a program had queued on its own streams before a transfer. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace penstock::backend::cuda {

class EventWork final : public QueuedWork {
public:
    // Stores the queued work, or null if there is none. EINVAL: no stream of this device; EBUSY: a
    // stream that is being captured into a graph.
    static Status of(Context& context, std::span<const uintptr_t> streams,
                     std::shared_ptr<QueuedWork>* out);
    ~EventWork() override;
    [[nodiscard]] bool over() override;

private:
    explicit EventWork(Context& context) : context_(context) {}
    Status record(StreamHandle stream);

    Context& context_;
    std::vector<EventHandle> events_;
};

}  // namespace penstock::backend::cuda
