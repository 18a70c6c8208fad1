// penstock._core.scan: the log scanner for Python. Lines and counts go straight to a file
// descriptor.
//
// The interpreter is let go while the scan runs; it is taken for progress, about ten times a
// second, so that signals are seen.
#include "scan/scan.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <cstring>

#include "core.h"
#include "observer.h"
#include "scan/access_log.h"
#include "scan/line_writer.h"
#include "scan/patterns.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

struct ScanRequest {
    std::string device;
    std::vector<std::string> patterns;
    std::vector<std::string> paths;
    bool lines = false;
    bool with_path = false;
    bool explain = false;
    int output = -1;  // -1: nothing is written; results are only returned
};

// Writes what is found and keeps what is to be returned.
class Listener final : public scan::ScanListener {
public:
    Listener(const ScanRequest& request, nb::object progress)
        : request_(request),
          writer_(request.output, request.with_path),
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
        if (!open_) raise_write_error();
    }

    std::vector<scan::TextResult> results;

private:
    [[noreturn]] void raise_write_error() const {
        const int error_number = writer_.error_number();
        const std::string file = request_.output == STDOUT_FILENO
                                     ? "standard output"
                                     : "descriptor " + std::to_string(request_.output);
        const nb::object arguments = nb::make_tuple(error_number, std::strerror(error_number),
                                                    file.c_str());
        PyErr_SetObject(PyExc_OSError, arguments.ptr());
        throw nb::python_error();
    }

    const ScanRequest& request_;
    scan::LineWriter writer_;
    nb::object progress_;
    bool open_ = true, interrupted_ = false;
};

// Events of a scan that a trace has room for: 16 MiB.
constexpr uint32_t kLogEvents = 1 << 18;

nb::object path_of(const std::string& path) {
    return nb::steal<nb::object>(
        PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

nb::dict describe(const FileStatistics& pages) {
    nb::dict out;
    out["pages"] = pages.pages;
    out["hits"] = pages.hits;
    out["misses"] = pages.misses;
    out["window_hits"] = pages.window_hits;
    out["window_late"] = pages.window_late;
    out["prefetched"] = pages.prefetched;
    out["wasted"] = pages.wasted;
    out["advised"] = pages.advised;
    out["learned"] = pages.learned;
    out["stalled_seconds"] = static_cast<double>(pages.stalled_ns) * 1e-9;
    return out;
}

nb::dict describe(const ReadaheadMemory& memory) {
    nb::dict out;
    out["windows_bytes_max"] = memory.windows_size_max;
    out["windows_bytes"] = memory.windows_size;
    out["tables_bytes"] = memory.tables_size;
    return out;
}

// For tracing.py.
nb::dict describe(const ServiceLog& log) {
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

nb::dict describe(const scan::ScanReport& report) {
    nb::dict out;
    out["texts"] = report.text_count;
    out["failed"] = report.failed_count;
    out["bytes"] = report.size;
    out["matches"] = report.match_count;
    out["stopped"] = report.stopped;
    out["seconds"] = report.seconds;
    out["setup_seconds"] = report.setup_seconds;
    out["block_read_seconds"] = report.block_read_seconds;
    out["block_search_seconds"] = report.block_search_seconds;
    out["blocks"] = report.blocks;
    out["threads"] = report.threads;
    out["stride_bytes"] = report.stride_size;
    out["requests"] = report.files.requests;
    out["reads"] = report.files.reads;
    out["bytes_read"] = report.files.bytes_read;
    out["storage_seconds"] = static_cast<double>(report.files.storage_time_ns) * 1e-9;
    out["page_cache"] = describe(report.files.pages);
    out["cache_bytes"] = report.files.cache_size;
    out["readahead"] = describe(report.files.readahead);
    return out;
}

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
    if (logs) told.attr("served")(describe(scanner.value().take_log()));
    listener.finish();
    if (!status.ok()) {
        const std::string why = device.value().diagnosis();
        const bool says_it = status.message().find(why) != std::string::npos;
        raise_os_error(status.error_number(), status.message() + (says_it ? "" : " (" + why + ")"));
    }
    nb::dict out = describe(scanner.value().report());
    out["device"] = device.value().name();
    if (!device.value().why_not_gpu().empty()) {
        out["why_not_gpu"] = device.value().why_not_gpu().c_str();
    }
    nb::list texts;
    for (const scan::TextResult& result : listener.results) {
        nb::dict text;
        text["path"] = path_of(result.path);
        text["bytes"] = result.size;
        text["matches"] = result.match_count;
        if (request.explain) text["page_cache"] = describe(result.pages);
        if (!result.status.ok()) {
            text["error"] = std::strerror(result.status.error_number());
            text["reason"] = result.status.text();
        }
        texts.append(text);
    }
    out["files"] = texts;
    return out;
}

std::vector<std::string> strings_of(const nb::list& items) {
    std::vector<std::string> out;
    for (const nb::handle item : items) {
        const auto bytes = nb::cast<nb::bytes>(item);
        out.emplace_back(bytes.c_str(), bytes.size());
    }
    return out;
}

}  // namespace

void bind_scan(nb::module_& module) {
    module.def(
        "scan",
        [](const std::string& device, nb::object list, nb::list texts, nb::list paths, bool lines,
           bool with_path, int output, nb::object progress, bool explain) {
            ScanRequest request;
            request.device = device;
            if (!list.is_none()) {
                const auto bytes = nb::cast<nb::bytes>(list);
                scan::append_pattern_list({bytes.c_str(), bytes.size()}, &request.patterns);
            }
            for (const std::string& text : strings_of(texts))
                scan::append_pattern_text(text, &request.patterns);
            request.paths = strings_of(paths);
            request.lines = lines;
            request.with_path = with_path;
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
