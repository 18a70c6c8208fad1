// A driver without a GPU, for tests: stands for libcuda.so.1 (PENSTOCK_LIBCUDA) with host memory
// behind it.
//
// Streams are lists of operations that run when anyone looks; FakeCuda (driver_fake.h) makes calls
// fail and holds streams. It is a kernel library too, of the target "fake": its kernels are host
// functions with the arguments of a launch. It checks what a real driver would not: calls without a
// context, copies of a stream that is gone.
#include "backend/cuda/driver_fake.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "backend/cuda/driver_api.h"
#include "penstock/cuda_library.h"

using penstock::backend::cuda::ContextHandle;
using penstock::backend::cuda::DeviceHandle;
using penstock::backend::cuda::DevicePointer;
using penstock::backend::cuda::EventHandle;
using penstock::backend::cuda::FakeCuda;
using penstock::backend::cuda::StreamHandle;
namespace cuda = penstock::backend::cuda;

namespace {

// An operation of a stream: true when it is done, false to be asked again.
using Operation = std::function<bool()>;

struct FakeStream {
    std::deque<Operation> operations;
};
struct FakeEvent {
    // How often it was recorded, and how often what lay before it was over.
    std::shared_ptr<uint64_t> recorded = std::make_shared<uint64_t>(0);
    std::shared_ptr<uint64_t> over = std::make_shared<uint64_t>(0);
};

FakeCuda fake;
std::recursive_mutex mutex;  // over streams and pieces; kernels of the fake run under it
std::set<FakeStream*> streams;
std::set<FakeEvent*> events;
std::map<DevicePointer, void*> device_pieces;  // what was given -> what was taken
std::map<DevicePointer, size_t> device_sizes;
std::set<void*> pinned_pieces;
thread_local ContextHandle current = nullptr;
char context_tag;

int counted() {
    const int64_t number = fake.call_count.fetch_add(1) + 1;
    if (const int fault = fake.fault.load(); fault != 0) return fault;
    return number == fake.fail_at.load() ? fake.fail_code.load() : 0;
}

int counted_in_context() {
    if (current == nullptr) {
        fake.calls_without_context.fetch_add(1);
        return 201;
    }
    return counted();
}

FakeStream* stream_of(StreamHandle handle) {
    auto* stream = reinterpret_cast<FakeStream*>(handle);
    return streams.count(stream) == 0 ? nullptr : stream;
}

bool advance(FakeStream* stream) {
    bool some = false;
    while (!fake.hold.load() && fake.fault.load() == 0 && !stream->operations.empty()) {
        if (!stream->operations.front()()) break;
        stream->operations.pop_front();
        some = true;
    }
    return some;
}

// Others wait for events of this one.
void advance_from(FakeStream* stream) {
    if (!advance(stream) || events.empty()) return;
    for (FakeStream* other : std::set<FakeStream*>(streams)) {
        if (other != stream && stream_of(reinterpret_cast<StreamHandle>(other)) != nullptr)
            advance(other);
    }
}

int enqueue(StreamHandle handle, Operation operation) {
    std::lock_guard lock(mutex);
    FakeStream* stream = stream_of(handle);
    if (stream == nullptr) return 400;
    stream->operations.push_back(std::move(operation));
    advance_from(stream);
    return 0;
}

void* host(DevicePointer pointer) { return reinterpret_cast<void*>(pointer); }

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default"))) int

extern "C" __attribute__((visibility("default"))) FakeCuda* penstock_fake_cuda() { return &fake; }

FAKE cuInit(unsigned) { return counted(); }
FAKE cuDriverGetVersion(int* out) {
    *out = 13000;
    return counted();
}
FAKE cuGetErrorName(int code, const char** out) {
    *out = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
           : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : code == 999 ? "CUDA_ERROR_UNKNOWN"
                         : nullptr;
    return *out == nullptr ? 1 : 0;
}
FAKE cuGetErrorString(int code, const char** out) {
    *out = code == 700 ? "an illegal memory access was encountered" : "as the fake says";
    return 0;
}
FAKE cuDeviceGetCount(int* out) {
    *out = fake.device_count.load();
    return counted();
}
FAKE cuDeviceGet(DeviceHandle* out, int ordinal) {
    *out = ordinal;
    const int code = counted();
    return code == 0 && ordinal >= fake.device_count.load() ? 101 : code;
}
FAKE cuDeviceGetName(char* out, int size, DeviceHandle) {
    std::strncpy(out, "Fake 1", static_cast<size_t>(size));
    return counted();
}
FAKE cuDeviceTotalMem_v2(size_t* out, DeviceHandle) {
    *out = size_t{1} << 30;
    return counted();
}
FAKE cuDeviceGetAttribute(int* out, int attribute, DeviceHandle) {
    static const std::map<int, int> values{{cuda::kThreadsPerBlockMax, 1024},
                                           {cuda::kBlockDimensionXMax, 1024},
                                           {cuda::kBlockDimensionYMax, 1024},
                                           {cuda::kBlockDimensionZMax, 64},
                                           {cuda::kGridDimensionXMax, 1 << 30},
                                           {cuda::kGridDimensionYMax, 65535},
                                           {cuda::kGridDimensionZMax, 65535},
                                           {cuda::kMultiprocessorCount, 4},
                                           {cuda::kCanMapHostMemory, 1},
                                           {cuda::kUnifiedAddressing, 1},
                                           {cuda::kCapabilityMajor, 9},
                                           {cuda::kCapabilityMinor, 0},
                                           {cuda::kSharedSizeMaxOptin, 232448},
                                           {cuda::kCanUseHostPointerForRegistered, 1},
                                           {cuda::kBlocksPerMultiprocessorMax, 32},
                                           {cuda::kCan64BitStreamWrites, 1}};
    const auto found = values.find(attribute);
    if (found == values.end()) return 1;
    *out = attribute == fake.lacking_attribute.load() ? 0 : found->second;
    return counted();
}
FAKE cuDevicePrimaryCtxRetain(ContextHandle* out, DeviceHandle) {
    if (const int code = counted(); code != 0) return code;
    fake.contexts.fetch_add(1);
    *out = reinterpret_cast<ContextHandle>(&context_tag);
    return 0;
}
FAKE cuDevicePrimaryCtxRelease_v2(DeviceHandle) {
    const int code = counted();
    if (fake.contexts.fetch_sub(1) > 1) return code;
    // With the last one everything goes that was not freed, as with a real driver.
    std::lock_guard lock(mutex);
    for (FakeStream* stream : streams) delete stream;
    for (FakeEvent* event : events) delete event;
    for (const auto& [given, taken] : device_pieces) std::free(taken);
    for (void* piece : pinned_pieces) std::free(piece);
    streams.clear();
    events.clear();
    device_pieces.clear();
    pinned_pieces.clear();
    return code;
}
FAKE cuCtxGetCurrent(ContextHandle* out) {
    *out = current;
    return counted();
}
FAKE cuCtxSetCurrent(ContextHandle context) {
    if (const int code = counted(); code != 0) return code;
    current = context;
    return 0;
}
FAKE cuCtxGetLimit(size_t* out, int) {
    *out = 1024;
    return counted_in_context();
}
FAKE cuCtxSetLimit(int, size_t) { return counted_in_context(); }
FAKE cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return counted_in_context();
}
FAKE cuMemGetInfo_v2(size_t* free_size, size_t* total_size) {
    *free_size = size_t{1} << 29;
    *total_size = size_t{1} << 30;
    return counted_in_context();
}
FAKE cuMemAlloc_v2(DevicePointer* out, size_t size) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (size > (size_t{1} << 30)) return 2;
    const size_t alignment = size >= (size_t{2} << 20) ? size_t{2} << 20 : 512;
    const size_t skew = alignment == 512 || fake.misaligned.load() ? 256 : 0;
    void* taken = std::aligned_alloc(alignment,
                                     (size + skew + alignment - 1) / alignment * alignment);
    if (taken == nullptr) return 2;
    std::memset(taken, 0xa5, size + skew);  // not zero, as a real driver's
    *out = reinterpret_cast<DevicePointer>(taken) + skew;
    std::lock_guard lock(mutex);
    device_pieces[*out] = taken;
    device_sizes[*out] = size;
    fake.device_pieces.fetch_add(1);
    return 0;
}
FAKE cuMemFree_v2(DevicePointer pointer) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    const auto found = device_pieces.find(pointer);
    if (found == device_pieces.end()) return 1;
    std::free(found->second);
    device_pieces.erase(found);
    device_sizes.erase(pointer);
    fake.device_pieces.fetch_sub(1);
    return 0;
}
// As a real one: what is neither device memory nor pinned is an invalid value.
FAKE cuPointerGetAttribute(void* out, int attribute, DevicePointer pointer) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (attribute != cuda::kMemoryTypeOfPointer) return 1;
    std::lock_guard lock(mutex);
    const auto behind = device_sizes.upper_bound(pointer);
    if (behind == device_sizes.begin()) return 1;
    const auto& [base, size] = *std::prev(behind);
    if (pointer - base >= size) return 1;
    *static_cast<unsigned*>(out) = cuda::kMemoryTypeDevice;
    return 0;
}
FAKE cuMemHostAlloc(void** out, size_t size, unsigned) {
    if (const int code = counted_in_context(); code != 0) return code;
    *out = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (*out == nullptr) return 2;
    std::memset(*out, 0xa5, size);
    std::lock_guard lock(mutex);
    pinned_pieces.insert(*out);
    fake.pinned_pieces.fetch_add(1);
    return 0;
}
FAKE cuMemFreeHost(void* pointer) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    if (pinned_pieces.erase(pointer) == 0) return 1;
    std::free(pointer);
    fake.pinned_pieces.fetch_sub(1);
    return 0;
}
FAKE cuMemHostRegister_v2(void*, size_t, unsigned) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (fake.refuse_register.load()) return 801;
    fake.registered_pieces.fetch_add(1);
    return 0;
}
FAKE cuMemHostUnregister(void*) {
    if (const int code = counted_in_context(); code != 0) return code;
    fake.registered_pieces.fetch_sub(1);
    return 0;
}
FAKE cuMemHostGetDevicePointer_v2(DevicePointer* out, void* pointer, unsigned) {
    *out = reinterpret_cast<DevicePointer>(pointer);
    return counted_in_context();
}
FAKE cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t size, StreamHandle stream) {
    if (const int code = counted_in_context(); code != 0) return code;
    return enqueue(stream, [=] {
        std::memmove(host(to), host(from), size);
        return true;
    });
}
FAKE cuMemcpyBatchAsync_v2(DevicePointer* to, DevicePointer* from, size_t* sizes, size_t count,
                           cuda::CopyAttributes* attributes, size_t* firsts, size_t attribute_count,
                           StreamHandle stream) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (count == 0 || attribute_count != 1 || firsts[0] != 0 || attributes->source_order != 1 ||
        attributes->flags != 0)
        return 1;
    for (size_t i = count; i-- > 0;) {  // in any order
        const auto copy = [to = to[i], from = from[i], size = sizes[i]] {
            std::memmove(host(to), host(from), size);
            return true;
        };
        if (const int code = enqueue(stream, copy); code != 0) return code;
    }
    return 0;
}
FAKE cuMemsetD8Async(DevicePointer to, unsigned char value, size_t size, StreamHandle stream) {
    if (const int code = counted_in_context(); code != 0) return code;
    return enqueue(stream, [=] {
        std::memset(host(to), value, size);
        return true;
    });
}
FAKE cuStreamWriteValue64_v2(StreamHandle stream, DevicePointer to, uint64_t value, unsigned) {
    if (const int code = counted_in_context(); code != 0) return code;
    return enqueue(stream, [=] {
        __atomic_store_n(static_cast<uint64_t*>(host(to)), value, __ATOMIC_RELEASE);
        return true;
    });
}
FAKE cuStreamCreateWithPriority(StreamHandle* out, unsigned flags, int priority) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (flags != cuda::kStreamNonBlocking || priority < -5 || priority > 0) return 1;
    std::lock_guard lock(mutex);
    auto* stream = new FakeStream;
    streams.insert(stream);
    fake.streams.fetch_add(1);
    *out = reinterpret_cast<StreamHandle>(stream);
    return 0;
}
FAKE cuStreamDestroy_v2(StreamHandle handle) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    FakeStream* stream = stream_of(handle);
    if (stream == nullptr) return 400;
    streams.erase(stream);
    delete stream;
    fake.streams.fetch_sub(1);
    return 0;
}
FAKE cuEventCreate(EventHandle* out, unsigned flags) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (flags != cuda::kEventUntimed) return 1;
    std::lock_guard lock(mutex);
    auto* event = new FakeEvent;
    events.insert(event);
    *out = reinterpret_cast<EventHandle>(event);
    return 0;
}
FAKE cuEventDestroy_v2(EventHandle handle) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    auto* event = reinterpret_cast<FakeEvent*>(handle);
    if (events.erase(event) == 0) return 400;
    delete event;
    return 0;
}
FAKE cuEventRecord(EventHandle handle, StreamHandle stream) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    auto* event = reinterpret_cast<FakeEvent*>(handle);
    if (events.count(event) == 0) return 400;
    return enqueue(stream, [over = event->over, number = ++*event->recorded] {
        *over = number;
        return true;
    });
}
FAKE cuStreamWaitEvent(StreamHandle stream, EventHandle handle, unsigned flags) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    auto* event = reinterpret_cast<FakeEvent*>(handle);
    if (events.count(event) == 0 || flags != 0) return 400;
    return enqueue(stream,
                   [over = event->over, number = *event->recorded] { return *over >= number; });
}
FAKE cuStreamQuery(StreamHandle handle) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    FakeStream* stream = stream_of(handle);
    if (stream == nullptr) return 400;
    advance_from(stream);
    if (const int fault = fake.fault.load(); fault != 0) return fault;
    return stream->operations.empty() ? 0 : 600;
}

namespace {

// The kernels of the target "fake". Each takes the argument pointers of its launch.
struct Body {
    std::function<bool(uint64_t* word, uint64_t value)> run;
};
const Body kAdd{[](uint64_t* word, uint64_t value) {
    __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
    return true;
}};
const Body kUntil{[](uint64_t* word, uint64_t value) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value;
}};
const Body kFaulty{[](uint64_t*, uint64_t) {
    fake.fault.store(700);
    return true;
}};
const Body kUnloadable{};

const penstock::CudaStub kStubs[] = {{"fake/add", &kAdd, &kStubs[1]},
                                     {"fake/until", &kUntil, &kStubs[2]},
                                     {"fake/faulty", &kFaulty, &kStubs[3]},
                                     {"fake/unloadable", &kUnloadable, nullptr}};

int prepare(const void* stub, size_t shared_size_max, penstock::CudaKernelAttributes* out) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (stub == &kUnloadable) return 209;
    out->registers_per_thread = 32;
    out->threads_per_block_max = stub == &kUntil ? 256 : 1024;
    out->code_version = 90;
    out->static_shared_size = 1024;
    out->dynamic_shared_size_max = shared_size_max - 1024;
    out->local_size = stub == &kUntil ? 4096 : 0;
    return 0;
}

int resident_blocks(const void*, int, size_t, int* out) {
    *out = 2;
    return counted_in_context();
}

int launch(const void* stub, const unsigned*, const unsigned*, void** arguments, size_t,
           void* stream) {
    if (const int code = counted_in_context(); code != 0) return code;
    fake.launches.fetch_add(1);
    auto* word = *static_cast<uint64_t**>(arguments[0]);
    const uint64_t value = *static_cast<uint64_t*>(arguments[1]);
    const auto* body = static_cast<const Body*>(stub);
    return enqueue(static_cast<StreamHandle>(stream), [=] { return body->run(word, value); });
}

const char* error_name(int code) {
    return code == 209 ? "cudaErrorNoKernelImageForDevice" : "cudaErrorFake";
}
const char* error_text(int) { return "as the fake says"; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const penstock::CudaLibrary*
penstock_cuda_library() {
    static const penstock::CudaLibrary library{penstock::kCudaLibraryVersion,
                                               kStubs,
                                               prepare,
                                               resident_blocks,
                                               launch,
                                               error_name,
                                               error_text};
    return &library;
}
