// penstock._core.scan: the log scanner for Python. Lines and counts go straight to a file
// descriptor.
//
// The interpreter is let go while the scan runs; it is taken for progress, about ten times a
// second, so that signals are seen.
#include "scan/scan.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core.h"
#include "observer.h"
#include "scan/access_log.h"
#include "scan/patterns.h"
#include "scan_results.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

// Writes what is found and keeps what is to be returned.
class Listener final : public scan::ScanListener {
public:
    Listener(const ScanRequest& request, nb::object progress)
        : request_(request),
          writer_(request.output, request.form),
          progress_(std::move(progress)) {}

    void on_text(const scan::TextResult& result) override {
        results.push_back(result);
        if (request_.output < 0 || request_.lines || !result.status.ok()) return;
        open_ = writer_.write_count(result) && open_;
    }
    bool on_line(const scan::LineMatch& match) override {
        if (request_.output >= 0) open_ = writer_.write_line(match) && open_;
        return open_;
    }
    bool on_progress(const scan::ScanProgress& progress) override {
        const nb::gil_scoped_acquire python;
        if (PyErr_CheckSignals() != 0) {
            interrupted_ = true;
            return false;
        }
        if (!progress_.is_none()) {
            try {
                progress_(progress.done_size, progress.known_size, progress.text_count,
                          progress.seconds);
            } catch (nb::python_error& error) {  // raised again by finish()
                error.restore();
                interrupted_ = true;
                return false;
            }
        }
        return open_;
    }

    // After the scan, with the interpreter: raises what happened meanwhile.
    void finish() {
        if (interrupted_) throw nb::python_error();
        if (request_.output >= 0) open_ = writer_.flush() && open_;
        if (!open_) raise_write_error(request_.output, writer_.error_number());
    }

    std::vector<scan::TextResult> results;

private:
    const ScanRequest& request_;
    scan::LineWriter writer_;
    nb::object progress_;
    bool open_ = true, interrupted_ = false;
};

// For tracing.py.
nb::dict describe_log(const ServiceLog& log) {
    nb::list events, samples, file_samples;
    for (const ServiceEvent& event : log.events) {
        nb::dict out;
        out["kind"] = name(event.kind);
        out["file"] = path_of(log.files.at(event.file));
        out["page"] = event.page;
        out["pages"] = event.page_count;
        out["block"] = event.block;
        out["thread"] = event.thread;
        out["taken_ns"] = event.taken_ns;
        out["arrived_ns"] = event.arrived_ns;
        out["error_number"] = event.error_number;
        events.append(out);
    }
    for (const ServiceSample& sample : log.samples) {
        nb::dict out = describe(sample.pages);
        out["at_ns"] = sample.at_ns;
        samples.append(out);
    }
    for (const ServiceFileSample& sample : log.file_samples) {
        nb::dict out = describe(sample.pages);
        out["file"] = path_of(log.files.at(sample.file));
        out["at_ns"] = sample.at_ns;
        file_samples.append(out);
    }
    nb::dict out;
    out["events"] = events;
    out["samples"] = samples;
    out["file_samples"] = file_samples;
    out["lost"] = log.lost;
    return out;
}

// Events of a scan that a trace has room for: 16 MiB.
constexpr uint32_t kLogEvents = 1 << 18;

nb::dict run_scan(const ScanRequest& request, nb::object progress) {
    auto device = Device::open(request.device);
    if (!device.ok()) raise_status(device.status());
    scan::ScanOptions options;
    options.lines = request.lines;
    options.output = request.output;
    options.explain = request.explain;
    const nb::object told = nb::borrow(observer());
    const bool logs = told.is_valid() && nb::cast<bool>(told.attr("wants_served"));
    if (logs) options.file_system.log_events = kLogEvents;
    // Who asks how pages came wants them to go through the page cache.
    options.map_cached = !logs && !request.explain;
    auto scanner = scan::Scanner::create(device.value(), request.patterns, options);
    if (!scanner.ok()) raise_status(scanner.status());
    Listener listener(request, std::move(progress));
    Status status;
    {
        const nb::gil_scoped_release others;
        status = scanner.value().scan(request.paths, listener);
    }
    if (logs) told.attr("served")(describe_log(scanner.value().take_log()));
    listener.finish();
    if (!status.ok()) raise_scan_error(device.value(), status);
    nb::dict out = describe(scanner.value().report());
    describe(device.value(), &out);
    nb::list texts;
    for (const scan::TextResult& result : listener.results) {
        nb::dict text = describe(result);
        if (request.explain) text["page_cache"] = describe(result.pages);
        texts.append(text);
    }
    out["files"] = texts;
    return out;
}

}  // namespace

void bind_scan(nb::module_& module) {
    module.def(
        "scan",
        [](const std::string& device, nb::object list, nb::list texts, nb::list paths, bool lines,
           bool with_path, int output, nb::object progress, bool explain) {
            ScanRequest request = make_request(device, list, texts, paths);
            request.lines = lines;
            if (with_path) request.form = scan::LineForm::kPath;
            request.output = output;
            request.explain = explain;
            return run_scan(request, std::move(progress));
        },
        nb::arg("device"), nb::arg("pattern_list").none(), nb::arg("pattern_texts"),
        nb::arg("paths"), nb::kw_only(), nb::arg("lines") = false, nb::arg("with_path") = false,
        nb::arg("output") = -1, nb::arg("progress").none() = nb::none(), nb::arg("explain") = false,
        "Scan files for fixed strings; see penstock/commands/scan.py.");
    module.def(
        "write_access_log",
        [](const std::string& path, uint64_t size, unsigned suspicious_count, double hit_share,
           uint64_t seed) {
            scan::AccessLogOptions options;
            options.seed = seed;
            options.suspicious_count = suspicious_count;
            options.hit_share = hit_share;
            const int error = scan::write_access_log(options, size, path);
            if (error != 0) raise_os_error(error, path);
            return scan::pattern_list(scan::suspicious_addresses(options));
        },
        nb::arg("path"), nb::arg("size"), nb::kw_only(), nb::arg("suspicious_count") = 100,
        nb::arg("hit_share") = 0.01, nb::arg("seed") = 1,
        "Write a web server log of at least `size` bytes; the addresses to look for in it, one a "
        "line.");
}

}  // namespace penstock::python
