// What scanning and following have in common on the way from and to Python: a request, and results
// as dictionaries. All functions need the interpreter.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "scan/line_writer.h"
#include "scan/scan.h"

namespace penstock::python {

struct ScanRequest {
    std::string device;
    std::vector<std::string> patterns;
    std::vector<std::string> paths;
    bool lines = false;
    scan::LineForm form = scan::LineForm::kNumber;
    bool explain = false;
    int output = -1;  // -1: nothing is written; results are only returned
};

// Returns the request's device, patterns and paths. `list` holds a pattern a line, or is None.
[[nodiscard]] ScanRequest make_request(const std::string& device, const nanobind::object& list,
                                       const nanobind::list& texts, const nanobind::list& paths);

[[noreturn]] void raise_write_error(int output, int error_number);
[[noreturn]] void raise_scan_error(const Device& device, const Status& status);

[[nodiscard]] nanobind::object path_of(const std::string& path);
[[nodiscard]] nanobind::dict describe(const FileStatistics& pages);
[[nodiscard]] nanobind::dict describe(const scan::ScanReport& report);
[[nodiscard]] nanobind::dict describe(const scan::TextResult& result);
void describe(const Device& device, nanobind::dict* out);

}  // namespace penstock::python
