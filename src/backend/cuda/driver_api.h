// The part of NVIDIA's driver API that this room calls. It is declared here, so no CUDA header is
// needed to build.
//
// Each line names the member, the versioned symbol of libcuda.so.1 and the parameters, as cuda.h of
// CUDA 12 and 13 has them (a handle is a pointer, an enum an int, CUdeviceptr 64 bits). Nothing
// here has state.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::backend::cuda {

using DevicePointer = unsigned long long;  // CUdeviceptr
using DeviceHandle = int;                  // CUdevice
using ContextHandle = struct ContextTag*;  // CUcontext
using StreamHandle = struct StreamTag*;    // CUstream, the same as cudaStream_t
using EventHandle = struct EventTag*;      // CUevent

// CUmemcpyAttributes; the hints are for other kinds of memory.
struct CopyAttributes {
    int source_order = 1;  // CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    struct {
        int type = 0, id = 0;
    } source_hint, destination_hint;
    unsigned flags = 0;
};

using PhysicalHandle = uint64_t;  // CUmemGenericAllocationHandle
struct MemoryLocation {           // CUmemLocation
    int type = 1;                 // CU_MEM_LOCATION_TYPE_DEVICE
    int id = 0;                   // its ordinal
};
struct PhysicalProperties {  // CUmemAllocationProp
    int type = 1;            // CU_MEM_ALLOCATION_TYPE_PINNED
    int handle_types = 0;    // none: it is not shared with other processes
    MemoryLocation location;
    void* windows_only = nullptr;
    unsigned char compression = 0, gpu_direct = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
};
static_assert(sizeof(PhysicalProperties) == 32);
struct AccessDescription {  // CUmemAccessDesc
    MemoryLocation location;
    int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

struct RowsCopy {  // CUDA_MEMCPY2D
    size_t source_x = 0, source_y = 0;
    int source_type = 4;  // CU_MEMORYTYPE_UNIFIED: the address tells where it is
    const void* source_host = nullptr;
    DevicePointer source = 0;
    void* source_array = nullptr;
    size_t source_pitch = 0;
    size_t destination_x = 0, destination_y = 0;
    int destination_type = 4;
    void* destination_host = nullptr;
    DevicePointer destination = 0;
    void* destination_array = nullptr;
    size_t destination_pitch = 0;
    size_t width = 0, height = 0;  // bytes, rows
};

// One function of the driver: 0 or a CUresult.
template <class... Parameters>
struct Call {
    int (*function)(Parameters...) = nullptr;
    const char* name = "";
    int operator()(Parameters... arguments) const { return function(arguments...); }
};

// X(member, symbol, parameter types...)
#define PENSTOCK_CUDA_DRIVER_CALLS(X)                                                             \
    X(init, cuInit, unsigned)                                                                     \
    X(driver_version, cuDriverGetVersion, int*)                                                   \
    X(error_name, cuGetErrorName, int, const char**)                                              \
    X(error_string, cuGetErrorString, int, const char**)                                          \
    X(device_count, cuDeviceGetCount, int*)                                                       \
    X(device_get, cuDeviceGet, DeviceHandle*, int)                                                \
    X(device_name, cuDeviceGetName, char*, int, DeviceHandle)                                     \
    X(device_memory, cuDeviceTotalMem_v2, size_t*, DeviceHandle)                                  \
    X(device_attribute, cuDeviceGetAttribute, int*, int, DeviceHandle)                            \
    X(primary_retain, cuDevicePrimaryCtxRetain, ContextHandle*, DeviceHandle)                     \
    X(primary_release, cuDevicePrimaryCtxRelease_v2, DeviceHandle)                                \
    X(get_current, cuCtxGetCurrent, ContextHandle*)                                               \
    X(set_current, cuCtxSetCurrent, ContextHandle)                                                \
    X(get_limit, cuCtxGetLimit, size_t*, int)                                                     \
    X(set_limit, cuCtxSetLimit, int, size_t)                                                      \
    X(priority_range, cuCtxGetStreamPriorityRange, int*, int*)                                    \
    X(memory_info, cuMemGetInfo_v2, size_t*, size_t*)                                             \
    X(memory_allocate, cuMemAlloc_v2, DevicePointer*, size_t)                                     \
    X(memory_free, cuMemFree_v2, DevicePointer)                                                   \
    X(host_allocate, cuMemHostAlloc, void**, size_t, unsigned)                                    \
    X(host_free, cuMemFreeHost, void*)                                                            \
    X(host_register, cuMemHostRegister_v2, void*, size_t, unsigned)                               \
    X(host_unregister, cuMemHostUnregister, void*)                                                \
    X(host_device_pointer, cuMemHostGetDevicePointer_v2, DevicePointer*, void*, unsigned)         \
    X(pointer_attribute, cuPointerGetAttribute, void*, int, DevicePointer)                        \
    X(copy_async, cuMemcpyAsync, DevicePointer, DevicePointer, size_t, StreamHandle)              \
    X(copy_rows_async, cuMemcpy2DAsync_v2, const RowsCopy*, StreamHandle)                         \
    X(fill_async, cuMemsetD8Async, DevicePointer, unsigned char, size_t, StreamHandle)            \
    X(stream_create, cuStreamCreateWithPriority, StreamHandle*, unsigned, int)                    \
    X(stream_destroy, cuStreamDestroy_v2, StreamHandle)                                           \
    X(stream_query, cuStreamQuery, StreamHandle)                                                  \
    X(stream_wait, cuStreamWaitEvent, StreamHandle, EventHandle, unsigned)                        \
    X(event_create, cuEventCreate, EventHandle*, unsigned)                                        \
    X(event_destroy, cuEventDestroy_v2, EventHandle)                                              \
    X(event_record, cuEventRecord, EventHandle, StreamHandle)                                     \
    X(stream_write, cuStreamWriteValue64_v2, StreamHandle, DevicePointer, uint64_t, unsigned)     \
    X(context_create, cuCtxCreate_v2, ContextHandle*, unsigned, DeviceHandle)                     \
    X(context_destroy, cuCtxDestroy_v2, ContextHandle)                                            \
    X(context_pop, cuCtxPopCurrent_v2, ContextHandle*)                                            \
    X(physical_create, cuMemCreate, PhysicalHandle*, size_t, const PhysicalProperties*, uint64_t) \
    X(physical_release, cuMemRelease, PhysicalHandle)                                             \
    X(address_reserve, cuMemAddressReserve, DevicePointer*, size_t, size_t, DevicePointer,        \
      uint64_t)                                                                                   \
    X(address_free, cuMemAddressFree, DevicePointer, size_t)                                      \
    X(map, cuMemMap, DevicePointer, size_t, size_t, PhysicalHandle, uint64_t)                     \
    X(unmap, cuMemUnmap, DevicePointer, size_t)                                                   \
    X(set_access, cuMemSetAccess, DevicePointer, size_t, const AccessDescription*, size_t)        \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, int*)                             \
    X(stream_is_capturing, cuStreamIsCapturing, StreamHandle, int*)                               \
    X(event_query, cuEventQuery, EventHandle)

// Those that drivers before CUDA 13 do not have: `function` is null there.
#define PENSTOCK_CUDA_NEWER_DRIVER_CALLS(X)                                               \
    X(copy_batch, cuMemcpyBatchAsync_v2, DevicePointer*, DevicePointer*, size_t*, size_t, \
      CopyAttributes*, size_t*, size_t, StreamHandle)

// Values of cuda.h's enums and flags.
inline constexpr int kMemoryTypeOfPointer = 2;  // an unsigned comes back
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr int kOrdinalOfPointer = 9;  // an int comes back
enum Attribute : int {
    kThreadsPerBlockMax = 1,
    kBlockDimensionXMax = 2,
    kBlockDimensionYMax = 3,
    kBlockDimensionZMax = 4,
    kGridDimensionXMax = 5,
    kGridDimensionYMax = 6,
    kGridDimensionZMax = 7,
    kMultiprocessorCount = 16,
    kCanMapHostMemory = 19,
    kUnifiedAddressing = 41,
    kCapabilityMajor = 75,
    kCapabilityMinor = 76,
    kCanUseHostPointerForRegistered = 91,
    kSharedSizeMaxOptin = 97,
    kCanMapMemory = 102,  // cuMemCreate and what belongs to it
    kBlocksPerMultiprocessorMax = 106,
    kCan64BitStreamWrites = 122,
};
inline constexpr int kLimitStackSize = 0;
inline constexpr unsigned kHostPortable = 1;   // pinned for every context
inline constexpr unsigned kHostDeviceMap = 2;  // GPU threads may address it
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventUntimed = 2;
inline constexpr unsigned kStreamWriteFenced = 0;  // CU_STREAM_WRITE_VALUE_DEFAULT: a fence, then
                                                   // the value

inline constexpr int kCaptureModeRelaxed = 2;  // calls of this thread break no capture
inline constexpr int kNotCapturing = 0;
inline const StreamHandle kLegacyStream = reinterpret_cast<StreamHandle>(uintptr_t{1});

inline constexpr int kSuccess = 0;
inline constexpr int kErrorInvalidValue = 1;
inline constexpr int kErrorOutOfMemory = 2;
inline constexpr int kErrorNotReady = 600;
inline constexpr int kErrorCaptureImplicit = 906;  // a capture would come to depend on the legacy
                                                   // default stream

}  // namespace penstock::backend::cuda
