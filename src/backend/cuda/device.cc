#include "backend/cuda/device.h"

#include <thread>

#include "backend/cuda/queued_work.h"
#include "base/kept_text.h"

namespace penstock::backend::cuda {
namespace {

// How long the close of a stream or the device waits for running kernels. It is longer than a
// kernel may wait for a dead host. After that, memory that the kernels may use is kept until the
// process ends.
constexpr auto kCloseLimit = std::chrono::seconds(10);

// While kernels run the GPU may change the word without a notify, so a sleep is divided into parts
// of this length.
constexpr std::chrono::nanoseconds kTurn = std::chrono::microseconds(100);

constexpr Status kNoStream(EINVAL, "stream", "no such stream");

constexpr Status kUnaligned(EINVAL, "write_value", "the word is not aligned to 8 bytes");

bool within(const Dimensions& shape, const unsigned limits[3]) {
    return shape.x >= 1 && shape.y >= 1 && shape.z >= 1 && shape.x <= limits[0] &&
           shape.y <= limits[1] && shape.z <= limits[2];
}

// Holds for each GPU since compute capability 3.0. Each thread gets registers in units of eight.
constexpr uint64_t kRegistersOfBlock = 65536;

// Says how many threads the kernel can have, and how it can use fewer registers.
Status too_many_threads(const Kernel& kernel, uint64_t wanted) {
    constexpr const char*
        kShort = "the block has more GPU threads than this kernel's registers allow";
    const int registers = kernel.attributes.registers_per_thread;
    const std::string text = std::string(kShort) + ": " + kernel.key + " takes " +
                             std::to_string(registers) + " registers a thread, so a block has " +
                             std::to_string(kernel.attributes.threads_per_block_max) +
                             " threads at most, not " + std::to_string(wanted) +
                             "; declare it __launch_bounds__(" + std::to_string(wanted) +
                             ", 1), or give penstock_add_kernels() MAX_REGISTERS " +
                             std::to_string(kRegistersOfBlock / wanted / 8 * 8);
    return {EINVAL, "launch", base::kept_text(text, kShort)};
}

}  // namespace

CudaDevice::~CudaDevice() {
    if (second_context_made_.valid()) second_context_made_.wait();
    const auto deadline = std::chrono::steady_clock::now() + kCloseLimit;
    const bool busy = streams_.any(
        [&](Stream& stream) { return stream.synchronize(deadline).error_number() == ETIMEDOUT; });
    if (!busy) return;
    // Freeing would wait without limit for the kernel that does not stop.
    if (allocations_) allocations_->leave();
    context_->leave();
    if (second_context_) second_context_->leave();
}

Status CudaDevice::allocate(size_t size, Memory memory, void** out) {
    return allocations_->allocate(size, memory, kernels_in_flight(), out);
}

void CudaDevice::free(void* pointer) { allocations_->free(pointer, kernels_in_flight()); }

size_t CudaDevice::free_memory() const { return allocations_->free_memory(); }

Status CudaDevice::pin(void* memory, size_t size) { return allocations_->pin(memory, size); }

void CudaDevice::unpin(void* memory) { allocations_->unpin(memory); }

Status CudaDevice::create_stream(int priority, StreamId* out) {
    return streams_.take(*context_, priority, out);
}

Status CudaDevice::create_copy_stream(StreamId* out) {
    if (Status status = prepare_kernels(); !status.ok()) return status;
    // Without a second context copies use the program's own. The monitor reads
    // longest_copy_call_ns(), and finds a call that delays them for long.
    Context& context = second_context_made_.get().ok() ? *second_context_ : *context_;
    if (Status status = streams_.take(context, 0, out); !status.ok()) return status;
    streams_.find(*out)->serve_kernels(true);
    return {};
}

Status CudaDevice::destroy_stream(StreamId id) {
    Stream* stream = streams_.find(id);
    if (stream == nullptr) return kNoStream;
    stream->serve_kernels(false);
    Status status = stream->synchronize(std::chrono::steady_clock::now() + kCloseLimit);
    // A stream that does not become idle is not used again.
    if (status.error_number() != ETIMEDOUT) streams_.give_back(id);
    return status;
}

Status CudaDevice::queued_work(std::span<const uintptr_t> streams,
                               std::shared_ptr<QueuedWork>* out) {
    return EventWork::of(*context_, streams, out);
}

Status CudaDevice::check_shape(const Kernel& kernel, const LaunchShape& shape) const {
    if (!within(shape.grid, shape_limits_.grid) || !within(shape.block, shape_limits_.block)) {
        return {EINVAL, "launch",
                "grid or block has a dimension of 0 or beyond the device's limit"};
    }
    const auto threads = static_cast<uint64_t>(kernel.attributes.threads_per_block_max);
    if (shape.block.count() > properties_.threads_per_block_max) {
        return {EINVAL, "launch", "the block has more GPU threads than the device allows"};
    }
    if (shape.block.count() > threads) return too_many_threads(kernel, shape.block.count());
    if (shape.dynamic_shared_size > kernel.attributes.dynamic_shared_size_max) {
        return {EINVAL, "launch",
                "more dynamic shared memory than a block of this kernel can have"};
    }
    return {};
}

Status CudaDevice::launch(StreamId id, LaunchRequest request) {
    Stream* stream = streams_.find(id);
    if (stream == nullptr) return kNoStream;
    if (Status cause = context_->abort_cause(); !cause.ok()) return cause;
    const Kernel* kernel = kernels_->find(request.function);
    if (kernel == nullptr) {
        if (kernels_in_flight()) {
            return {EBUSY, "launch",
                    "this kernel was registered after the device was opened, and a kernel runs: "
                    "wait for "
                    "that before the first launch"};
        }
        auto loaded = kernels_->load_late(request.function);
        if (!loaded.ok()) return loaded.status();
        kernel = loaded.value();
    }
    if (!kernel->status.ok()) {
        context_->note(kernel->detail);
        return kernel->status;
    }
    Status status = check_shape(*kernel, request.shape);
    if (status.ok()) status = stream->launch(*kernel, request);
    if (status.ok()) sleepers_.wake_all();
    return status;
}

// The driver knows device memory of all contexts, and pinned memory. All other memory is the
// host's, and the driver knows nothing of it.
bool CudaDevice::host_can_address(const void* address) const {
    unsigned type = 0;
    const int code = context_->raw(context_->driver().pointer_attribute, &type,
                                   kMemoryTypeOfPointer, reinterpret_cast<DevicePointer>(address));
    if (code == kSuccess) return type != kMemoryTypeDevice;
    // A lost context knows nothing, and the program would end by a touch of its memory.
    return code == kErrorInvalidValue || !allocations_->is_device_memory(address);
}

bool CudaDevice::knows(const void* address) const {
    unsigned type = 0;
    return context_->raw(context_->driver().pointer_attribute, &type, kMemoryTypeOfPointer,
                         reinterpret_cast<DevicePointer>(address)) == kSuccess;
}

Status CudaDevice::copy(StreamId id, void* to, const void* from, size_t size) {
    Stream* stream = streams_.find(id);
    return stream == nullptr ? kNoStream : stream->copy(to, from, size);
}

Status CudaDevice::copy_all(StreamId id, std::span<const CopyPart> parts) {
    Stream* stream = streams_.find(id);
    return stream == nullptr ? kNoStream : stream->copy_all(parts);
}

Status CudaDevice::fill(StreamId id, void* to, uint8_t value, size_t size) {
    Stream* stream = streams_.find(id);
    return stream == nullptr ? kNoStream : stream->fill(to, value, size);
}

Status CudaDevice::write_value(StreamId id, uint64_t* address, uint64_t value) {
    if (reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) != 0) return kUnaligned;
    Stream* stream = streams_.find(id);
    return stream == nullptr ? kNoStream : stream->write_value(address, value);
}

Status CudaDevice::announce(StreamId id, uint64_t* address, uint64_t value) {
    if (reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) != 0) return kUnaligned;
    Stream* stream = streams_.find(id);
    return stream == nullptr ? kNoStream : stream->announce(address, value);
}

Status CudaDevice::synchronize(StreamId id, Deadline deadline) {
    Stream* stream = streams_.find(id);
    return stream == nullptr ? kNoStream : stream->synchronize(deadline);
}

Status CudaDevice::query(StreamId id, bool* idle) {
    Stream* stream = streams_.find(id);
    return stream == nullptr ? kNoStream : stream->query(idle);
}

bool CudaDevice::kernels_in_flight() const {
    return streams_.any([](Stream& stream) { return stream.kernels_in_flight(); });
}

bool CudaDevice::kernels_seen_in_flight() const {
    return streams_.any([](Stream& stream) { return stream.kernels_seen_in_flight(); });
}

unsigned CudaDevice::busy_streams() const {
    unsigned count = 0;
    static_cast<void>(streams_.any([&](Stream& stream) {
        count += stream.kernels_seen_in_flight() ? 1 : 0;
        return false;
    }));
    return count;
}

uint64_t CudaDevice::longest_copy_call_ns(uint64_t now_ns) const {
    uint64_t longest = 0;
    static_cast<void>(streams_.any([&](Stream& stream) {
        const uint64_t since = stream.serves_kernels() ? stream.call_since_ns() : 0;
        if (since != 0 && since < now_ns) longest = std::max(longest, now_ns - since);
        return false;
    }));
    return longest;
}

// kernels_in_flight() asks the driver about each stream that has some; that call makes the driver
// progress.
void CudaDevice::poll() {
    static_cast<void>(streams_.any([](Stream& stream) {
        static_cast<void>(stream.kernels_in_flight());
        return false;
    }));
}

void CudaDevice::notify(const uint64_t* address, size_t count) {
    cpu::notify_addresses(address, count);
}

void CudaDevice::wait_changed(const uint64_t* address, uint64_t seen,
                              std::chrono::nanoseconds limit) {
    sleepers_.sleep(address, seen, kernels_in_flight() ? std::min(limit, kTurn) : limit);
}

std::string CudaDevice::kernels_not_done() const {
    std::string names;
    static_cast<void>(streams_.any([&](Stream& stream) {
        const std::string more = stream.kernels_not_done();
        if (!names.empty() && !more.empty()) names += "; ";
        names += more;
        return false;
    }));
    return names;
}

}  // namespace penstock::backend::cuda
