// penstock._core.tensor_view: bytes in some memory as a tensor that speaks DLPack, of any type.
//
// NumPy can name neither bfloat16 nor the 8-bit floats, so views of those cannot be made in Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "core.h"

namespace penstock::python {

void bind_tensor(nanobind::module_& module) {
    module.def(
        "tensor_view",
        [](nanobind::object owner, uintptr_t address, const std::vector<size_t>& shape,
           uint8_t type_code, uint8_t bits, int32_t device_type, int32_t device_index) {
            const nanobind::dlpack::dtype type{type_code, bits, 1};
            return nanobind::ndarray<nanobind::array_api>(
                reinterpret_cast<void*>(address), shape.size(), shape.data(), std::move(owner),
                nullptr, type, device_type, device_index);
        },
        nanobind::arg("owner"), nanobind::arg("address"), nanobind::arg("shape"),
        nanobind::arg("type_code"), nanobind::arg("bits"), nanobind::arg("device_type"),
        nanobind::arg("device_index"),
        "The array of `shape` at `address`, of DLPack's type and device. `owner` keeps the bytes.");
}

}  // namespace penstock::python
