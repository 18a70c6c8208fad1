// penstock._core.calibrate: measuring what reads cost, for Python.
//
// The interpreter is let go while it is measured; it is taken for progress, so that signals are
// seen.
#include "penstock/calibrate.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "core.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

// A path as the file system has it, whatever bytes it is.
nb::object text(const std::string& bytes) {
    return nb::steal(
        PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
}

nb::dict describe(const CalibratedRoute& route) {
    nb::dict out;
    out["measured"] = route.measured;
    out["reason"] = route.reason;
    if (!route.measured) return out;
    out["ns"] = route.ns_once;
    out["ns_per_byte"] = route.ns_per_byte;
    out["r_squared"] = route.r_squared;
    out["error_mean"] = route.error_mean;
    out["spread"] = route.spread;
    nb::list points;
    for (const CalibrationPoint& point : route.points) {
        nb::dict one;
        one["size"] = point.size;
        one["ns"] = point.ns;
        points.append(one);
    }
    out["points"] = points;
    return out;
}

nb::dict describe(const Calibration& calibration) {
    nb::dict out;
    out["memory"] = calibration.memory;
    out["file_system"] = calibration.file_system;
    out["storage"] = calibration.storage;
    out["threads"] = calibration.threads;
    out["depth"] = calibration.depth;
    out["scratch_size"] = calibration.scratch_size;
    out["seconds"] = calibration.seconds;
    nb::dict direct = describe(calibration.direct);
    if (calibration.direct.measured) {
        direct["cutoff_size"] = calibration.direct_cutoff;
        direct["start_ns"] = calibration.direct_start_ns;
        direct["submit_ns"] = calibration.direct_submit_ns;
    }
    out["direct"] = direct;
    out["cached"] = describe(calibration.cached);
    out["buffered"] = describe(calibration.buffered);
    out["waited_share"] = calibration.waited_share;
    out["refusal"] = calibration.refusal;
    out["stored_in"] = text(calibration.stored_in);
    out["complaint"] = text(calibration.complaint);
    return out;
}

nb::object describe(const StoredRoute& route) {
    if (!route.measured) return nb::none();
    nb::dict out;
    out["ns"] = route.ns_once;
    out["ns_per_byte"] = route.ns_per_byte;
    out["error"] = route.error.has_value() ? nb::cast(*route.error) : nb::none();
    return out;
}

nb::dict describe(const StoredCalibration& stored) {
    nb::dict out;
    out["memory"] = stored.memory;
    out["file_system"] = stored.file_system;
    out["storage"] = stored.storage;
    out["measured_at"] = stored.measured_at;
    out["threads"] = stored.threads;
    out["depth"] = stored.depth;
    out["error"] = stored.error;
    out["direct"] = describe(stored.direct);
    out["cached"] = describe(stored.cached);
    out["buffered"] = describe(stored.buffered);
    return out;
}

// The calibrations of all file systems.
nb::dict stored() {
    const StoredCalibrations known = stored_calibrations();
    nb::list all;
    for (const StoredCalibration& one : known.all) all.append(describe(one));
    nb::dict out;
    out["path"] = text(known.path);
    out["entries"] = all;
    out["complaint"] = text(known.complaint);
    return out;
}

nb::dict in_use(const nb::bytes& path, const std::string& device_name) {
    const std::string name(path.c_str(), path.size());
    Result<CalibrationInUse> found = Status{};
    {
        const nb::gil_scoped_release others;
        DeviceOptions reading;
        reading.runs_kernels = false;
        auto device = Device::open(device_name, reading);
        found = device.ok() ? calibration_in_use(name, device.value())
                            : Result<CalibrationInUse>(device.status());
    }
    if (!found.ok()) raise_status(found.status());
    const CalibrationInUse& used = found.value();
    nb::dict out;
    out["memory"] = used.memory;
    out["file_system"] = used.file_system;
    out["stored"] = used.stored.has_value() ? nb::object(describe(*used.stored)) : nb::none();
    out["complaint"] = text(used.complaint);
    return out;
}

uint64_t reset(const nb::bytes& path) {
    const auto removed = reset_calibrations({path.c_str(), path.size()});
    if (!removed.ok()) raise_status(removed.status());
    return removed.value();
}

nb::dict measure(const nb::bytes& path, const std::string& device_name, unsigned threads,
                 bool store, bool force, double seconds, const nb::object& progress) {
    bool raised = false;
    CalibrateOptions options;
    options.threads = threads;
    options.store = store;
    options.force = force;
    options.seconds_max = seconds;
    options.on_progress = [&](const char* what, double share) {
        const nb::gil_scoped_acquire python;
        raised = PyErr_CheckSignals() != 0;
        if (raised || progress.is_none()) return !raised;
        try {
            progress(what, share);
        } catch (nb::python_error& error) {
            error.restore();
            raised = true;
        }
        return !raised;
    };
    const std::string name(path.c_str(), path.size());
    Result<Calibration> result = Status{};
    {
        const nb::gil_scoped_release others;
        DeviceOptions reading;
        reading.runs_kernels = false;
        auto device = Device::open(device_name, reading);
        result = device.ok() ? calibrate(name, device.value(), options)
                             : Result<Calibration>(device.status());
    }
    if (raised) throw nb::python_error();
    if (!result.ok()) raise_status(result.status());
    return describe(result.value());
}

}  // namespace

void bind_calibrate(nb::module_& module) {
    module.def("calibrate", &measure, nb::arg("path"), nb::kw_only(), nb::arg("device") = "",
               nb::arg("threads") = 0, nb::arg("store") = true, nb::arg("force") = false,
               nb::arg("seconds") = 10.0, nb::arg("progress").none() = nb::none(),
               "Measure what reads cost; see penstock/commands/calibrate.py.");
    module.def("stored_calibrations", &stored, "All calibrations that this user has stored.");
    module.def("calibration_in_use", &in_use, nb::arg("path"), nb::kw_only(),
               nb::arg("device") = "", "The calibration that files at a path use.");
    module.def("reset_calibrations", &reset, nb::arg("path"),
               "Remove those of the file system at a path, or all for an empty path; how many.");
}

}  // namespace penstock::python
