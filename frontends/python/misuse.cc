// Functions of penstock._core whose callers are told in one line what is wrong with their
// arguments.
//
// nanobind answers arguments that do not fit with all signatures and all types, over several lines.
// A CheckedFunction stands in a function's place: it passes calls on, and asks penstock.errors what
// to say when that error comes. Cost of a call that fits: one call through a pointer.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core.h"

// structmember.h's names, which the header of Python 3.12 has itself.
#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif

namespace penstock::python {
namespace {

namespace nb = nanobind;

constexpr std::string_view kNoOverload = "incompatible function arguments";

struct CheckedFunction {
    PyObject ob_base;
    vectorcallfunc call;
    PyObject* function;  // of nanobind; lives as long as the module
};

PyObject* function_of(PyObject* self) { return reinterpret_cast<CheckedFunction*>(self)->function; }

// Replaces the TypeError that is set by an error of one line, if it is of arguments that do not
// fit.
void explain(PyObject* function, PyObject* const* arguments, Py_ssize_t count,
             PyObject* keywords) noexcept {
    try {
        const nb::python_error error;
        if (std::string_view(error.what()).find(kNoOverload) == std::string_view::npos) {
            nb::python_error(error).restore();
            return;
        }
        nb::list places;
        nb::dict named;
        for (Py_ssize_t i = 0; i < count; ++i) places.append(nb::handle(arguments[i]));
        const Py_ssize_t named_count = keywords == nullptr ? 0 : PyTuple_Size(keywords);
        for (Py_ssize_t i = 0; i < named_count; ++i)
            named[nb::handle(PyTuple_GetItem(keywords, i))] = nb::handle(arguments[count + i]);
        const nb::object told = nb::module_::import_("penstock.errors")
                                    .attr("misuse")(nb::handle(function), places, named);
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(told.ptr())), told.ptr());
    } catch (nb::python_error& failed) {
        failed.restore();
    }
}

PyObject* call(PyObject* self, PyObject* const* arguments, size_t count_and_flag,
               PyObject* keywords) {
    PyObject* const function = function_of(self);
    PyObject* const result = PyObject_Vectorcall(function, arguments, count_and_flag, keywords);
    if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0)
        explain(function, arguments, PyVectorcall_NARGS(count_and_flag), keywords);
    return result;
}

// Documentation, name and signature are the function's own.
PyObject* attribute(PyObject* self, PyObject* name) {
    if (PyUnicode_CompareWithASCIIString(name, "__class__") != 0) {
        PyObject* const value = PyObject_GetAttr(function_of(self), name);
        if (value != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return value;
        PyErr_Clear();
    }
    return PyObject_GenericGetAttr(self, name);
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject* /*type*/) {
    static PyObject* const
        kMethod = nb::module_::import_("types").attr("MethodType").inc_ref().ptr();
    if (instance == nullptr || instance == Py_None) return nb::handle(self).inc_ref().ptr();
    return PyObject_CallFunctionObjArgs(kMethod, self, instance, nullptr);
}

PyObject* describe(PyObject* self) { return PyObject_Repr(function_of(self)); }

PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(CheckedFunction, call), Py_READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot kSlots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                        {Py_tp_getattro, reinterpret_cast<void*>(attribute)},
                        {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                        {Py_tp_repr, reinterpret_cast<void*>(describe)},
                        {Py_tp_members, kMembers},
                        {0, nullptr}};

PyType_Spec kSpec = {"penstock._core.CheckedFunction", sizeof(CheckedFunction), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                     kSlots};

nb::object checked(PyTypeObject* type, nb::handle function) {
    auto* const made = PyObject_New(CheckedFunction, type);
    if (made == nullptr) throw nb::python_error();
    made->call = call;
    made->function = function.inc_ref().ptr();
    return nb::steal(reinterpret_cast<PyObject*>(made));
}

// Special methods keep their slots.
void check_members(PyTypeObject* type, nb::handle owner) {
    std::vector<std::pair<std::string, nb::object>> found;
    for (const nb::handle item : owner.attr("__dict__").attr("copy")().attr("items")()) {
        auto name = nb::cast<std::string>(item[0]);
        const nb::object value = item[1];
        const std::string_view kind = nb::type_name(value.type()).c_str();
        const bool function = kind.ends_with("nb_method") || kind.ends_with("nb_func");
        if (function && !name.starts_with("_")) found.emplace_back(std::move(name), value);
    }
    for (const auto& [name, function] : found)
        nb::setattr(owner, name.c_str(), checked(type, function));
}

}  // namespace

void check_arguments(nb::module_& module) {
    PyObject* const type = PyType_FromSpec(&kSpec);
    if (type == nullptr) throw nb::python_error();
    auto* const checked_type = reinterpret_cast<PyTypeObject*>(type);
    check_members(checked_type, module);
    for (const char* name : {"DeviceMemory", "File", "Future"})
        check_members(checked_type, module.attr(name));
}

}  // namespace penstock::python
