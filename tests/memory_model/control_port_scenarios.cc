// Programs for a control port: teams that lock it and call, host threads that serve it.
//
// Follows control_call (device/control_port.cuh) and ControlCalls::serve
// (src/service/control_calls.cc) line by line. Their payload is plain memory, which is cells here.
// A payload that is written while another thread reads it is a race. A call that is served twice or
// gets another call's result shows as a wrong value.
#include <string>

#include "memory_model/scenarios.h"

namespace penstock::memory_model {

namespace {

// Of ControlCalls::taken_, a std::atomic_flag.
constexpr Site kTakePort = static_cast<Site>(Order::kAcquire);
constexpr Site kGivePortBack = static_cast<Site>(Order::kRelease);

struct Port {
    Word lock, request, response, taken;
    Cell argument, result;
};

constexpr uint64_t answer_to(uint64_t argument) { return 1000 + argument; }

Next call(Port port, uint64_t argument) {
    uint64_t unlocked = 0;
    if (!Words::compare_exchange(port.lock, unlocked, 1, site::kLockPort)) return Next::kRetry;
    write(port.argument, argument);
    const uint64_t last = Words::load(port.response, site::kRelaxed);
    Words::store(port.request, (last + 1) << 8 | 1, site::kCall);
    while (Words::load(port.response, site::kResponse) != last + 1) pause();
    check(read(port.result) == answer_to(argument), "another call's result");
    Words::store(port.lock, 0, site::kUnlockPort);
    return Next::kDone;
}

Next serve(Port port) {
    uint64_t word = Words::load(port.request, site::kServe);
    if (word >> 8 == Words::load(port.response, site::kRelaxed)) return Next::kRetry;
    uint64_t free = 0;
    if (!Words::compare_exchange(port.taken, free, 1, kTakePort)) return Next::kRetry;
    word = Words::load(port.request, site::kServe);
    if (word >> 8 != Words::load(port.response, site::kRelaxed)) {
        write(port.result, answer_to(read(port.argument)));
        Words::store(port.response, word >> 8, site::kRespond);
    }
    Words::store(port.taken, 0, kGivePortBack);
    return Next::kAgain;
}

Program control_port_program(int teams, int servers) {
    Program program;
    program.name = "control port: " + std::to_string(teams) + " teams call, " +
                   std::to_string(servers) + " serve";
    Port port;
    port.lock = program.word("lock");
    port.request = program.word("request", 0, false);
    port.response = program.word("response", 0, false);
    port.taken = program.word("taken");
    port.argument = program.cell("argument");
    port.result = program.cell("result");
    for (int i = 0; i < teams; ++i) {
        program.thread("team" + std::to_string(i), [=](Registers&) { return call(port, 10 + i); });
    }
    for (int i = 0; i < servers; ++i) {
        program.server("server" + std::to_string(i), [=](Registers&) { return serve(port); });
    }
    program.at_end = [=](const Outcome& outcome) -> const char* {
        return outcome.value(port.response) == static_cast<uint64_t>(teams)
                   ? nullptr
                   : "a call was served twice";
    };
    return program;
}

}  // namespace

std::vector<Program> control_port_programs(bool nightly) {
    std::vector<Program> programs;
    programs.push_back(control_port_program(2, 1));
    programs.push_back(control_port_program(2, 2));
    if (nightly) programs.push_back(control_port_program(3, 2));
    return programs;
}

}  // namespace penstock::memory_model
