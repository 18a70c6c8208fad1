// One file of more than 500 lines, because it stands for one library of short functions.
//
// A driver without a GPU, for tests: stands for libcuda.so.1 (PENSTOCK_LIBCUDA) with host memory
// behind it.
//
// Streams are lists of operations that run when anyone looks; FakeCuda (driver_fake.h) makes calls
// fail and holds streams. It is a kernel library too, of the target "fake": its kernels are host
// functions with the arguments of a launch. It checks what a real driver would not: calls without a
// context, copies of a stream that is gone.
#include "backend/cuda/driver_fake.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "backend/cuda/driver_fake_state.h"
#include "penstock/cuda_library.h"

namespace cuda = penstock::backend::cuda;
using namespace penstock::backend::cuda;  // NOLINT(google-build-using-namespace): its own state

#define FAKE extern "C" __attribute__((visibility("default"))) int

extern "C" __attribute__((visibility("default"))) FakeCuda* penstock_fake_cuda() { return &fake; }
// For programs in C.
extern "C" __attribute__((visibility("default"))) void penstock_fake_hide_memory() {
    fake.unreachable = true;
}

FAKE cuInit(unsigned) {
    // For programs that do not know the fake; tests set the word later.
    if (const char* count = std::getenv("PENSTOCK_FAKE_GPUS"); count != nullptr)
        fake.device_count = std::atoi(count);
    return counted();
}
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
                                           {cuda::kCanMapMemory, 1},
                                           {cuda::kBlocksPerMultiprocessorMax, 32},
                                           {cuda::kCan64BitStreamWrites, 1}};
    const auto found = values.find(attribute);
    if (found == values.end()) return 1;
    *out = attribute == fake.lacking_attribute.load() ? 0 : found->second;
    return counted();
}
FAKE cuDevicePrimaryCtxRetain(ContextHandle* out, DeviceHandle device) {
    if (const int code = counted(); code != 0) return code;
    fake.contexts.fetch_add(1);
    *out = reinterpret_cast<ContextHandle>(&primary_ordinals[device]);
    return 0;
}
FAKE cuCtxCreate_v2(ContextHandle* out, unsigned, DeviceHandle device) {
    if (const int code = counted(); code != 0) return code;
    if (fake.refuse_second_context.load()) return 2;
    fake.second_contexts.fetch_add(1);
    *out = current = reinterpret_cast<ContextHandle>(new int(device));
    return 0;
}
FAKE cuCtxDestroy_v2(ContextHandle context) {
    if (is_primary(context)) return 201;
    fake.second_contexts.fetch_sub(1);
    delete ordinal_of(context);
    return counted();
}
FAKE cuCtxPopCurrent_v2(ContextHandle* out) {
    *out = std::exchange(current, nullptr);
    return counted();
}
FAKE cuThreadExchangeStreamCaptureMode(int* mode) {
    std::swap(capture_mode, *mode);
    return 0;  // not counted: it cannot fail
}
FAKE cuDevicePrimaryCtxRelease_v2(DeviceHandle) {
    const int code = counted();
    if (fake.contexts.fetch_sub(1) > 1) return code;
    // With the last one everything goes that was not freed, as with a real driver.
    std::lock_guard lock(mutex);
    for (FakeStream* stream : streams) delete stream;
    for (FakeEvent* event : events) delete event;
    for (const auto& [given, taken] : device_pieces) std::free(taken);
    for (const auto& [piece, size] : pinned_pieces)
        std::free(static_cast<char*>(piece) - kPinnedSkew);
    for (void* address : reserved) std::free(address);
    reserved.clear();
    mapped_pieces.clear();
    device_sizes.clear();
    device_ordinals.clear();
    for (std::atomic<uint64_t>& taken : taken_of) taken = 0;
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
    const int code = counted_in_context();
    if (code != 0) return code;
    const uint64_t all = uint64_t{1} << 29;
    const uint64_t used = fake.used_by_others.load() + taken_of[*ordinal_of(current)].load();
    *free_size = all - std::min(all, used);
    *total_size = size_t{1} << 30;
    return code;
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
    if (fake.unreachable.load()) {
        void* given = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (given == MAP_FAILED) return 2;
        *out = reinterpret_cast<DevicePointer>(given);
        behind_unreachable[*out] = static_cast<char*>(taken) + skew;
    }
    device_pieces[*out] = taken;
    device_sizes[*out] = size;
    device_ordinals[*out] = *ordinal_of(current);
    taken_of[*ordinal_of(current)].fetch_add(size);
    fake.device_pieces.fetch_add(1);
    return 0;
}
// Memory that every context reaches: created, then mapped at an address that was reserved.
FAKE cuMemCreate(cuda::PhysicalHandle* out, size_t size, const cuda::PhysicalProperties* properties,
                 uint64_t flags) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (properties->type != 1 || properties->location.type != 1 || flags != 0 ||
        size % (size_t{2} << 20) != 0)
        return 1;
    if (size > (size_t{1} << 30)) return 2;
    *out = size;
    fake.device_pieces.fetch_add(1);
    return 0;
}
FAKE cuMemRelease(cuda::PhysicalHandle) { return counted_in_context(); }
FAKE cuMemAddressReserve(DevicePointer* out, size_t size, size_t alignment, DevicePointer,
                         uint64_t) {
    if (const int code = counted_in_context(); code != 0) return code;
    void* taken = std::aligned_alloc(alignment, size);
    if (taken == nullptr) return 2;
    *out = reinterpret_cast<DevicePointer>(taken);
    std::lock_guard lock(mutex);
    reserved.insert(taken);
    return 0;
}
FAKE cuMemAddressFree(DevicePointer start, size_t) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    if (reserved.erase(host(start)) == 0) return 1;
    std::free(host(start));
    return 0;
}
FAKE cuMemMap(DevicePointer start, size_t size, size_t, cuda::PhysicalHandle physical, uint64_t) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (physical != size) return 1;
    std::memset(reinterpret_cast<void*>(start), 0xa5, size);
    std::lock_guard lock(mutex);
    mapped_pieces[start] = size;
    device_sizes[start] = size;
    return 0;
}
FAKE cuMemUnmap(DevicePointer start, size_t) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    if (mapped_pieces.erase(start) == 0) return 1;
    device_sizes.erase(start);
    fake.device_pieces.fetch_sub(1);
    return 0;
}
FAKE cuMemSetAccess(DevicePointer, size_t, const cuda::AccessDescription* access, size_t count) {
    if (const int code = counted_in_context(); code != 0) return code;
    return count == 1 && access->location.type == 1 && access->flags == 3 ? 0 : 1;
}
FAKE cuMemFree_v2(DevicePointer pointer) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    const auto found = device_pieces.find(pointer);
    if (found == device_pieces.end()) return 1;
    std::free(found->second);
    if (behind_unreachable.erase(pointer) > 0)
        munmap(reinterpret_cast<void*>(pointer), device_sizes[pointer]);
    taken_of[device_ordinals[pointer]].fetch_sub(device_sizes[pointer]);
    device_pieces.erase(found);
    device_sizes.erase(pointer);
    fake.device_pieces.fetch_sub(1);
    return 0;
}
// As a real one: what is neither device memory nor pinned is an invalid value.
FAKE cuPointerGetAttribute(void* out, int attribute, DevicePointer pointer) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (attribute != cuda::kMemoryTypeOfPointer && attribute != cuda::kOrdinalOfPointer) return 1;
    std::lock_guard lock(mutex);
    const auto behind = device_sizes.upper_bound(pointer);
    if (behind == device_sizes.begin()) return 1;
    const auto& [base, size] = *std::prev(behind);
    if (pointer - base >= size) return 1;
    *static_cast<unsigned*>(out) = attribute == cuda::kOrdinalOfPointer ? 0
                                                                        : cuda::kMemoryTypeDevice;
    return 0;
}
FAKE cuMemHostAlloc(void** out, size_t size, unsigned) {
    if (const int code = counted_in_context(); code != 0) return code;
    const size_t whole = kPinnedSkew + size + kGuardSize;
    auto* taken = static_cast<char*>(std::aligned_alloc(4096, (whole + 4095) / 4096 * 4096));
    if (taken == nullptr) return 2;
    *out = taken + kPinnedSkew;
    std::memset(*out, 0xa5, size);
    std::memset(static_cast<char*>(*out) + size, kGuard, kGuardSize);
    std::lock_guard lock(mutex);
    pinned_pieces[*out] = size;
    fake.pinned_pieces.fetch_add(1);
    return 0;
}
FAKE cuMemFreeHost(void* pointer) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    const auto found = pinned_pieces.find(pointer);
    if (found == pinned_pieces.end()) return 1;
    const auto* guard = static_cast<const unsigned char*>(pointer) + found->second;
    if (std::any_of(guard, guard + kGuardSize, [](unsigned char byte) { return byte != kGuard; }))
        fake.overruns.fetch_add(1);
    std::free(static_cast<char*>(pointer) - kPinnedSkew);
    pinned_pieces.erase(found);
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
    if (is_out_of_reach(to) || is_out_of_reach(from)) return 1;
    return enqueue(stream, [=] {
        std::memmove(host(to), host(from), size);
        return true;
    });
}
FAKE cuMemcpy2DAsync_v2(const cuda::RowsCopy* copy, StreamHandle stream) {
    if (const int code = counted_in_context(); code != 0) return code;
    if (is_out_of_reach(copy->source) || is_out_of_reach(copy->destination)) return 1;
    if (copy->height < 2 || copy->source_pitch < copy->width ||
        copy->destination_pitch < copy->width)
        return 1;
    return enqueue(stream, [rows = *copy] {
        for (size_t row = 0; row < rows.height; ++row)
            std::memmove(host(rows.destination + row * rows.destination_pitch),
                         host(rows.source + row * rows.source_pitch), rows.width);
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
        if (is_out_of_reach(to[i]) || is_out_of_reach(from[i])) return 1;
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
    stream->context = current;
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
    if (stream == cuda::kLegacyStream) {
        fake.legacy_waits.fetch_add(1);
        if (fake.legacy_captured.load()) return 906;
        event->of_legacy = true;
        return 0;
    }
    event->of_legacy = false;
    return enqueue(stream, [over = event->over, number = ++*event->recorded] {
        *over = number;
        return true;
    });
}
FAKE cuEventQuery(EventHandle handle) {
    if (const int code = counted_in_context(); code != 0) return code;
    std::lock_guard lock(mutex);
    auto* event = reinterpret_cast<FakeEvent*>(handle);
    if (events.count(event) == 0) return 400;
    if (event->of_legacy) return fake.legacy_busy.load() ? 600 : 0;
    for (FakeStream* stream : std::set<FakeStream*>(streams)) advance(stream);
    return *event->over >= *event->recorded ? 0 : 600;
}
FAKE cuStreamIsCapturing(StreamHandle stream, int* out) {
    if (const int code = counted_in_context(); code != 0) return code;
    *out = stream != cuda::kLegacyStream && fake.stream_captured.load() ? 1 : 0;
    return stream == cuda::kLegacyStream && fake.legacy_captured.load() ? 906 : 0;
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
    if (handle == cuda::kLegacyStream) return fake.legacy_busy.load() ? 600 : 0;
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
    fake.last_launch_stream.store(reinterpret_cast<uintptr_t>(stream));
    auto* word = *static_cast<uint64_t**>(arguments[0]);
    const uint64_t value = *static_cast<uint64_t*>(arguments[1]);
    const auto* body = static_cast<const Body*>(stub);
    {
        std::lock_guard lock(mutex);
        if (FakeStream* found = stream_of(static_cast<StreamHandle>(stream)); found != nullptr)
            ++found->kernels;
    }
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
