// penstock.Future: duck type of concurrent.futures.Future, awaitable, with a report.
//
// What waits, is told or is kept here goes through interpreter.h; what is slow and rare (awaiting,
// errors, reports) is Python: penstock/futures.py, errors.py, report.py.
#include "future.h"

#include <nanobind/stl/string.h>

#include <cmath>
#include <optional>

#include "core.h"
#include "observer.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;
using std::chrono::nanoseconds;

constexpr nanoseconds kForever = std::chrono::hours(24 * 365);

// Keeps the memory of a read that nobody holds any more.
class LastHolder final : public Completion {
public:
    explicit LastHolder(std::unique_ptr<Read> read) : read_(std::move(read)) {}
    void complete() noexcept override {}

private:
    std::unique_ptr<Read> read_;
};

class Callback final : public Completion {
public:
    Callback(nb::object future, nb::object callback)
        : future_(std::move(future)), callback_(std::move(callback)) {}
    void complete() noexcept override {
        PyObject* const out = PyObject_CallFunctionObjArgs(callback_.ptr(), future_.ptr(), nullptr);
        if (out == nullptr) PyErr_WriteUnraisable(callback_.ptr());
        Py_XDECREF(out);
    }

private:
    nb::object future_, callback_;
};

[[noreturn]] void raise_from_futures(const char* name, nb::handle subject) {
    leave_at_exit();
    const nb::object error = nb::module_::import_("penstock.futures").attr(name)(subject);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

uint64_t result(PythonFuture& self, nb::handle timeout) {
    self.wait(limit_of(timeout));
    const Result<uint64_t> size = self.future().result(nanoseconds(0));
    if (size.ok()) return size.value();
    if (size.status().error_number() == ECANCELED)
        raise_from_futures("cancelled_error", self.source().name);
    raise_error(size.status(), self.source().name, &self.future().report());
}

nb::object exception(PythonFuture& self, nb::handle timeout) {
    self.wait(limit_of(timeout));
    if (self.cancelled()) raise_from_futures("cancelled_error", self.source().name);
    try {
        result(self, nb::float_(0.0));
    } catch (const nb::python_error& error) {
        return nb::borrow(error.value());
    }
    return nb::none();
}

void add_done_callback(nb::handle self, nb::object callback) {
    auto& future = *nb::inst_ptr<PythonFuture>(self);
    auto one = std::make_unique<Callback>(nb::borrow(self), std::move(callback));
    if (future.done())
        one->complete();
    else
        when_done(future.future(), std::move(one));
}

nb::object report(PythonFuture& self) {
    if (!self.done()) raise_from_futures("not_done_error", self.source().name);
    return python_report(self.future().report());
}

template <class Name, size_t N>
nb::dict by_name(const std::array<uint64_t, N>& bytes) {
    nb::dict out;
    for (size_t i = 0; i < N; ++i)
        if (bytes[i] != 0) out[name(static_cast<Name>(i))] = bytes[i];
    return out;
}

std::string describe(PythonFuture& self) {
    const char* state = "under way";
    if (self.cancelled())
        state = "cancelled";
    else if (self.done())
        state = self.future().report().error_number == 0 ? "done" : "failed";
    return "<penstock.Future of " + std::string(nb::repr(self.source().name).c_str()) + ", " +
           state + ">";
}

}  // namespace

PythonFuture::PythonFuture(Future future, std::vector<Target> targets,
                           std::shared_ptr<const Source> source)
    : read_(std::make_unique<Read>(std::move(future), std::move(targets), std::move(source))) {
    done();
}

PythonFuture::~PythonFuture() {
    if (read_ == nullptr || read_->flight.is_of_parent() || future().done()) return;
    const Future future = this->future();
    try {
        when_done(future, std::make_unique<LastHolder>(std::move(read_)));
    } catch (const std::exception&) {
        // No thread could be started, and the memory is kept for good: it is written to.
        (void)read_.release();
    }
}

bool PythonFuture::done() {
    if (!future().done()) return false;
    read_->flight.land();
    const std::vector<Target> freed = std::move(read_->targets);  // its end may run Python code
    read_->targets.clear();
    return true;
}

void PythonFuture::refuse_of_parent() const {
    if (read_->flight.is_of_parent())
        raise_error(Status(ECHILD, "penstock", "begun before a fork: the parent reads it"),
                    source().name);
}

void PythonFuture::wait(nanoseconds limit) {
    if (done()) return;
    refuse_of_parent();
    const bool in_time = wait_for_signals_too(future(), limit);
    if (!in_time) raise_from_futures("timeout_error", source().name);
    done();
}

bool PythonFuture::cancel() {
    if (done()) return cancelled();
    if (read_->flight.is_of_parent() || !future().cancel()) return false;
    done();
    return true;
}

void PythonFuture::stop() {
    if (!done() && !read_->flight.is_of_parent()) future().stop();
}

bool PythonFuture::cancelled() {
    return done() && future().result(nanoseconds(0)).status().error_number() == ECANCELED;
}

nanoseconds limit_of(nb::handle timeout) {
    if (timeout.is_none()) return kForever;
    const double seconds = PyFloat_AsDouble(timeout.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    if (std::isnan(seconds)) throw nb::value_error("timeout is not a number");
    if (seconds <= 0) return nanoseconds(0);
    const double most = std::chrono::duration<double>(kForever).count();
    return seconds >= most ? kForever : nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

nb::object python_report(const Report& report) {
    nb::dict values;
    values["bytes"] = report.bytes;
    values["bytes_asked"] = report.bytes_asked;
    values["offset"] = report.offset;
    values["routes"] = by_name<Route>(report.route_bytes);
    values["reasons"] = by_name<RouteReason>(report.reason_bytes);
    values["residency"] = by_name<Residency>(report.residency_bytes);
    values["transfers"] = report.transfers;
    values["direct_depth"] = report.direct_depth;
    values["predicted_ns"] = report.predicted_ns;
    values["queue_ns"] = report.queue_ns;
    values["plan_ns"] = report.plan_ns;
    values["read_ns"] = report.read_ns;
    values["copy_ns"] = report.copy_ns;
    const bool failed = report.error_number != 0;
    values["error_number"] = report.error_number;
    values["error_offset"] = failed ? nb::cast(report.error_offset) : nb::none();
    values["error_route"] = failed ? nb::cast(name(report.error_route)) : nb::none();
    return nb::module_::import_("penstock.report").attr("Report")(**values);
}

void bind_future(nb::module_& module) {
    module.def("is_completing", is_completing,
               "Whether the caller is the thread that calls callbacks of reads.");
    nb::class_<PythonFuture>(module, "Future", nb::is_weak_referenceable(),
                             "A read under way: what File.pread and File.preadv return.\n\n"
                             "It behaves as a concurrent.futures.Future, can be awaited, and "
                             "carries a report. Its buffers are kept until the read is done, also "
                             "when it is dropped earlier; a dropped read goes on.")
        .def("result", result, nb::arg("timeout").none() = nb::none(),
             "Bytes that arrived, fewer than asked only at the end of the file.\n\n"
             "Waits; raises penstock.Error, TimeoutError, concurrent.futures.CancelledError.")
        .def("get", result, nb::arg("timeout").none() = nb::none(), "As result(): KvikIO's name.")
        .def("exception", exception, nb::arg("timeout").none() = nb::none(),
             "What result() would raise, or None. Waits.")
        .def("done", &PythonFuture::done, "Whether it ended: it arrived, failed or was cancelled.")
        .def(
            "running", [](PythonFuture& self) { return !self.done(); },
            "Whether it is not done; what is queued counts.")
        .def("cancel", &PythonFuture::cancel,
             "Drop it if nothing of it has begun; whether that is so.")
        .def("stop", &PythonFuture::stop,
             "Drop what of it has not begun; it ends as cancelled when the rest is over.")
        .def("cancelled", &PythonFuture::cancelled, "Whether cancel() or stop() ended it.")
        .def("add_done_callback", add_done_callback, nb::arg("fn"),
             "Call `fn(future)` when it is done: on a thread for that, or here if it is done.")
        .def_prop_ro("report", report,
                     "Which bytes took which route and why, and where the time went.\n\n"
                     "Only when done, else concurrent.futures.InvalidStateError.")
        .def("__await__",
             [](nb::handle self) {
                 return nb::module_::import_("penstock.futures").attr("wait_in_loop")(self);
             })
        .def("__repr__", describe);
}

}  // namespace penstock::python
