// The streams of one device by number. The lookup takes no lock. Streams are reused, and not freed
// before the device.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "backend/backend.h"
#include "backend/cuda/stream.h"

namespace penstock::backend::cuda {

// The user's streams, and one or two copy streams for each file system.
inline constexpr uint32_t kStreamsMax = 256;

class StreamTable {
public:
    ~StreamTable();

    // Takes a stream of this context and priority: a returned one, or else a new one. EMFILE:
    // kStreamsMax are in use.
    Status take(Context& context, int priority, StreamId* out);
    // Returns a stream, which must be idle. Its number is not used again before 2^24 others were.
    void give_back(StreamId id);
    // Returns null if there is no such stream.
    [[nodiscard]] Stream* find(StreamId id) const;

    // Calls `each(Stream&)` until it returns true. Returns whether it did.
    template <class Each>
    bool any(Each each) const {
        for (const Slot& slot : slots_) {
            Stream* stream = slot.stream.load(std::memory_order_acquire);  // partner: take
            if (stream == nullptr) return false;  // slots are filled in order
            if (each(*stream)) return true;
        }
        return false;
    }

private:
    struct Slot {
        std::atomic<Stream*> stream{nullptr};  // owned; set once
        std::atomic<StreamId> id{0};           // 0: free
        uint32_t generation = 0;               // guarded by mutex_
    };

    std::mutex mutex_;  // locked by take() and give_back()
    std::array<Slot, kStreamsMax> slots_;
};

}  // namespace penstock::backend::cuda
