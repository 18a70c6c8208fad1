// The interpreter as the reads of penstock._core see it: let go of while C++ waits, asked for
// signals, ended, forked; and the thread that calls Python when a read is done.
//
// Everything here wants the interpreter held (the GIL), unless it says otherwise.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <functional>
#include <memory>

#include "penstock/file.h"

namespace penstock::python {

// Lets the interpreter go while it lives; at the very end, after at_exit, it does nothing. A thread
// that comes back then sleeps for good: taking the interpreter would end the thread through frames
// that must not be unwound.
class Unlocked {
public:
    Unlocked();
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

private:
    PyThreadState* state_ = nullptr;
};

// How many forks lie between the first import and this process. What was made under another number
// belongs to the parent: the threads behind it are not here, and it must not be destroyed.
unsigned process_number();

// Throws SystemExit in a daemon thread, once the interpreter has begun to end. `threading` prints
// no traceback for it. Python would abort if a thread were printing one at the very end.
void leave_at_exit();

// Throws once the interpreter has begun to end; RuntimeError in the thread that ends it.
void refuse_at_exit();

// Calls `wait`, without the interpreter, with how long it may wait, until it returns true or
// `limit` is over; sees to signals every 50 ms. Returns what it returned. Throws what a signal
// handler raised.
bool wait_with_signals(std::chrono::nanoseconds limit,
                       const std::function<bool(std::chrono::nanoseconds)>& wait);

// Waits until `future` is done, at most `limit`, in this way. Returns whether it is done.
bool wait_for_signals_too(const Future& future, std::chrono::nanoseconds limit);

// What is to be done, with the interpreter held, when a read is done.
class Completion {
public:
    Completion() = default;
    Completion(const Completion&) = delete;
    Completion& operator=(const Completion&) = delete;
    virtual ~Completion() = default;
    // Must not throw; Python errors go to sys.unraisablehook.
    virtual void complete() noexcept = 0;
};
// Has `completion` completed and destroyed on a thread for that, once `future` is done; also when
// it is done already. At the end of the interpreter what is left is neither.
void when_done(const Future& future, std::unique_ptr<Completion> completion);
// Whether the caller is that thread: what waits here for another completion waits for ever.
bool is_completing();

// A read that Python began. Those that are under way are known, so that the end of the interpreter
// can wait for them.
class Flight {
public:
    explicit Flight(Future future);
    ~Flight();
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;

    [[nodiscard]] const Future& future() const { return future_; }
    [[nodiscard]] bool is_of_parent() const { return process_ != process_number(); }
    // It is done: nothing has to wait for it any more.
    void land();
    // Drops what has not begun and waits for the rest.
    static void land_all(std::chrono::steady_clock::time_point deadline);

private:
    Future future_;
    unsigned process_;
    Flight* previous_ = nullptr;
    Flight* next_ = nullptr;
    bool linked_ = false;
};

// Sees to forks, and to reads under way when the interpreter ends, while it is still whole.
void bind_interpreter(nanobind::module_& module);

}  // namespace penstock::python
