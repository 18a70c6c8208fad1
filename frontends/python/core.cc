// penstock._core: what the Python package asks of libpenstock.
//
// Sees include/penstock only. Each area of the API has its own file with a bind_X(module) that is
// called here. Translates once: a Status that failed becomes an OSError with its errno.
#include <nanobind/nanobind.h>

NB_MODULE(_core, module) {
    module.doc() = "The compiled part of penstock; import penstock instead.";
}
