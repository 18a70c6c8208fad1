// penstock._core.pick_device: which device a name stands for here.
#include "penstock/device.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "core.h"

namespace penstock::python {

void bind_device(nanobind::module_& module) {
    module.def(
        "pick_device",
        [](const std::string& name, bool runs_kernels) {
            DeviceOptions options;
            options.runs_kernels = runs_kernels;
            auto device = Device::open(name, options);
            if (!device.ok()) raise_status(device.status());
            return std::pair(device.value().name(), device.value().why_not_gpu());
        },
        nanobind::arg("name") = "", nanobind::arg("runs_kernels") = true,
        "The device that `name` stands for, to kernels or to host reads, and why `auto` took no "
        "GPU (empty: it did).");
}

}  // namespace penstock::python
