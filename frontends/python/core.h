// What the files of penstock._core share: the areas that are bound, and how errors leave.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "penstock/status.h"

namespace penstock::python {

// Throws OSError(errno, text).
[[noreturn]] inline void raise_os_error(int error_number, const std::string& text) {
    nanobind::object arguments = nanobind::make_tuple(error_number, text.c_str());
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
    throw nanobind::python_error();
}

[[noreturn]] inline void raise_status(const Status& status) {
    raise_os_error(status.error_number(), status.message());
}

void bind_device(nanobind::module_& module);
void bind_residency(nanobind::module_& module);
void bind_scan(nanobind::module_& module);
void bind_signature(nanobind::module_& module);

}  // namespace penstock::python
