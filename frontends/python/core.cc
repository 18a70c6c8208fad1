// penstock._core: what the Python package asks of libpenstock and of the workloads it runs.
//
// Sees include/penstock and the doors of workloads/ only. Each area of the API has its own file
// with a bind_X(module) that is called here. Translates once: a Status that failed becomes an
// OSError with its errno.
#include "core.h"

NB_MODULE(_core, module) {
    module.doc() = "The compiled part of penstock; import penstock instead.";
    penstock::python::bind_device(module);
    penstock::python::bind_residency(module);
    penstock::python::bind_scan(module);
    penstock::python::bind_signature(module);
}
