// penstock._core: what the Python package asks of libpenstock and of the workloads it runs.
//
// Sees include/penstock and the doors of workloads/ only. Each area of the API has its own file
// with a bind_X(module) that is called here. Translates once: a Status that failed becomes an
// OSError with its errno, of reads a penstock.Error with file, offset and route; where an
// environment variable says nothing, a ValueError.
#include "core.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include "interpreter.h"

namespace penstock::python {

void raise_error(const Status& status, nanobind::handle subject, const Report* report) {
    namespace nb = nanobind;
    leave_at_exit();
    if (const std::string variable = status.origin();
        status.error_number() == EINVAL && variable.starts_with("PENSTOCK_")) {
        const char* const value = std::getenv(variable.c_str());
        throw nb::value_error(
            (variable + ": '" + (value == nullptr ? "" : value) + "' " + status.text()).c_str());
    }
    const bool told = report != nullptr && report->error_number != 0;
    const nb::object offset = told ? nb::cast(report->error_offset) : nb::none();
    const nb::object route = told ? nb::cast(name(report->error_route)) : nb::none();
    const nb::object error = nb::module_::import_("penstock.errors")
                                 .attr("error_of")(status.error_number(), status.text(), subject,
                                                   offset, route);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

void raise_kind(nanobind::handle value, const char* name, const char* kind) {
    const std::string type = nanobind::type_name(value.type()).c_str();
    throw nanobind::type_error((std::string(name) + " is " + kind + ", not " + type).c_str());
}

}  // namespace penstock::python

NB_MODULE(_core, module) {
    module.doc() = "The compiled part of penstock; import penstock instead.";
    nanobind::set_leak_warnings(false);  // what reads under way hold at the end is meant to stay
    penstock::python::bind_calibrate(module);
    penstock::python::bind_device(module);
    penstock::python::bind_device_memory(module);
    penstock::python::bind_endings(module);
    penstock::python::bind_file(module);
    penstock::python::bind_future(module);
    penstock::python::bind_interpreter(module);
    penstock::python::bind_observer(module);
    penstock::python::bind_residency(module);
    penstock::python::bind_scan(module);
    penstock::python::bind_follow(module);
    penstock::python::bind_signature(module);
    penstock::python::bind_tensor(module);
    for (const char* name : {"DeviceMemory", "File", "Future"})
        module.attr(name).attr("__module__") = "penstock";
    penstock::python::check_arguments(module);
}
