// penstock.DeviceMemory: memory of a device for users who have no array library for it. It can be
// read into, sliced, given to others by DLPack, and, where the host can address it, by the buffer
// protocol.
#include "device_memory.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core.h"
#include "interpreter.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

struct Devices {
    unsigned process = 0;
    std::map<std::string, Device> by_name;
};

// Never destroyed: threads of the devices may outlive the interpreter.
Devices& devices() {
    static auto* devices = new Devices;
    // Those of the parent have no threads here, and cannot be destroyed.
    if (devices->process != process_number()) devices = new Devices{process_number(), {}};
    return *devices;
}

DeviceMemory& held(DeviceMemory& memory) {
    if (memory.block == nullptr) throw nb::value_error("this device memory was freed");
    return memory;
}

DeviceMemory allocate(size_t size, const nb::object& name) {
    const Device device = open_device(
        name.is_none() ? "" : argument<std::string>(name, "device", "a str"));
    if (size == 0) return {std::make_shared<Block>(device, nullptr, 0), 0, 0};
    Result<void*> data = [&] {
        const Unlocked others;
        return device.allocate(size);
    }();
    if (!data.ok()) raise_error(data.status(), nb::none());
    return {std::make_shared<Block>(device, data.value(), size), 0, size};
}

// An owner of the block for views that outlive the DeviceMemory they were taken from.
nb::capsule owner_of(const DeviceMemory& memory) {
    return {new std::shared_ptr<Block>(memory.block),
            [](void* owner) noexcept { delete static_cast<std::shared_ptr<Block>*>(owner); }};
}

std::pair<int, int> dlpack_device(const DeviceMemory& memory) {
    const int index = cuda_index(memory.block->device());
    return index < 0 ? std::pair(nb::device::cpu::value, 0)
                     : std::pair(nb::device::cuda::value, index);
}

nb::object dlpack(DeviceMemory& memory, const nb::kwargs& arguments) {
    const auto [type, index] = dlpack_device(held(memory));
    const nb::ndarray<uint8_t, nb::array_api> array(memory.data(), {memory.size}, owner_of(memory),
                                                    {}, nb::dtype<uint8_t>(), type, index);
    return nb::cast(array).attr("__dlpack__")(**arguments);
}

nb::dict cuda_array_interface(DeviceMemory& memory) {
    if (cuda_index(held(memory).block->device()) < 0)
        throw nb::attribute_error("__cuda_array_interface__: not CUDA memory");
    nb::dict out;
    out["shape"] = nb::make_tuple(memory.size);
    out["typestr"] = "|u1";
    out["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(memory.data()), false);
    out["version"] = 3;
    return out;
}

DeviceMemory slice(DeviceMemory& memory, nb::handle part) {
    if (!nb::isinstance<nb::slice>(part)) raise_kind(part, "a part of device memory", "a slice");
    const auto range = nb::borrow<nb::slice>(part);
    const auto [start, stop, step, length] = range.compute(held(memory).size);
    if (step != 1) throw nb::value_error("device memory is cut into contiguous pieces only");
    return {memory.block, memory.offset + static_cast<size_t>(start), length};
}

// By the host where it can: in the child of a fork the threads behind streams are missing.
nb::bytes to_bytes(DeviceMemory& memory) {
    const Device& device = held(memory).block->device();
    const bool host = device.host_addressable();
    if (!host && memory.block->is_of_parent())
        raise_error(Status(ECHILD, "penstock", "memory of a device of before a fork"), nb::none());
    auto* const bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(memory.size));
    if (bytes == nullptr) throw nb::python_error();
    auto out = nb::steal<nb::bytes>(bytes);
    const std::shared_ptr<Block> block = memory.block;
    const std::byte* const from = memory.data();
    const size_t size = memory.size;
    Status status;
    if (size > 0 && host) {
        const Unlocked others;
        std::memcpy(PyBytes_AsString(bytes), from, size);
    } else if (size > 0) {
        const Unlocked others;
        auto stream = Stream::create(device);
        status = stream.status();
        if (status.ok()) status = stream.value().copy(PyBytes_AsString(bytes), from, size);
        if (status.ok()) status = stream.value().synchronize();
    }
    if (!status.ok()) raise_error(status, nb::none());
    return out;
}

std::string describe(const DeviceMemory& memory) {
    if (memory.block == nullptr) return "<penstock.DeviceMemory, freed>";
    return "<penstock.DeviceMemory, " + std::to_string(memory.size) + " bytes of " +
           memory.block->device().name() + ">";
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    view->obj = nullptr;
    const DeviceMemory& memory = *nb::inst_ptr<DeviceMemory>(self);
    const char* reason = nullptr;
    if (memory.block == nullptr)
        reason = "this device memory was freed";
    else if (memory.size > 0 && !memory.block->device().host_addressable())
        reason = "the host cannot address this device memory: tobytes() copies it";
    if (reason != nullptr) {
        PyErr_SetString(PyExc_BufferError, reason);
        return -1;
    }
    void* const data = memory.data();
    const auto size = static_cast<Py_ssize_t>(memory.size);
    if (PyBuffer_FillInfo(view, self, data, size, /*readonly=*/0, flags) != 0) return -1;
    view->internal = new std::shared_ptr<Block>(memory.block);  // a view outlives free()
    return 0;
}

void release_buffer(PyObject* /*self*/, Py_buffer* view) {
    delete static_cast<std::shared_ptr<Block>*>(view->internal);
}

PyType_Slot kSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                        {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                        {0, nullptr}};

}  // namespace

const Device& open_device(const std::string& name) {
    auto& opened = devices().by_name;
    std::string key = name;
    if (key.empty()) {
        const char* const said = std::getenv("PENSTOCK_DEVICE");
        key = said == nullptr || *said == '\0' ? "auto" : said;
    }
    if (const auto found = opened.find(key); found != opened.end()) return found->second;
    Result<Device> device = [&] {
        const Unlocked others;
        DeviceOptions options;
        options.runs_kernels = false;
        return Device::open(key, options);
    }();
    if (!device.ok()) raise_error(device.status(), nb::cast(key));
    // "auto" is often the same as another, and each would take an arena or a context.
    for (const auto& entry : opened) {
        if (entry.second.name() == device.value().name())
            return opened.emplace(key, Device(entry.second)).first->second;
    }
    return opened.emplace(key, device.value()).first->second;
}

int cuda_index(const Device& device) {
    constexpr std::string_view kPrefix = "cuda:";
    if (device.port() == nullptr) return -1;
    const std::string name = device.name();
    int index = -1;
    if (name.starts_with(kPrefix))
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), index);
    return index;
}

Block::Block(Device device, void* data, size_t size)
    : device_(std::move(device)), data_(data), size_(size), process_(process_number()) {}

Block::~Block() {
    if (is_of_parent())
        new Device(std::move(device_));  // it cannot be destroyed here
    else
        device_.free(data_);
}

bool Block::is_of_parent() const { return process_ != process_number(); }

void bind_device_memory(nb::module_& module) {
    nb::class_<DeviceMemory>(module, "DeviceMemory", nb::type_slots(kSlots),
                             "Bytes of device memory, zeroed; penstock.empty() makes it.\n\n"
                             "Slices share the memory. It is given back when neither it, nor a "
                             "view, nor a read under way needs it.")
        .def("__len__", [](DeviceMemory& memory) { return held(memory).size; })
        .def("__getitem__", slice, nb::arg("part"))
        .def("__repr__", describe)
        .def("__dlpack__", dlpack)
        .def("__dlpack_device__", [](DeviceMemory& memory) { return dlpack_device(held(memory)); })
        .def_prop_ro("__cuda_array_interface__", cuda_array_interface)
        .def_prop_ro("nbytes", [](DeviceMemory& memory) { return held(memory).size; })
        .def_prop_ro(
            "address",
            [](DeviceMemory& memory) { return reinterpret_cast<uintptr_t>(held(memory).data()); })
        .def_prop_ro("device",
                     [](DeviceMemory& memory) { return held(memory).block->device().name(); })
        .def("tobytes", to_bytes, "Copy it to the host.")
        .def(
            "free", [](DeviceMemory& memory) { memory.block.reset(); },
            "Let go of it now; views and reads under way keep what they need.")
        .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
        .def("__exit__", [](DeviceMemory& memory, const nb::args&) { memory.block.reset(); });
    module.def("empty", allocate, nb::arg("size"), nb::arg("device").none() = nb::none(),
               "Allocate device memory.\n\n"
               "Parameters\n----------\nsize : int\n    Bytes.\ndevice : str, optional\n"
               "    auto (a CUDA device where there is one, else cpu), cpu, cpu:N or cuda:N; what\n"
               "    PENSTOCK_DEVICE says, else auto.");
}

}  // namespace penstock::python
