// penstock._core.follow: the log scanner follows files until it is interrupted. Lines go straight
// to a file descriptor, at the end of each look at the files.
//
// The interpreter is let go while the files are followed; it is taken after each look and ten times
// a second in a long one, so that signals are seen.
#include "scan/follow.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cerrno>

#include "core.h"
#include "scan_results.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

// Writes lines, and hands notices to Python.
class Listener final : public scan::FollowListener {
public:
    Listener(const ScanRequest& request, nb::object notice)
        : request_(request), writer_(request.output, request.form), notice_(std::move(notice)) {}

    bool on_line(const scan::LineMatch& match) override {
        open_ = writer_.write_line(match) && open_;
        return open_;
    }
    bool on_progress(const scan::ScanProgress&) override { return on_idle(); }
    bool on_idle() override {
        open_ = writer_.flush() && open_;
        const nb::gil_scoped_acquire python;
        return open_ && PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0;
    }
    void on_notice(scan::Notice kind, const std::string& path, const std::string& text) override {
        open_ = writer_.flush() && open_;
        const nb::gil_scoped_acquire python;
        if (PyErr_Occurred() != nullptr) return;
        try {
            notice_(path_of(path), text, kind == scan::Notice::kTrouble);
        } catch (nb::python_error& error) {  // on_idle() sees it
            error.restore();
        }
    }

    // After the last look, with the interpreter: writes the counts, if they are wanted, and raises
    // what happened meanwhile. Returns whether the user interrupted.
    bool finish(const scan::Follower& follower) {
        const bool interrupted = PyErr_Occurred() != nullptr;
        if (interrupted && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0)
            throw nb::python_error();
        PyErr_Clear();
        if (follower.output_closed()) raise_write_error(request_.output, EPIPE);
        // The counts of a scan that was stopped are not those of whole files.
        const bool counts = !request_.lines && request_.form != scan::LineForm::kJson;
        if (counts && !follower.report().stopped)
            for (const scan::TextResult& result : follower.results())
                if (open_) open_ = writer_.write_count(result);
        open_ = writer_.flush() && open_;
        if (!open_) raise_write_error(request_.output, writer_.error_number());
        return interrupted;
    }

private:
    const ScanRequest& request_;
    scan::LineWriter writer_;
    nb::object notice_;
    bool open_ = true;
};

nb::dict run_follow(const ScanRequest& request, nb::object notice) {
    auto device = Device::open(request.device);
    if (!device.ok()) raise_status(device.status());
    scan::ScanOptions options;
    options.lines = request.lines;
    options.map_cached = true;
    auto scanner = scan::Scanner::create(device.value(), request.patterns, options);
    if (!scanner.ok()) raise_status(scanner.status());
    Listener listener(request, std::move(notice));
    scan::Follower follower(&scanner.value(), &listener, request.paths, request.output);
    Status status;
    {
        const nb::gil_scoped_release others;
        status = follower.run();
    }
    const bool interrupted = listener.finish(follower);
    if (!status.ok()) raise_scan_error(device.value(), status);
    const scan::ScanReport& report = follower.report();
    nb::dict out;
    out["interrupted"] = interrupted;
    out["texts"] = report.text_count;
    out["failed"] = report.failed_count;
    out["bytes"] = report.size;
    out["matches"] = report.match_count;
    out["seconds"] = report.seconds;
    describe(device.value(), &out);
    nb::list files;
    for (const scan::TextResult& result : follower.results()) files.append(describe(result));
    out["files"] = files;
    return out;
}

}  // namespace

void bind_follow(nb::module_& module) {
    module.def(
        "follow",
        [](const std::string& device, nb::object list, nb::list texts, nb::list paths, bool lines,
           const std::string& form, int output, nb::object notice) {
            ScanRequest request = make_request(device, list, texts, paths);
            request.lines = lines;
            if (form == "path") request.form = scan::LineForm::kPath;
            if (form == "json") request.form = scan::LineForm::kJson;
            request.output = output;
            return run_follow(request, std::move(notice));
        },
        nb::arg("device"), nb::arg("pattern_list").none(), nb::arg("pattern_texts"),
        nb::arg("paths"), nb::kw_only(), nb::arg("lines"), nb::arg("form"), nb::arg("output"),
        nb::arg("notice"), "Scan files as they grow; see penstock/commands/scan.py.");
}

}  // namespace penstock::python
