// What the stand-in driver knows, for driver_fake.cc alone: streams and events with what is queued,
// pieces of memory, which context is current, and how calls are counted, failed and held up.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "backend/cuda/driver_api.h"
#include "backend/cuda/driver_fake.h"

namespace penstock::backend::cuda {

// An operation of a stream: true when it is done, false to be asked again.
using Operation = std::function<bool()>;

struct FakeStream {
    std::deque<Operation> operations;
    ContextHandle context = nullptr;
    size_t kernels = 0;  // of its operations
};
struct FakeEvent {
    // How often it was recorded, and how often what lay before it was over.
    std::shared_ptr<uint64_t> recorded = std::make_shared<uint64_t>(0);
    std::shared_ptr<uint64_t> over = std::make_shared<uint64_t>(0);
    bool of_legacy = false;  // recorded in the legacy default stream last
};

inline FakeCuda fake;
inline std::recursive_mutex mutex;  // over streams and pieces; kernels of the fake run under it
inline std::set<FakeStream*> streams;
inline std::set<FakeEvent*> events;
inline std::map<DevicePointer, void*> device_pieces;  // what was given -> what was taken
inline std::map<DevicePointer, size_t> device_sizes;
inline std::map<DevicePointer, int> device_ordinals;   // of memory of cuMemAlloc
inline std::set<void*> reserved;                       // addresses for memory that is mapped there
inline std::map<DevicePointer, size_t> mapped_pieces;  // of device_pieces, those that every context
                                                       // reaches
// Pinned memory begins behind this much of a page, as behind a small piece of the program's, and
// has a guard behind its end.
constexpr size_t kPinnedSkew = 0x400, kGuardSize = 4096;
constexpr unsigned char kGuard = 0x5c;
inline std::map<void*, size_t> pinned_pieces;
inline thread_local ContextHandle current = nullptr;
inline thread_local int capture_mode = 0;  // global: unsafe calls of this thread break captures
// A context is the address of its device's ordinal: of these for the primary ones.
constexpr int kDevicesMax = 8;
inline int primary_ordinals[kDevicesMax] = {0, 1, 2, 3, 4, 5, 6, 7};
inline std::atomic<uint64_t> taken_of[kDevicesMax];  // bytes of cuMemAlloc on each device

inline int* ordinal_of(ContextHandle context) { return reinterpret_cast<int*>(context); }
inline bool is_primary(ContextHandle context) {
    const int* at = ordinal_of(context);
    return std::less_equal<>()(&primary_ordinals[0], at) &&
           std::less<>()(at, primary_ordinals + kDevicesMax);
}
inline bool is_lost(ContextHandle context) {
    return context != nullptr && *ordinal_of(context) == fake.lost_device.load();
}

inline int counted() {
    const int64_t number = fake.call_count.fetch_add(1) + 1;
    if (const int fault = fake.fault.load(); fault != 0) return fault;
    return number == fake.fail_at.load() ? fake.fail_code.load() : 0;
}

inline bool has_kernels() {
    std::lock_guard lock(mutex);
    return std::any_of(streams.begin(), streams.end(),
                       [](FakeStream* s) { return s->kernels > 0; });
}
inline bool advance(FakeStream* stream);
inline void advance_all() {
    std::lock_guard lock(mutex);
    for (FakeStream* stream : std::set<FakeStream*>(streams)) advance(stream);
}

// As a driver whose context another thread holds until the kernels that run have ended.
inline void wait_while_held() {
    if (!is_primary(current) || !fake.held.load() || !has_kernels()) return;
    fake.calls_while_held.fetch_add(1);
    while (fake.held.load() && has_kernels()) {
        advance_all();  // the GPU goes on
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

inline int counted_in_context() {
    if (current == nullptr) {
        fake.calls_without_context.fetch_add(1);
        return 201;
    }
    if (capture_mode != kCaptureModeRelaxed) fake.unsafe_calls.fetch_add(1);
    wait_while_held();
    if (is_lost(current)) return 719;
    return counted();
}

inline FakeStream* stream_of(StreamHandle handle) {
    auto* stream = reinterpret_cast<FakeStream*>(handle);
    return streams.count(stream) == 0 ? nullptr : stream;
}

inline bool advance(FakeStream* stream) {
    bool some = false;
    if (is_lost(stream->context)) return some;
    while (!fake.hold.load() && fake.fault.load() == 0 && !stream->operations.empty()) {
        if (!stream->operations.front()()) break;
        stream->operations.pop_front();
        some = true;
        if (stream->operations.empty()) stream->kernels = 0;
    }
    return some;
}

// Others wait for events of this one.
inline void advance_from(FakeStream* stream) {
    if (!advance(stream) || events.empty()) return;
    for (FakeStream* other : std::set<FakeStream*>(streams)) {
        if (other != stream && stream_of(reinterpret_cast<StreamHandle>(other)) != nullptr)
            advance(other);
    }
}

inline int enqueue(StreamHandle handle, Operation operation) {
    std::lock_guard lock(mutex);
    if (handle == kLegacyStream) return operation() ? 0 : 1;
    FakeStream* stream = stream_of(handle);
    if (stream == nullptr || stream->context != current) return 400;
    stream->operations.push_back(std::move(operation));
    advance_from(stream);
    return 0;
}

// With `fake.unreachable` the host cannot address device memory, as on a machine with a GPU. Maps
// the addresses that are given out to the memory behind them.
inline std::map<DevicePointer, char*> behind_unreachable;

// Returns where the bytes of device memory are.
inline void* host(DevicePointer pointer) {
    std::lock_guard lock(mutex);
    const auto after = behind_unreachable.upper_bound(pointer);
    if (after != behind_unreachable.begin()) {
        const auto& [base, bytes] = *std::prev(after);
        if (pointer - base < device_sizes[base]) return bytes + (pointer - base);
    }
    return reinterpret_cast<void*>(pointer);
}

// Memory of cuMemAlloc belongs to the primary context of its device.
inline bool is_out_of_reach(DevicePointer pointer) {
    std::lock_guard lock(mutex);
    const auto behind = device_sizes.upper_bound(pointer);
    if (behind == device_sizes.begin()) return false;
    const auto& [base, size] = *std::prev(behind);
    if (pointer - base >= size || mapped_pieces.count(base) != 0) return false;
    if (device_ordinals[base] != *ordinal_of(current)) fake.foreign_copies.fetch_add(1);
    return !is_primary(current);
}

}  // namespace penstock::backend::cuda
