// Programs for blocks that leave and come back: blocks, a watcher on the host, a worker, and the
// stream that goes on behind them.
//
// Follows leave, watch, end_watch, pop and finish (device/preemption_queue.cuh) and the
// dispatcher's step (src/preemption/preemption.cc). What a block saves and what it computes are
// cells. A watcher that ends too early leaves a worker that waits for ever.
#include <string>
#include <vector>

#include "memory_model/scenarios.h"

namespace penstock::memory_model {

namespace {

constexpr uint64_t kOutside = 2, kReadyState = 3, kInside = 1, kFree = 0;

// Each round after the first one has a block that left during the round before.
constexpr uint64_t kRoundsMax = 3;

struct Saved {
    Word state;
    Cell awaited, registers;
};

struct Launch {
    std::vector<Saved> saved;
    std::vector<Cell> results;
    std::vector<Word> ready;  // index + 1 of a SavedBlock, by place
    Word outside, watched, calls, head, tail, finished, done;
};

constexpr uint64_t value_of(size_t block) { return 100 + block; }

void leave(Launch launch, size_t block) {
    Saved saved = launch.saved[block];
    write(saved.awaited, block);
    write(saved.registers, value_of(block));
    Words::store(saved.state, kOutside, site::kLeave);
    Words::fetch_add(launch.outside, 1, site::kWatch);
    if (Words::fetch_or(launch.watched, 1, site::kWatch) != 0) return;
    const uint64_t calls = Words::load(launch.calls, site::kRelaxed);
    Words::store(launch.calls, calls + 1, site::kWatch);
}

void watch(Launch launch) {
    for (size_t i = 0; i < launch.saved.size(); ++i) {
        Saved saved = launch.saved[i];
        if (Words::load(saved.state, site::kSeeLeft) != kOutside) continue;
        check(read(saved.awaited) == i, "what a block waits for");
        Words::store(saved.state, kReadyState, site::kRelaxed);
        const uint64_t place = Words::fetch_add(launch.tail, 1, site::kRelaxed);
        Words::store(launch.ready[place], i + 1, site::kReady);
        Words::fetch_sub(launch.outside, 1, site::kRelaxed);
    }
}

bool end_watch(Launch launch) {
    Words::fetch_and(launch.watched, 0, site::kWatch);
    if (Words::fetch_add(launch.outside, 0, site::kWatch) == 0) return true;
    return Words::fetch_or(launch.watched, 1, site::kWatch) != 0;
}

// The dispatcher: it looks at the launch when it was called, until it ends its watch.
Next dispatch(Launch launch, Registers& registers) {
    const uint64_t calls = Words::load(launch.calls, site::kWatch);
    if (calls == registers[0] && registers[1] == 0) return Next::kRetry;
    if (registers[2] == kRoundsMax) return Next::kRetry;  // a mistake: then workers wait for ever
    ++registers[2];
    registers[0] = calls;
    watch(launch);
    registers[1] = end_watch(launch) ? 0 : 1;
    return Next::kAgain;
}

void finish(Launch launch, size_t block) {
    write(launch.results[block], value_of(block) + 1);
    Words::store(launch.saved[block].state, kFree, site::kUnlockPort);
    if (Words::fetch_add(launch.finished, 1, site::kFinish) + 1 < launch.saved.size()) return;
    Words::store(launch.done, 1, site::kComplete);
}

Next work(Launch launch) {
    uint64_t head = Words::load(launch.head, site::kRelaxed);
    uint64_t entry = 0;
    do {
        if (head == Words::load(launch.tail, site::kRelaxed)) return Next::kRetry;
        entry = Words::load(launch.ready[head], site::kResume);
        if (entry == 0) return Next::kRetry;
    } while (!Words::compare_exchange(launch.head, head, head + 1, site::kRelaxed));
    Saved saved = launch.saved[entry - 1];
    Words::store(saved.state, kInside, site::kRelaxed);
    check(read(saved.registers) == value_of(entry - 1), "the saved state");
    finish(launch, entry - 1);
    return Next::kDone;
}

Next go_on(Launch launch) {
    if (Words::load(launch.done, site::kCompletion) == 0) return Next::kRetry;
    for (size_t i = 0; i < launch.results.size(); ++i)
        check(read(launch.results[i]) == value_of(i) + 1, "what a block computed");
    return Next::kDone;
}

Program preemption_program(size_t blocks) {
    Program program;
    program.name = "preemption: " + std::to_string(blocks) + " blocks leave";
    Launch launch;
    for (size_t i = 0; i < blocks; ++i) {
        const std::string number = std::to_string(i);
        launch.saved.push_back({program.word("state" + number), program.cell("awaited" + number),
                                program.cell("registers" + number)});
        launch.results.push_back(program.cell("result" + number));
        launch.ready.push_back(program.word("ready" + number));
    }
    launch.outside = program.word("outside");
    launch.watched = program.word("watched");
    launch.calls = program.word("calls", 0, false);
    launch.head = program.word("head");
    launch.tail = program.word("tail");
    launch.finished = program.word("finished");
    launch.done = program.word("done", 0, false);
    for (size_t i = 0; i < blocks; ++i) {
        program.thread("block" + std::to_string(i), [=](Registers&) {
            leave(launch, i);
            return Next::kDone;
        });
        program.thread("worker" + std::to_string(i), [=](Registers&) { return work(launch); });
    }
    program.deferrals = blocks == 1;  // else the state is too large
    program.thread("stream", [=](Registers&) { return go_on(launch); });
    program.server("dispatcher", [=](Registers& registers) { return dispatch(launch, registers); });
    return program;
}

}  // namespace

std::vector<Program> preemption_programs(bool nightly) {
    std::vector<Program> programs;
    programs.push_back(preemption_program(1));
    programs.push_back(preemption_program(2));
    if (nightly) programs.push_back(preemption_program(3));
    return programs;
}

}  // namespace penstock::memory_model
