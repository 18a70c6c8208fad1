// The order in which reads end: what penstock.wait and as_completed wait by.
//
// Told by the threads that end reads, not by the one that calls Python, so that a callback of a
// read may wait for others.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core.h"
#include "future.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

// Numbers of reads that have ended. Any thread, also without the interpreter.
class Ended {
public:
    explicit Ended(size_t count) { numbers_.reserve(count); }
    // Once for each read: there is room.
    void add(size_t number) {
        {
            const std::lock_guard lock(mutex_);
            numbers_.push_back(number);
        }
        changed_.notify_all();
    }
    std::optional<size_t> take(std::chrono::nanoseconds limit) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, limit, [this] { return taken_ < numbers_.size(); }))
            return std::nullopt;
        return numbers_[taken_++];
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<size_t> numbers_;
    size_t taken_ = 0;
};

// Wants the interpreter held. Reads may outlive it.
class Endings {
public:
    explicit Endings(const nb::list& futures) : ended_(std::make_shared<Ended>(futures.size())) {
        for (size_t i = 0; i < futures.size(); ++i) {
            if (!nb::isinstance<PythonFuture>(futures[i]))
                raise_kind(futures[i], "each of the futures", "a penstock.Future");
            auto& future = nb::cast<PythonFuture&>(futures[i]);
            if (!future.done()) future.refuse_of_parent();
            future.future().on_done([ended = ended_, i] { ended->add(i); });
        }
    }

    std::optional<size_t> next(nb::handle timeout) {
        std::optional<size_t> number;
        wait_with_signals(limit_of(timeout), [&](std::chrono::nanoseconds limit) {
            number = ended_->take(limit);
            return number.has_value();
        });
        return number;
    }

private:
    std::shared_ptr<Ended> ended_;
};

}  // namespace

void bind_endings(nb::module_& module) {
    nb::class_<Endings>(module, "Endings", "Reads of a list, as they end.")
        .def(nb::init<const nb::list&>(), nb::arg("futures"))
        .def("next", &Endings::next, nb::arg("timeout").none() = nb::none(),
             "Which one of the list is the next that has ended; None: none within the timeout.");
}

}  // namespace penstock::python
