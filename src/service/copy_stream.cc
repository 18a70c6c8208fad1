#include "service/copy_stream.h"

#include <cerrno>

#include "base/clock.h"
#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::SystemWords;

constexpr uint64_t kCopyLimitNs = 60'000'000'000;
constexpr uint64_t kLookNs = 1'000'000;  // between two queries of a stream with copies in flight

}  // namespace

Result<std::unique_ptr<CopyStream>> CopyStream::create(backend::Device& device, uint64_t* word) {
    std::unique_ptr<CopyStream> stream(new CopyStream(device, word));
    if (Status status = device.create_copy_stream(&stream->id_); !status.ok()) return status;
    return stream;
}

CopyStream::~CopyStream() {
    if (id_ != 0) (void)device_.destroy_stream(id_);
}

// Both words are stored before the device is told, so that a thread that sees the number in memory
// also sees it in sent_.
Status CopyStream::mark() {
    const uint64_t next = sent_.load(std::memory_order_relaxed) + 1;
    limit_ns_.store(base::monotonic_ns() + kCopyLimitNs, std::memory_order_relaxed);
    sent_.store(next, std::memory_order_release);
    return device_.write_value(id_, word_, next);
}

uint64_t CopyStream::done() const { return SystemWords::load(*word_, site::kCompletion); }

Status CopyStream::look_after(uint64_t now_ns) {
    if (SystemWords::load(*word_, site::kRelaxed) == sent()) return {};
    uint64_t look = look_ns_.load(std::memory_order_relaxed);
    if (now_ns < look || !look_ns_.compare_exchange_strong(look, now_ns + kLookNs)) return {};
    bool idle = false;
    if (Status status = device_.query(id_, &idle); !status.ok()) return status;
    if (now_ns < limit_ns_.load(std::memory_order_relaxed)) return {};
    return {EIO, "copy", "copies to the device do not end"};
}

}  // namespace penstock::service
