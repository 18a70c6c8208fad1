// See scan_results.h.
#include "scan_results.h"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <cstring>

#include "core.h"
#include "scan/patterns.h"

namespace penstock::python {

namespace nb = nanobind;

namespace {

std::vector<std::string> strings_of(const nb::list& items) {
    std::vector<std::string> out;
    for (const nb::handle item : items) {
        const auto bytes = nb::cast<nb::bytes>(item);
        out.emplace_back(bytes.c_str(), bytes.size());
    }
    return out;
}

nb::dict describe(const ReadaheadMemory& memory) {
    nb::dict out;
    out["windows_bytes_max"] = memory.windows_size_max;
    out["windows_bytes"] = memory.windows_size;
    out["tables_bytes"] = memory.tables_size;
    return out;
}

}  // namespace

ScanRequest make_request(const std::string& device, const nb::object& list, const nb::list& texts,
                         const nb::list& paths) {
    ScanRequest request;
    request.device = device;
    if (!list.is_none()) {
        const auto bytes = nb::cast<nb::bytes>(list);
        scan::append_pattern_list({bytes.c_str(), bytes.size()}, &request.patterns);
    }
    for (const std::string& text : strings_of(texts))
        scan::append_pattern_text(text, &request.patterns);
    request.paths = strings_of(paths);
    return request;
}

void raise_write_error(int output, int error_number) {
    const std::string file = output == STDOUT_FILENO ? "standard output"
                                                     : "descriptor " + std::to_string(output);
    const nb::object arguments = nb::make_tuple(error_number, std::strerror(error_number),
                                                file.c_str());
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
    throw nb::python_error();
}

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

void raise_scan_error(const Device& device, const Status& status) {
    const std::string why = device.diagnosis();
    const bool says_it = status.message().find(why) != std::string::npos;
    raise_os_error(status.error_number(), status.message() + (says_it ? "" : " (" + why + ")"));
}

void describe(const Device& device, nb::dict* out) {
    (*out)["device"] = device.name();
    if (!device.why_not_gpu().empty()) (*out)["why_not_gpu"] = device.why_not_gpu().c_str();
}

nb::dict describe(const scan::TextResult& result) {
    nb::dict text;
    text["path"] = path_of(result.path);
    text["bytes"] = result.size;
    text["matches"] = result.match_count;
    if (!result.status.ok()) {
        text["error"] = std::strerror(result.status.error_number());
        text["reason"] = result.status.text();
    }
    return text;
}

}  // namespace penstock::python
