// The memory of a read or write: what a Python object gives, held for as long as it is needed.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include "device_memory.h"

namespace penstock::python {

struct BufferRelease {
    void operator()(Py_buffer* view) const {
        PyBuffer_Release(view);
        delete view;
    }
};
using BufferView = std::unique_ptr<Py_buffer, BufferRelease>;

// Move-only. Wants the interpreter held, also to be destroyed.
struct Target {
    static constexpr int kHost = -1;      // memory that the host addresses
    static constexpr int kSomeCuda = -2;  // of a CUDA device that was not named

    std::byte* data = nullptr;
    uint64_t size = 0;
    int cuda = kHost;      // or the number of the device
    uintptr_t stream = 0;  // on which its owner works, as far as it was told; 0: it was not
    std::variant<std::monostate, BufferView, nanobind::ndarray<nanobind::ro>,
                 std::shared_ptr<Block>, nanobind::object>
        holder;
};

// The memory that `object` gives by the first of: being penstock.DeviceMemory, DLPack,
// __cuda_array_interface__, the buffer protocol. What can only lie in host memory is asked by the
// buffer protocol alone: that gives the same memory and costs least. Throws TypeError for what
// gives none and for what holds Python objects, BufferError for memory that is not contiguous or,
// where a file is `read` into it, read-only.
enum class Use : uint8_t { kRead, kWrite };
// `ordered`: what the owner of CUDA memory has queued is to be over first. The legacy default
// stream and `stream` of the result then wait for it.
Target target_of(nanobind::handle object, Use use, bool ordered);

}  // namespace penstock::python
