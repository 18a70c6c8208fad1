// The explorer's insides: explorer.cc holds the search, bodies.cc how bodies run and what they
// call.
#pragma once

#include <csetjmp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "memory_model/explorer.h"
#include "memory_model/state_set.h"
#include "memory_model/trace.h"

namespace penstock::memory_model {

// One way in which a pending operation can take place.
struct Choice {
    enum class Kind : uint8_t { kRead, kWrite, kUpdate, kChoose, kDefer, kPerform };
    Kind kind;
    int place = 0;       // kRead, kWrite
    uint64_t value = 0;  // kChoose, kDefer
};

class Explorer {
public:
    Explorer(const Program& program, const Options& options, bool defer,
             std::vector<std::set<uint64_t>>* seen)
        : program_(program), options_(options), defer_(defer), seen_(seen) {}

    Result run();

    // Called by bodies.
    uint64_t access(const Operation& operation);
    uint64_t read_cell(int cell);
    void write_cell(int cell, uint64_t value);
    void check(bool condition, const char* what);
    void assume(bool condition);
    Order order_at(Site site) const;

private:
    void visit(size_t depth);
    void end(const State& state);
    void report(const std::string& error);
    int alone(const State& state) const;
    void choices(const State& state, int thread, std::vector<Choice>& out) const;
    void defer_choices(const State& state, int thread, std::vector<Choice>& out) const;
    bool apply(State& state, int thread, const Choice& choice);
    void record(State& state, int thread, uint64_t result);
    bool advance(State& state, int thread);
    int run_body(int thread, Registers& registers, Next& next);
    bool wait(State& state, int thread);
    bool wake(State& state);
    bool step_into(size_t depth, int thread, const Choice& choice);
    State& state_at(size_t depth);

    const Program& program_;
    const Options& options_;
    const bool defer_;
    std::vector<std::set<uint64_t>>* seen_;  // values of each word in executions without deferrals
    Result result_;
    bool stop_ = false;
    StateSet visited_;
    std::vector<std::unique_ptr<State>> stack_;
    std::vector<std::vector<Choice>> choices_;
    Trace trace_{program_};
    // While a body runs:
    State* state_ = nullptr;
    int thread_ = 0;
    int cursor_ = 0;  // accesses of this iteration that have been answered
    std::jmp_buf leave_;
};

extern thread_local Explorer* running_explorer;  // whose body runs

// Ends the test program: a program breaks a rule of program.h.
[[noreturn]] void misuse(const char* what);

}  // namespace penstock::memory_model
