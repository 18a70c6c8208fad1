#include "backend/cuda/stream_table.h"

namespace penstock::backend::cuda {
namespace {

// Returns the id: the slot in the low bits, plus one so that 0 is never a stream.
StreamId id_of(uint32_t slot, uint32_t generation) {
    return (generation % (UINT32_MAX / kStreamsMax - 1)) * kStreamsMax + slot + 1;
}

}  // namespace

StreamTable::~StreamTable() {
    for (Slot& slot : slots_) delete slot.stream.load(std::memory_order_relaxed);
}

Status StreamTable::take(Context& context, int priority, StreamId* out) {
    std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < kStreamsMax; ++i) {
        Slot& slot = slots_[i];
        Stream* stream = slot.stream.load(std::memory_order_relaxed);
        if (stream == nullptr) {
            auto created = Stream::create(context, priority);
            if (!created.ok()) return created.status();
            stream = created.value().release();
            slot.stream.store(stream, std::memory_order_release);  // partner: any, find
        } else if (slot.id.load(std::memory_order_relaxed) != 0 || stream->priority() != priority ||
                   !stream->is_of(context)) {
            continue;
        }
        *out = id_of(i, ++slot.generation);
        slot.id.store(*out, std::memory_order_release);
        return {};
    }
    return {EMFILE, "create_stream", "too many streams on one device"};
}

void StreamTable::give_back(StreamId id) {
    std::lock_guard lock(mutex_);
    slots_[(id - 1) % kStreamsMax].id.store(0, std::memory_order_release);
}

Stream* StreamTable::find(StreamId id) const {
    if (id == 0) return nullptr;
    const Slot& slot = slots_[(id - 1) % kStreamsMax];
    if (slot.id.load(std::memory_order_acquire) != id) return nullptr;
    return slot.stream.load(std::memory_order_acquire);
}

}  // namespace penstock::backend::cuda
