#include "interpreter.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace penstock::python {
namespace {

namespace nb = nanobind;
using Clock = std::chrono::steady_clock;

thread_local bool completing = false;  // whether this thread calls completions

constexpr auto kSignalSlice = std::chrono::milliseconds(50);
constexpr auto kExitLimit = std::chrono::seconds(5);

// Calls completions, one after another, on a thread of its own that starts with the first.
class Completer {
public:
    // With the interpreter.
    void start() {
        const std::lock_guard lock(mutex_);
        if (started_ || stopping_) return;
        std::thread([this] { run(); }).detach();
        started_ = true;
    }
    // Any thread, also without the interpreter.
    void add(Completion* completion) {
        {
            const std::lock_guard lock(mutex_);
            waiting_.push_back(completion);
        }
        changed_.notify_all();
    }
    // Without the interpreter. What waits is completed first, as far as the time allows.
    void stop(Clock::time_point deadline) {
        std::unique_lock lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
        changed_.wait_until(lock, deadline, [this] { return !started_ || over_; });
    }

private:
    // Unwinds nowhere: it is left only when stop() waits for it, or never.
    void run() {
        completing = true;
        const PyGILState_STATE state = PyGILState_Ensure();
        std::vector<Completion*> batch;
        while (wait(&batch)) {
            for (Completion* completion : batch) {
                completion->complete();
                delete completion;
            }
            batch.clear();
        }
        PyGILState_Release(state);
        const std::lock_guard lock(mutex_);
        over_ = true;
        changed_.notify_all();
    }
    bool wait(std::vector<Completion*>* batch) {
        const Unlocked others;
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !waiting_.empty() || stopping_; });
        batch->swap(waiting_);
        return !batch->empty();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Completion*> waiting_;
    bool started_ = false, stopping_ = false, over_ = false;
};

struct Interpreter {
    unsigned process = 0;
    bool exiting = false;
    std::thread::id ends_it;  // the thread that ends the interpreter
    // Threads that let the interpreter go, and whether those that come back are to sleep. Atomic
    // for the thread that ends the interpreter, which lets it go itself while it looks.
    std::atomic<unsigned> unlocked{0};
    std::atomic<bool> over{false};
    Completer* completer = new Completer;  // never destroyed: its thread may outlive the process's
                                           // destructors
    Flight* flights = nullptr;
};

Interpreter& interpreter() {
    static auto* const kOnly = new Interpreter;
    return *kOnly;
}

// In the child of a fork only the thread that forked lives, and locks may be held by the others.
void forget_parent() {
    Interpreter& here = interpreter();
    ++here.process;
    here.unlocked = 0;
    here.exiting = false;
    here.ends_it = {};
    here.completer = new Completer;
    here.flights = nullptr;
}

void at_exit() {
    Interpreter& here = interpreter();
    here.exiting = true;
    here.ends_it = std::this_thread::get_id();
    const auto deadline = Clock::now() + kExitLimit;
    Flight::land_all(deadline);
    {
        const Unlocked others;
        here.completer->stop(deadline);
        while (here.unlocked > 1 && Clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    here.over = true;
}

}  // namespace

Unlocked::Unlocked() {
    if (interpreter().over) return;
    ++interpreter().unlocked;
    state_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
    if (state_ == nullptr) return;
    while (interpreter().over) std::this_thread::sleep_for(std::chrono::hours(1));
    PyEval_RestoreThread(state_);
    --interpreter().unlocked;
}

unsigned process_number() { return interpreter().process; }

void leave_at_exit() {
    const Interpreter& here = interpreter();
    if (!here.exiting || here.ends_it == std::this_thread::get_id() || completing) return;
    const nb::object thread = nb::module_::import_("threading").attr("current_thread")();
    if (!nb::cast<bool>(thread.attr("daemon"))) return;  // a callback at the end waits for it
    PyErr_SetNone(PyExc_SystemExit);
    throw nb::python_error();
}

void refuse_at_exit() {
    leave_at_exit();
    if (interpreter().exiting) throw std::runtime_error("cannot read: the interpreter is ending");
}

bool wait_with_signals(std::chrono::nanoseconds limit,
                       const std::function<bool(std::chrono::nanoseconds)>& wait) {
    const auto begin = Clock::now();
    std::chrono::nanoseconds left = limit;
    while (true) {
        {
            const Unlocked others;
            if (wait(std::min<std::chrono::nanoseconds>(left, kSignalSlice))) return true;
        }
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        left = limit - (Clock::now() - begin);
        if (left.count() <= 0) return false;
    }
}

bool wait_for_signals_too(const Future& future, std::chrono::nanoseconds limit) {
    return future.done() || wait_with_signals(limit, [&future](std::chrono::nanoseconds slice) {
               return future.wait(slice).ok() || future.done();
           });
}

void when_done(const Future& future, std::unique_ptr<Completion> completion) {
    Completer* const completer = interpreter().completer;
    completer->start();
    future.on_done([completer, one = completion.release()] { completer->add(one); });
}

bool is_completing() { return completing; }

Flight::Flight(Future future) : future_(std::move(future)), process_(process_number()) {
    if (future_.done()) return;
    Flight*& first = interpreter().flights;
    linked_ = true;
    next_ = first;
    if (first != nullptr) first->previous_ = this;
    first = this;
}

Flight::~Flight() {
    if (!is_of_parent()) {
        land();
        return;
    }
    // Destroying it would wait for, or lock, what is not in this process.
    new Future(std::move(future_));
}

void Flight::land() {
    if (!linked_ || is_of_parent()) return;
    linked_ = false;
    (previous_ == nullptr ? interpreter().flights : previous_->next_) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
    previous_ = next_ = nullptr;
}

void Flight::land_all(Clock::time_point deadline) {
    for (Flight* one = interpreter().flights; one != nullptr; one = one->next_) one->future_.stop();
    while (Flight* const first = interpreter().flights) {
        if (first->future_.done()) {
            first->land();
            continue;
        }
        const auto left = deadline - Clock::now();
        if (left.count() <= 0) return;         // what is left keeps its memory
        const Future future = first->future_;  // `first` may go while others have the interpreter
        const Unlocked others;
        (void)future.wait(left);
    }
}

void bind_interpreter(nb::module_& module) {
    pthread_atfork(nullptr, nullptr, forget_parent);
    module.def("_at_exit", at_exit, "Wait for reads under way; nothing can be read afterwards.");
    nb::module_::import_("atexit").attr("register")(module.attr("_at_exit"));
}

}  // namespace penstock::python
