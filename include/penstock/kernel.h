// Kernels: how they are named, found and launched. One source, two compilers.
//
// A `.cu` file goes through g++ (with language/cuda.h) into the program, and, where there is an
// nvcc, through nvcc into lib<target>_cuda.so, which is opened when a CUDA device is used. Both
// compile PENSTOCK_KERNEL: under g++ it enters a kernel into the registry, under nvcc it lists the
// host stub under the same key. docs/design/0002-two-compilers.md says why. Any host thread may
// launch; registration runs before main.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#ifdef __NVCC__
#include "penstock/cuda_library.h"
#endif
#include "penstock/status.h"

namespace penstock {

class Stream;

// Extents of a grid in blocks, or of a block in GPU threads.
struct Dimensions {
    unsigned x = 1, y = 1, z = 1;
    constexpr Dimensions() = default;
    constexpr Dimensions(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    [[nodiscard]] constexpr uint64_t count() const { return uint64_t{x} * y * z; }
};

// The shape of a launch: its grid of blocks, and the GPU threads of a block.
struct LaunchShape {
    Dimensions grid, block;
    size_t dynamic_shared_size = 0;  // bytes for each block
};

// One kernel of the program. It lives as long as the program, or as the library that holds it.
struct KernelEntry {
    const char* key = nullptr;       // "<target>/<text given to PENSTOCK_KERNEL>"
    const void* function = nullptr;  // the g++ function; launch() takes it too
    KernelEntry* next = nullptr;     // the next entry of the registry; constant once registered
};

// One launch: shape, kernel and its arguments, which the launch owns.
struct LaunchRequest {
    LaunchShape shape;
    const void* function = nullptr;
    std::shared_ptr<void> arguments;     // the packed arguments
    void** argument_pointers = nullptr;  // into `arguments`; one for each parameter, in order
    void (*invoke)(const void* arguments) = nullptr;  // calls the g++ function, for one lane
};

// Enters a kernel into the registry, or finds it by address or key (null: unknown). Any thread.
void register_kernel(KernelEntry* entry);
KernelEntry* find_kernel(const void* function);
KernelEntry* find_kernel_by_key(const char* key);
// Returns the newest entry of the registry; `next` links the others. Null: none is registered.
KernelEntry* first_kernel();

// Adds the launch to `stream`, behind the operations that are in it. Programs call it through
// launch() below. Any host thread. Does not wait for the kernel; on CUDA it waits for room when
// very many launches are in flight. Errors: EINVAL for a shape beyond the limits of the device and
// for a kernel that is not registered. On CUDA also: ENOENT or another errno when the kernel's
// library is missing or does not fit the device (see Device::diagnosis()); EBUSY when a kernel is
// registered late, while others run. Stream::synchronize returns errors of the kernel itself.
Status launch_request(Stream& stream, LaunchRequest request);

namespace kernel_arguments {

template <class... Parameters>
struct Pack {
    void (*kernel)(Parameters...);
    std::tuple<std::decay_t<Parameters>...> values;
    void* pointers[sizeof...(Parameters) == 0 ? 1 : sizeof...(Parameters)];
};

}  // namespace kernel_arguments

// Makes the launch of a kernel with its arguments. The arguments are converted to the kernel's
// parameter types and copied here. Parameters are passed by value and must be trivially copyable.
// Memory they point to must stay valid until the kernel has ended.
template <class... Parameters, class... Arguments>
LaunchRequest make_launch(const LaunchShape& shape, void (*kernel)(Parameters...),
                          Arguments&&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                  "as many arguments as the kernel has parameters");
    static_assert((std::is_trivially_copyable_v<std::decay_t<Parameters>> && ...),
                  "kernel parameters are copied bytewise");
    using Packed = kernel_arguments::Pack<Parameters...>;
    auto packed = std::shared_ptr<Packed>(
        new Packed{kernel,
                   {static_cast<std::decay_t<Parameters>>(std::forward<Arguments>(arguments))...},
                   {}});
    [&]<size_t... I>(std::index_sequence<I...>) {
        ((packed->pointers[I] = const_cast<void*>(
              static_cast<const void*>(&std::get<I>(packed->values)))),
         ...);
    }
    (std::index_sequence_for<Parameters...>{});
    LaunchRequest request;
    request.shape = shape;
    request.function = reinterpret_cast<const void*>(kernel);
    request.argument_pointers = packed->pointers;
    request.invoke = [](const void* bytes) {
        const auto* pack = static_cast<const Packed*>(bytes);
        std::apply(pack->kernel, pack->values);
    };
    request.arguments = std::move(packed);
    return request;
}

// Launches a kernel: launch(stream, {grid, block, dynamic_shared_size}, kernel, arguments...).
//   shape      blocks, GPU threads of a block, and bytes of dynamic shared memory of a block
//   kernel     a __global__ function that PENSTOCK_KERNEL names
//   arguments  as for make_launch
// Callers, blocking and errors are those of launch_request. The host sees what the kernel wrote
// after Stream::synchronize.
template <class... Parameters, class... Arguments>
Status launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
              Arguments&&... arguments) {
    return launch_request(stream,
                          make_launch(shape, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace penstock

// Declares, in a header, a kernel that host code launches: PENSTOCK_GLOBAL void scale(float*, int);
// Both compilers and host code may include that header.
#ifdef __NVCC__
#define PENSTOCK_GLOBAL __global__
#else
#define PENSTOCK_GLOBAL
#endif

#define PENSTOCK_KERNEL_JOIN_(a, b) a##b
#define PENSTOCK_KERNEL_JOIN(a, b) PENSTOCK_KERNEL_JOIN_(a, b)

// penstock_add_kernels() defines PENSTOCK_KERNEL_TARGET as the name of the target.
#ifndef PENSTOCK_KERNEL_TARGET
#define PENSTOCK_KERNEL_TARGET "program"
#endif

// Instantiates `kernel<T>` and makes it launchable on every backend. Used at namespace scope in a
// .cu file. The macro is variadic because template arguments contain commas.
#ifdef __NVCC__
#define PENSTOCK_KERNEL(...)                                                                   \
    static ::penstock::CudaStubRegistration PENSTOCK_KERNEL_JOIN(penstock_stub_, __COUNTER__){ \
        PENSTOCK_KERNEL_TARGET "/" #__VA_ARGS__, reinterpret_cast<const void*>(&__VA_ARGS__)};
namespace penstock {
// Lists a host stub for penstock_cuda_library(). It is hidden because each lib<target>_cuda.so of a
// program has its own list.
struct __attribute__((visibility("hidden"))) CudaStubRegistration {
    CudaStub entry;
    inline static const CudaStub* first = nullptr;
    CudaStubRegistration(const char* key, const void* stub) : entry{key, stub, first} {
        first = &entry;
    }
};
}  // namespace penstock
#else
#define PENSTOCK_KERNEL(...)                                                                   \
    static ::penstock::KernelRegistration PENSTOCK_KERNEL_JOIN(penstock_kernel_, __COUNTER__){ \
        PENSTOCK_KERNEL_TARGET "/" #__VA_ARGS__, reinterpret_cast<const void*>(&__VA_ARGS__)};
namespace penstock {
struct KernelRegistration {
    KernelEntry entry;
    KernelRegistration(const char* key, const void* function) : entry{key, function, nullptr} {
        register_kernel(&entry);
    }
};
}  // namespace penstock
#endif
