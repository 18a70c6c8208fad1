// A read as Python holds it: penstock.Future.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "interpreter.h"
#include "target.h"

namespace penstock::python {

// Where a read reads from, for errors and the trace. Shared by a file and its reads.
struct Source {
    nanobind::object name;  // as it was given: a path or a descriptor
};

// What of a read must stay until it is done, whoever lets go of it earlier.
struct Read {
    Read(Future future, std::vector<Target> into, std::shared_ptr<const Source> from)
        : flight(std::move(future)), targets(std::move(into)), source(std::move(from)) {}

    Flight flight;
    std::vector<Target> targets;
    std::shared_ptr<const Source> source;
};

// Wants the interpreter held.
class PythonFuture {
public:
    PythonFuture(Future future, std::vector<Target> targets, std::shared_ptr<const Source> source);
    // A read under way goes on, and keeps its memory.
    ~PythonFuture();
    PythonFuture(PythonFuture&&) = default;
    PythonFuture(const PythonFuture&) = delete;
    PythonFuture& operator=(const PythonFuture&) = delete;

    [[nodiscard]] const Future& future() const { return read_->flight.future(); }
    [[nodiscard]] const Source& source() const { return *read_->source; }
    // Whether it is done; then its memory is let go.
    bool done();
    // Throws penstock.Error when another process, the parent of a fork, reads it.
    void refuse_of_parent() const;
    // Waits at most `limit`, and sees to signals. Throws TimeoutError, CancelledError when it was
    // cancelled, what a signal handler raised, and penstock.Error after a fork.
    void wait(std::chrono::nanoseconds limit);
    // Drops it if nothing of it has begun; whether it is dropped.
    bool cancel();
    // Drops what of it has not begun.
    void stop();
    [[nodiscard]] bool cancelled();

private:
    std::unique_ptr<Read> read_;
};

// A timeout in seconds as Python gives it; None: longer than anybody waits. Throws ValueError.
std::chrono::nanoseconds limit_of(nanobind::handle timeout);

// A report as penstock.Report.
nanobind::object python_report(const Report& report);

}  // namespace penstock::python
