// penstock._core.residency: what the OS page cache holds of a file, for Python.
//
// The interpreter is let go while the kernel is asked; it is taken for progress, so that signals
// are seen.
#include "penstock/residency.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "core.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

nb::dict describe(const ResidencyReport& report) {
    nb::dict out;
    out["size"] = report.size;
    out["page_size"] = report.page_size;
    out["grain"] = report.grain;
    out["method"] = report.method;
    out["reason"] = report.reason;
    out["resident"] = report.resident_size;
    nb::dict bytes;
    for (size_t i = 0; i < kResidencyCount; ++i) {
        bytes[name(static_cast<Residency>(i))] = report.bytes[i];
    }
    out["bytes"] = bytes;
    nb::list runs;
    for (const ResidencyRange& range : report.ranges) {
        nb::dict run;
        run["offset"] = range.offset;
        run["size"] = range.size;
        run["state"] = name(range.state);
        run["resident"] = range.resident_size;
        runs.append(run);
    }
    out["runs"] = runs;
    return out;
}

nb::dict ask(const nb::bytes& path, uint64_t offset, uint64_t size, uint64_t runs_max,
             const nb::object& progress) {
    bool raised = false;
    ResidencyOptions options;
    options.offset = offset;
    options.size = size;
    options.ranges_max = runs_max;
    options.on_progress = [&](uint64_t done, uint64_t all) {
        const nb::gil_scoped_acquire python;
        raised = PyErr_CheckSignals() != 0;
        if (raised || progress.is_none()) return !raised;
        try {
            progress(done, all);
        } catch (nb::python_error& error) {
            error.restore();
            raised = true;
        }
        return !raised;
    };
    const std::string name(path.c_str(), path.size());
    Result<ResidencyReport> report = Status{};
    {
        const nb::gil_scoped_release others;
        report = residency(name, options);
    }
    if (raised) throw nb::python_error();
    if (!report.ok()) raise_status(report.status());
    return describe(report.value());
}

}  // namespace

void bind_residency(nb::module_& module) {
    module.def("residency", &ask, nb::arg("path"), nb::kw_only(), nb::arg("offset") = 0,
               nb::arg("size") = UINT64_MAX, nb::arg("runs_max") = 65536,
               nb::arg("progress").none() = nb::none(),
               "What the OS page cache holds of a file; see penstock/commands/residency.py.");
}

}  // namespace penstock::python
