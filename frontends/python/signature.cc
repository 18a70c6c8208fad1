// penstock._core.SignatureReader: traces and access programs for Python, chunk by chunk.
//
// The interpreter is let go while a chunk is read and while a stream is worked on; between two
// calls signals are seen.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "core.h"
#include "penstock/access.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

// Names in traces are bytes.
nb::object path_of(const std::string& bytes) {
    return nb::steal<nb::object>(
        PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
}

nb::list losses(const std::vector<SignatureLoss>& all) {
    nb::list out;
    for (const SignatureLoss& one : all) {
        nb::dict loss;
        loss["cause"] = one.cause;
        loss["count"] = one.count;
        if (one.first_line != 0) loss["first_line"] = one.first_line;
        if (one.bytes != 0) loss["bytes"] = one.bytes;
        out.append(loss);
    }
    return out;
}

nb::dict describe(const SignatureStream& stream) {
    nb::dict out;
    out["file"] = path_of(stream.file);
    out["operation"] = stream.operation;
    out["context"] = stream.context;
    out["first_rank"] = stream.first_rank;
    out["rank_count"] = stream.rank_count;
    out["thread"] = stream.thread;
    out["shared_by"] = stream.shared_by;
    nb::list grid;
    for (const uint64_t extent : stream.grid) grid.append(extent);
    out["grid"] = grid;
    out["accesses"] = stream.accesses;
    out["all"] = stream.all;
    out["bytes"] = stream.bytes;
    out["told_bytes"] = stream.told_bytes;
    out["size_min"] = stream.size_min;
    out["size_max"] = stream.size_max;
    out["first_ns"] = stream.first_ns;
    out["last_ns"] = stream.last_ns;
    out["sequences"] = stream.sequences;
    out["repeat_period"] = stream.repeat_period;
    out["class"] = stream.algorithm;
    out["confidence"] = stream.confidence;
    out["unpredicted"] = losses(stream.unpredicted);
    out["unfolded"] = losses(stream.unfolded);
    out["nodes"] = stream.nodes;
    out["pattern_signature"] = stream.pattern_signature;
    out["trace_signature"] = stream.trace_signature;
    out["why_no_signature"] = stream.why_no_signature;
    out["why_no_program"] = stream.why_no_program;
    return out;
}

nb::dict describe(const SignatureSource& source) {
    nb::dict out;
    out["form"] = source.form;
    out["trace"] = source.trace;
    out["lines"] = source.lines;
    out["accesses"] = source.accesses;
    out["clock_jumps"] = source.clock_jumps;
    out["skipped"] = losses(source.skips);
    out["warnings"] = losses(source.warnings);
    return out;
}

void raise_unless_read(const SignatureReader& reader, const Status& status) {
    if (!status.ok()) raise_os_error(status.error_number(), reader.message());
}

nb::dict plot_of(const SignatureReader& reader, size_t columns, size_t rows, bool over_time,
                 const std::vector<size_t>& streams) {
    auto plot = reader.plot(columns, rows, over_time, streams);
    if (!plot.ok()) raise_os_error(plot.status().error_number(), plot.status().text());
    const SignaturePlot& made = plot.value();
    nb::dict out;
    out["cells"] = nb::bytes(made.cells.data(), made.cells.size());
    out["x_end"] = made.x_end;
    out["offset_begin"] = made.offset_begin;
    out["offset_end"] = made.offset_end;
    return out;
}

}  // namespace

void bind_signature(nb::module_& module) {
    nb::class_<SignatureReader>(module, "SignatureReader",
                                "Access programs of a trace; see penstock/commands/signature.py.")
        .def(nb::init<>())
        .def(
            "read",
            [](SignatureReader& self, const nb::bytes& chunk) {
                Status status;
                {
                    const nb::gil_scoped_release others;
                    status = self.read({chunk.c_str(), chunk.size()});
                }
                raise_unless_read(self, status);
            },
            nb::arg("chunk"))
        .def("finish", [](SignatureReader& self) { raise_unless_read(self, self.finish()); })
        .def("step", &SignatureReader::step, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("steps", &SignatureReader::steps)
        .def_prop_ro("source", [](const SignatureReader& self) { return describe(self.source()); })
        .def_prop_ro("streams",
                     [](const SignatureReader& self) {
                         nb::list out;
                         for (const SignatureStream& one : self.streams())
                             out.append(describe(one));
                         return out;
                     })
        .def(
            "programs",
            [](const SignatureReader& self, bool binary) {
                auto bytes = self.programs(binary);
                if (!bytes.ok())
                    raise_os_error(bytes.status().error_number(), bytes.status().text());
                return nb::bytes(bytes.value().data(), bytes.value().size());
            },
            nb::kw_only(), nb::arg("binary") = false)
        .def("plot", &plot_of, nb::arg("columns"), nb::arg("rows"), nb::kw_only(),
             nb::arg("over_time") = false, nb::arg("streams") = std::vector<size_t>());
}

}  // namespace penstock::python
