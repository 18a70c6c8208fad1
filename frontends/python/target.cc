// Buffers that are read into, or written from. What was refused is explained by
// penstock/buffers.py.
#include "target.h"

#include <nanobind/stl/string.h>

#include <limits>
#include <optional>

namespace penstock::python {
namespace {

namespace nb = nanobind;

[[noreturn]] void refuse(nb::handle object, Use use) {
    nb::module_::import_("penstock.buffers").attr("refuse")(object, use == Use::kWrite);
    throw nb::type_error("the buffer was refused");  // refuse() raises something better
}

// Whether a format of PEP 3118 tells of references to Python objects, outside ":names:".
bool tells_objects(const char* format) {
    bool in_name = false;
    for (const char* one = format; one != nullptr && *one != '\0'; ++one) {
        if (*one == ':') in_name = !in_name;
        if (*one == 'O' && !in_name) return true;
    }
    return false;
}

// Whether elements hold references to Python objects, which must not be overwritten. Only elements
// in which one has room are asked for their format: of the others it would cost time and be
// refused, as that of ml_dtypes' bfloat16 is.
bool holds_objects(nb::handle object, const Py_buffer& view) {
    if (view.itemsize < static_cast<Py_ssize_t>(sizeof(PyObject*))) return false;
    Py_buffer told;
    if (PyObject_GetBuffer(object.ptr(), &told, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT) == 0) {
        const bool objects = tells_objects(told.format);
        PyBuffer_Release(&told);
        return objects;
    }
    PyErr_Clear();  // a type of NumPy's that formats cannot name
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    return nb::cast<bool>(nb::bool_(nb::getattr(dtype, "hasobject", nb::bool_(false))));
}

std::optional<Target> by_buffer_protocol(nb::handle object, Use use) {
    auto view = std::make_unique<Py_buffer>();
    const int flags = PyBUF_ANY_CONTIGUOUS | (use == Use::kRead ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), view.get(), flags) != 0) {
        PyErr_Clear();
        return std::nullopt;
    }
    Target target;
    target.data = static_cast<std::byte*>(view->buf);
    target.size = static_cast<uint64_t>(view->len);
    BufferView held(view.release());
    if (holds_objects(object, *held)) return std::nullopt;
    target.holder = std::move(held);
    return target;
}

template <class Array>
std::optional<Target> by_dlpack_as(nb::handle object) {
    Array array;
    if (!nb::try_cast(object, array, /*convert=*/false)) return std::nullopt;
    Target target;
    switch (array.device_type()) {
        case nb::device::cpu::value:
        case nb::device::cuda_host::value:
        case nb::device::cuda_managed::value:
            break;
        case nb::device::cuda::value:
            target.cuda = array.device_id();
            break;
        default:
            return std::nullopt;
    }
    target.data = reinterpret_cast<std::byte*>(
        const_cast<void*>(static_cast<const void*>(array.data())));
    target.size = array.nbytes();
    target.holder = nb::ndarray<nb::ro>(array);
    return target;
}

// The DLPack capsule of an object in CUDA memory. `ordered`: asked for as by a user of the legacy
// default stream (1 in the protocol), which its owner then lets wait for what is queued on its own;
// else nothing is to wait (-1). Null: the object lies elsewhere.
nb::object cuda_capsule(nb::handle object, bool ordered) {
    if (!nb::hasattr(object, "__dlpack_device__") || !nb::hasattr(object, "__dlpack__")) return {};
    try {
        const nb::object kind = object.attr("__dlpack_device__")()[0];
        if (nb::cast<int>(nb::int_(kind)) != nb::device::cuda::value) return {};
    } catch (nb::python_error&) {  // refused: the caller finds out why
        return {};
    }
    nb::dict arguments;
    arguments["stream"] = ordered ? 1 : -1;
    arguments["max_version"] = nb::make_tuple(1, 1);
    const nb::object give = object.attr("__dlpack__");
    try {
        return give(**arguments);
    } catch (nb::python_error& error) {
        if (!error.matches(PyExc_TypeError)) return {};
    }
    nb::dict older;  // from before the protocol had versions
    older["stream"] = ordered ? 1 : -1;
    try {
        return give(**older);
    } catch (nb::python_error&) {
        return {};
    }
}

// A tensor of torch in CUDA memory, by its own calls: its DLPack export refuses tensors of another
// device than the current one, and would make a stream that is being captured wait.
std::optional<Target> by_torch(nb::handle object, bool ordered) {
    Target target;
    target.cuda = nb::cast<int>(object.attr("device").attr("index"));
    target.data = reinterpret_cast<std::byte*>(nb::cast<uintptr_t>(object.attr("data_ptr")()));
    target.size = nb::cast<uint64_t>(object.attr("nbytes"));
    if (ordered) {
        const nb::object stream = nb::module_::import_("torch").attr("cuda").attr("current_stream")(
            object.attr("device"));
        target.stream = nb::cast<uintptr_t>(stream.attr("cuda_stream"));
    }
    target.holder = nb::borrow(object);
    return target;
}

bool is_true(nb::handle object, const char* name) {
    return nb::getattr(object, name, nb::none()).ptr() == Py_True;
}

// Where by_torch may be used: a strided tensor that is contiguous and takes part in no gradient.
bool is_torch_on_cuda(nb::handle object) {
    if (!is_true(object, "is_cuda") || !nb::hasattr(object, "data_ptr") ||
        is_true(object, "requires_grad") || is_true(object, "is_sparse"))
        return false;
    try {
        return nb::cast<bool>(object.attr("is_contiguous")()) &&
               !nb::cast<bool>(object.attr("is_conj")());
    } catch (nb::python_error&) {
        return false;
    }
}

std::optional<Target> by_dlpack(nb::handle object, Use use, bool ordered) {
    if (is_torch_on_cuda(object)) return by_torch(object, ordered);
    // To ask a tensor of torch in host memory for its DLPack device fails in the child of a fork.
    const bool on_host = nb::getattr(object, "is_cuda", nb::none()).ptr() == Py_False;
    const nb::object capsule = on_host ? nb::object() : cuda_capsule(object, ordered);
    const nb::handle given = capsule.is_valid() ? nb::handle(capsule) : object;
    return use == Use::kRead ? by_dlpack_as<nb::ndarray<nb::any_contig>>(given)
                             : by_dlpack_as<nb::ndarray<nb::ro, nb::any_contig>>(given);
}

// Bytes of an element: the digits at the end of "<f4". 0: not told, or Python objects ("|O8").
uint64_t element_size(const std::string& type) {
    if (type.size() > 1 && type[1] == 'O') return 0;
    uint64_t size = 0;
    for (const char one : type)
        size = one >= '0' && one <= '9' ? size * 10 + static_cast<uint64_t>(one - '0') : 0;
    return size;
}

// https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html, version 3.
std::optional<Target> by_cuda_array_interface(nb::handle object, Use use) {
    const nb::object told = nb::getattr(object, "__cuda_array_interface__", nb::none());
    if (!nb::isinstance<nb::dict>(told)) return std::nullopt;
    const auto description = nb::cast<nb::dict>(told);
    const auto data = nb::cast<nb::tuple>(description["data"]);
    if (use == Use::kRead && nb::cast<bool>(data[1])) return std::nullopt;
    uint64_t size = element_size(nb::cast<std::string>(description["typestr"]));
    if (size == 0) return std::nullopt;
    const auto shape = nb::cast<nb::tuple>(description["shape"]);
    const nb::object strides = description.contains("strides") ? nb::object(description["strides"])
                                                               : nb::none();
    for (size_t i = shape.size(); i-- > 0;) {
        const auto extent = nb::cast<int64_t>(shape[i]);
        if (extent < 0) return std::nullopt;
        if (!strides.is_none() && extent != 1 &&
            nb::cast<int64_t>(strides[i]) != static_cast<int64_t>(size))
            return std::nullopt;
        if (extent != 0 && size > std::numeric_limits<uint64_t>::max() / 2 / uint64_t(extent))
            return std::nullopt;
        size *= static_cast<uint64_t>(extent);
    }
    Target target;
    target.data = reinterpret_cast<std::byte*>(nb::cast<uintptr_t>(data[0]));
    target.size = size;
    target.cuda = Target::kSomeCuda;
    const nb::object stream = description.contains("stream") ? nb::object(description["stream"])
                                                             : nb::none();
    if (!stream.is_none()) target.stream = nb::cast<uintptr_t>(stream);
    target.holder = nb::borrow(object);
    return target;
}

// Whether the buffer protocol says all: for what cannot lie on a device, such as NumPy's arrays, it
// costs a microsecond less than DLPack. CuPy's arrays have both, and the protocol only where the
// host may load.
bool is_host_buffer(nb::handle object) {
    static PyTypeObject* last = nullptr;  // of such an object; a reference is held
    PyTypeObject* const type = Py_TYPE(object.ptr());
    if (type == last) return true;
    if (PyObject_CheckBuffer(object.ptr()) == 0 ||
        nb::hasattr(nb::handle(reinterpret_cast<PyObject*>(type)), "__cuda_array_interface__"))
        return false;
    Py_INCREF(type);
    Py_XDECREF(last);
    last = type;
    return true;
}

Target by_device_memory(const DeviceMemory& memory) {
    if (memory.block == nullptr) throw nb::value_error("this device memory was freed");
    Target target;
    target.data = memory.data();
    target.size = memory.size;
    target.cuda = cuda_index(memory.block->device());
    target.holder = memory.block;
    return target;
}

}  // namespace

Target target_of(nb::handle object, Use use, bool ordered) {
    if (nb::isinstance<DeviceMemory>(object))
        return by_device_memory(*nb::inst_ptr<DeviceMemory>(object));
    if (is_host_buffer(object)) {
        if (auto plain = by_buffer_protocol(object, use)) return std::move(*plain);
        refuse(object, use);
    }
    if (auto shared = by_dlpack(object, use, ordered)) return std::move(*shared);
    if (auto cuda = by_cuda_array_interface(object, use)) return std::move(*cuda);
    if (PyObject_CheckBuffer(object.ptr()) != 0)
        if (auto plain = by_buffer_protocol(object, use)) return std::move(*plain);
    refuse(object, use);
}

}  // namespace penstock::python
