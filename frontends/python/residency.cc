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
#include "python_file.h"
#include "target.h"

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

// `look` asks with the options that it is given.
template <class Look>
nb::dict ask(const Look& look, uint64_t offset, uint64_t size, uint64_t runs_max,
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
    Result<ResidencyReport> report = Status{};
    {
        const nb::gil_scoped_release others;
        report = look(options);
    }
    if (raised) throw nb::python_error();
    if (!report.ok()) raise_status(report.status());
    return describe(report.value());
}

nb::dict of_path(const nb::bytes& path, uint64_t offset, uint64_t size, uint64_t runs_max,
                 const nb::object& progress) {
    const std::string name(path.c_str(), path.size());
    return ask([&](const ResidencyOptions& options) { return residency(name, options); }, offset,
               size, runs_max, progress);
}

nb::dict of_file(PythonFile& opened, uint64_t offset, uint64_t size, uint64_t runs_max,
                 const nb::object& progress) {
    const File file = opened.file_for(Target::kHost);
    return ask([&](const ResidencyOptions& options) { return file.residency(options); }, offset,
               size, runs_max, progress);
}

}  // namespace

void bind_residency(nb::module_& module) {
    const auto define = [&](auto* function) {
        module.def("residency", function, nb::arg("file"), nb::kw_only(), nb::arg("offset") = 0,
                   nb::arg("size") = UINT64_MAX, nb::arg("runs_max") = 65536,
                   nb::arg("progress").none() = nb::none(),
                   "What the OS page cache holds of a file, which is opened if a path is given; "
                   "see penstock/commands/residency.py.");
    };
    define(&of_path);
    define(&of_file);
}

}  // namespace penstock::python
