// What the files of penstock._core share: the areas that are bound, and how errors leave.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "penstock/report.h"
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

// Throws the penstock.Error for `status`; a ValueError where an environment variable says nothing.
//   subject  what `filename` is to be: str, int or None
//   report   null, or tells the offset and the route
[[noreturn]] void raise_error(const Status& status, nanobind::handle subject,
                              const Report* report = nullptr);

// Throws TypeError: `name` is `kind`, and not what `value` is.
[[noreturn]] void raise_kind(nanobind::handle value, const char* name, const char* kind);

// The argument `name`, which must be a T: `kind` says so in words. Throws TypeError.
template <class T>
T argument(nanobind::handle value, const char* name, const char* kind) {
    T out{};
    if (!nanobind::try_cast(value, out)) raise_kind(value, name, kind);
    return out;
}

// Behind all others: lets arguments that do not fit be told in one line (misuse.cc).
void check_arguments(nanobind::module_& module);

void bind_calibrate(nanobind::module_& module);
void bind_device(nanobind::module_& module);
void bind_device_memory(nanobind::module_& module);
void bind_endings(nanobind::module_& module);
void bind_file(nanobind::module_& module);
void bind_future(nanobind::module_& module);
void bind_interpreter(nanobind::module_& module);
void bind_observer(nanobind::module_& module);
void bind_residency(nanobind::module_& module);
void bind_scan(nanobind::module_& module);
void bind_follow(nanobind::module_& module);
void bind_signature(nanobind::module_& module);
void bind_tensor(nanobind::module_& module);

}  // namespace penstock::python
