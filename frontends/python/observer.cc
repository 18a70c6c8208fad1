// penstock._core.observe: sets who is told of reads.
#include "observer.h"

#include "core.h"

namespace penstock::python {
namespace {

// A reference that is never given back at the end: the interpreter may be gone by then.
PyObject* observer_ = nullptr;

}  // namespace

nanobind::handle observer() { return observer_; }

void bind_observer(nanobind::module_& module) {
    module.def(
        "observe",
        [](nanobind::object observer) {
            PyObject* const before = observer_;
            observer_ = observer.is_none() ? nullptr : observer.release().ptr();
            Py_XDECREF(before);
        },
        nanobind::arg("observer").none(),
        "Tell `observer` of reads that begin and end, or nobody.");
}

}  // namespace penstock::python
