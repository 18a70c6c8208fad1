#include "backend/cuda/stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"

namespace penstock::backend::cuda {
namespace {

// A wait first looks at the stream without sleeping, for kSpinNs. After that each sleep is
// 1/kSleepPart of the time it has waited: each look is a call of the driver, which delays the
// threads that serve the kernel. A word stored by the stream after the kernel would need no calls.
// But with one, kernels that read files stopped every ten or twenty launches (580.159, H200): the
// copies of other streams for which they waited did not come.
constexpr uint64_t kSpinNs = 50'000;
constexpr uint64_t kSleepPart = 256, kSleepMinNs = 20'000, kSleepMaxNs = 500'000;
// Larger batches are copied part by part. Calls with 64 parts, or consecutive calls with 32, made
// the driver break its own queue (Xid 32, "corrupted push buffer stream", the context lost;
// 580.159, H200). vllm-project/vllm#49276 reports the same call and driver.
constexpr size_t kBatchMax = 16;
constexpr size_t kRowsMax = 64;
constexpr size_t kSmallSize = 64 << 10;  // copy_small says why; the driver's own limit is 32 KiB

DevicePointer device_pointer(const void* pointer) {
    return static_cast<DevicePointer>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace

Result<std::unique_ptr<Stream>> Stream::create(Context& context, int priority) {
    const Driver& driver = context.driver();
    int least = 0, greatest = 0;  // numerically greatest <= least: smaller starts first
    if (Status status = context.call(driver.priority_range, &least, &greatest); !status.ok()) {
        return status;
    }
    const int clamped = std::clamp(-priority, greatest, least);
    StreamHandle handle = nullptr;
    Status status = context.call(driver.stream_create, &handle, kStreamNonBlocking, clamped);
    if (!status.ok()) return status;
    return std::unique_ptr<Stream>(new Stream(context, handle, priority));
}

Stream::~Stream() {
    // Does not wait: the driver frees the stream when its work is done. Fails only with the whole
    // context.
    const Driver& driver = context_.driver();
    static_cast<void>(context_.raw(driver.stream_destroy, handle_));
    if (const StreamHandle announcer = announcer_.load(); announcer != nullptr)
        static_cast<void>(context_.raw(driver.stream_destroy, announcer));
    if (event_ != nullptr) static_cast<void>(context_.raw(driver.event_destroy, event_));
}

Stream::Under::Under(Stream& stream) : stream_(stream), since_ns_(base::monotonic_ns()) {
    uint64_t none = 0;
    if (!stream_.call_since_ns_.compare_exchange_strong(none, since_ns_, std::memory_order_relaxed))
        since_ns_ = 0;
}

Stream::Under::~Under() {
    if (since_ns_ != 0) stream_.call_since_ns_.store(0, std::memory_order_relaxed);
}

Status Stream::make_room() {
    if (begun_.load(std::memory_order_relaxed) - done_.load(std::memory_order_relaxed) <
        kLaunchesInFlightMax) {
        return {};
    }
    // Kernels in flight wait at most for the host, and that wait is bounded. An abort ends this
    // wait.
    return wait_idle(Deadline::max(), true);
}

Status Stream::launch(const Kernel& kernel, const LaunchRequest& request) {
    std::lock_guard order(launch_mutex_);
    if (Status status = make_room(); !status.ok()) return status;
    const uint64_t number = begun_.load(std::memory_order_relaxed);
    keys_[number % kLaunchesInFlightMax].store(kernel.key, std::memory_order_relaxed);
    begun_.store(number + 1, std::memory_order_release);  // partner: kernels_in_flight

    const Dimensions& g = request.shape.grid;
    const Dimensions& b = request.shape.block;
    const unsigned grid[3] = {g.x, g.y, g.z}, block[3] = {b.x, b.y, b.z};
    const int code = context_.within([&] {
        return kernel.library->launch(kernel.stub, grid, block, request.argument_pointers,
                                      request.shape.dynamic_shared_size, handle_);
    });
    if (code != kSuccess) {
        Status status = context_.failed(code, "cudaLaunchKernel",
                                        std::string(kernel.key) + ": " +
                                            kernel.library->error_name(code) + " (" +
                                            kernel.library->error_text(code) + ")");
        begun_.store(number, std::memory_order_release);
        return status;
    }
    enqueued_.store(number + 1, std::memory_order_release);  // partner: query
    return {};
}

// The driver has few queues for copies (8; CUDA_DEVICE_MAX_COPY_CONNECTIONS), which all streams
// share. A copy that waits in one of them for a kernel delays copies of other streams behind it,
// and that kernel may wait for those (docs/design/0010-writing.md, "On a GPU").
Status Stream::wait_for_kernels() {
    if (begun_.load(std::memory_order_acquire) == done_.load(std::memory_order_relaxed)) return {};
    return wait_idle(Deadline::max(), true);
}

Status Stream::copy(void* to, const void* from, size_t size) {
    if (size == 0) return {};
    if (Status status = wait_for_kernels(); !status.ok()) return status;
    if (small_by_rows_ && size < kSmallSize && is_device_memory(to))
        return copy_small(to, from, size);
    return call(context_.driver().copy_async, device_pointer(to), device_pointer(from), size,
                handle_);
}

bool Stream::is_device_memory(const void* address) {
    unsigned type = 0;
    return context_.raw(context_.driver().pointer_attribute, &type, kMemoryTypeOfPointer,
                        device_pointer(address)) == kSuccess &&
           type == kMemoryTypeDevice;
}

// The copy engine does not make copies to the device of less than 32 KiB. The part of the GPU that
// runs kernels makes them, and it has one context at a time. Beside kernels of another context such
// a copy takes 0.12 to 2.4 ms instead of 3 us (H100, 580.159). A copy of several rows goes to the
// copy engine at any size. Rows are whole words, so that words arrive whole.
Status Stream::copy_small(void* to, const void* from, size_t size) {
    constexpr size_t kWord = sizeof(uint64_t);
    const size_t unit = size % kWord == 0 ? kWord : 1;
    const size_t units = size / unit;
    const Driver& driver = context_.driver();
    if (units == 1) {  // one unit cannot be divided
        if (unit != kWord || device_pointer(to) % kWord != 0 || is_device_memory(from))
            return call(driver.copy_async, device_pointer(to), device_pointer(from), size, handle_);
        uint64_t value = 0;
        std::memcpy(&value, from, kWord);
        return call(driver.stream_write, handle_, device_pointer(to), value, kStreamWriteFenced);
    }
    size_t rows = 2;
    while (rows < units && units % rows != 0) ++rows;
    if (rows > kRowsMax) {  // nearly prime: all but one unit, which is even; then the last
        const size_t most = size - unit;
        if (Status status = copy_small(to, from, most); !status.ok()) return status;
        return copy_small(static_cast<char*>(to) + most, static_cast<const char*>(from) + most,
                          unit);
    }
    RowsCopy copy;
    copy.source = device_pointer(from);
    copy.destination = device_pointer(to);
    copy.height = rows;
    copy.width = size / copy.height;
    copy.source_pitch = copy.destination_pitch = copy.width;
    return call(driver.copy_rows_async, &copy, handle_);
}

// After each call the copy engine pauses, some ten times longer than between two parts of one call.
Status Stream::copy_all(std::span<const CopyPart> parts) {
    if (!small_by_rows_ || parts.empty() || !is_device_memory(parts[0].to))
        return copy_parts(parts);
    // The parts may be copied in any order: short ones one by one, the others together.
    CopyPart large[kBatchMax];
    size_t count = 0;
    for (const CopyPart& part : parts) {
        if (part.size < kSmallSize) {
            if (Status status = copy(part.to, part.from, part.size); !status.ok()) return status;
            continue;
        }
        large[count++] = part;
        if (count < kBatchMax) continue;
        if (Status status = copy_parts(large); !status.ok()) return status;
        count = 0;
    }
    return copy_parts(std::span(large).first(count));
}

Status Stream::copy_parts(std::span<const CopyPart> parts) {
    if (context_.driver().copy_batch.function == nullptr || parts.size() <= 1 ||
        parts.size() > kBatchMax) {
        for (const CopyPart& part : parts) {
            if (Status status = copy(part.to, part.from, part.size); !status.ok()) return status;
        }
        return {};
    }
    if (Status status = wait_for_kernels(); !status.ok()) return status;
    DevicePointer to[kBatchMax], from[kBatchMax];
    size_t sizes[kBatchMax];
    for (size_t i = 0; i < parts.size(); ++i) {
        to[i] = device_pointer(parts[i].to);
        from[i] = device_pointer(parts[i].from);
        sizes[i] = parts[i].size;
    }
    CopyAttributes attributes;
    size_t first_of_attributes = 0;
    return call(context_.driver().copy_batch, to, from, sizes, parts.size(), &attributes,
                &first_of_attributes, 1, handle_);
}

Status Stream::fill(void* to, uint8_t value, size_t size) {
    if (size == 0) return {};
    return call(context_.driver().fill_async, device_pointer(to), value, size, handle_);
}

Status Stream::write_value(uint64_t* address, uint64_t value) {
    return call(context_.driver().stream_write, handle_, device_pointer(address), value,
                kStreamWriteFenced);
}

Status Stream::make_announcer() {
    const Driver& driver = context_.driver();
    if (event_ == nullptr) {
        Status status = call(driver.event_create, &event_, kEventUntimed);
        if (!status.ok()) return status;
    }
    StreamHandle handle = nullptr;
    Status status = call(driver.stream_create, &handle, kStreamNonBlocking, 0);
    if (status.ok()) announcer_.store(handle, std::memory_order_release);  // partner: query
    return status;
}

// A store in the stream itself delays the copies after it. 1 GiB by copies of 1, 2 and 4 MiB took
// 22.5, 21.0 and 20.2 ms with nothing or with events between them, and 24.3, 22.0 and 20.8 ms with
// stores (H100, PCIe 5). One event suffices, because a wait for an event waits for what was
// recorded by then.
Status Stream::announce(uint64_t* address, uint64_t value) {
    const Driver& driver = context_.driver();
    std::lock_guard order(announce_mutex_);
    if (announcer_.load(std::memory_order_relaxed) == nullptr) {
        if (Status status = make_announcer(); !status.ok()) return status;
    }
    const StreamHandle announcer = announcer_.load(std::memory_order_relaxed);
    if (Status status = call(driver.event_record, event_, handle_); !status.ok()) return status;
    if (Status status = call(driver.stream_wait, announcer, event_, 0u); !status.ok())
        return status;
    return call(driver.stream_write, announcer, device_pointer(address), value, kStreamWriteFenced);
}

Status Stream::look(StreamHandle handle, bool* idle) {
    const Driver& driver = context_.driver();
    int code = kSuccess;
    {
        const Under under(*this);
        code = context_.raw(driver.stream_query, handle);
    }
    *idle = code == kSuccess;
    if (code == kSuccess || code == kErrorNotReady) return {};
    return context_.failed(code, driver.stream_query.name, driver.describe(code));
}

Status Stream::query(bool* idle) {
    // Read first, because a launch that is enqueued after the look is not done.
    const uint64_t enqueued = enqueued_.load(std::memory_order_acquire);
    if (Status status = look(handle_, idle); !status.ok() || !*idle) return status;
    uint64_t done = done_.load(std::memory_order_relaxed);
    while (done < enqueued &&
           !done_.compare_exchange_weak(done, enqueued, std::memory_order_relaxed)) {
    }
    const StreamHandle announcer = announcer_.load(std::memory_order_acquire);
    return announcer == nullptr ? Status{} : look(announcer, idle);
}

Status Stream::synchronize(Deadline deadline) {
    Status status = wait_idle(deadline, false);
    if (status.ok() || status.error_number() == ETIMEDOUT) {
        if (Status cause = context_.abort_cause(); !cause.ok()) return cause;
    }
    return status;
}

Status Stream::wait_idle(Deadline deadline, bool until_abort) {
    const uint64_t began = base::monotonic_ns();
    for (;;) {
        bool idle = false;
        if (Status status = query(&idle); !status.ok() || idle) return status;
        if (until_abort) {
            if (Status cause = context_.abort_cause(); !cause.ok()) return cause;
        }
        const auto left = deadline - std::chrono::steady_clock::now();
        if (left.count() <= 0) {
            return {ETIMEDOUT, "synchronize", "the stream was not idle before the deadline"};
        }
        const uint64_t now = base::monotonic_ns();
        if (now - began < kSpinNs) {
            std::this_thread::yield();
            continue;
        }
        const auto left_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
        base::sleep_until_ns(
            now + std::min(std::clamp((now - began) / kSleepPart, kSleepMinNs, kSleepMaxNs),
                           static_cast<uint64_t>(left_ns)));
    }
}

bool Stream::kernels_in_flight() {
    if (!kernels_seen_in_flight()) return false;
    bool idle = false;
    return query(&idle).ok() && kernels_seen_in_flight();
}

std::string Stream::kernels_not_done() const {
    constexpr uint64_t kNamesMax = 8;
    const uint64_t begun = begun_.load(std::memory_order_acquire);
    const uint64_t done = done_.load(std::memory_order_relaxed);
    std::string names;
    for (uint64_t number = done; number < begun && number < done + kNamesMax; ++number) {
        const char* key = keys_[number % kLaunchesInFlightMax].load(std::memory_order_relaxed);
        if (key == nullptr) continue;
        if (!names.empty()) names += ", ";
        names += key;
    }
    if (begun > done + kNamesMax) names += " ...";
    return names;
}

}  // namespace penstock::backend::cuda
