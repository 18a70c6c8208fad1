// See explorer.h: the search.
#include "memory_model/explorer.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "memory_model/search.h"

namespace penstock::memory_model {

// A thread whose next step need not be interleaved with others' steps, or -1.
//   A load can be put off until just before its thread next changes a word: it can still read what
//   it could, and others do not notice. So once a thread has begun to load it goes on until that
//   change. A store to a word without updates can be done at once: loads can still read what was
//   there before.
int Explorer::alone(const State& state) const {
    for (int thread = 0; thread < state.shape.threads; ++thread) {
        if (state.threads[thread].loading && !options_.sequential) return thread;
    }
    for (int thread = 0; thread < state.shape.threads; ++thread) {
        const ThreadState& mine = state.threads[thread];
        if (mine.life != Life::kRunning) continue;
        if (mine.next.kind == Kind::kChoose) return thread;
        if (mine.next.kind == Kind::kStore && !options_.sequential &&
            !program_.word_updated[mine.next.word]) {
            return thread;
        }
    }
    return -1;
}

void Explorer::choices(const State& state, int thread, std::vector<Choice>& out) const {
    const Operation& next = state.threads[thread].next;
    if (next.kind == Kind::kChoose) {
        for (uint64_t i = 0; i < next.operand; ++i) out.push_back({Choice::Kind::kChoose, 0, i});
        return;
    }
    const WordState& word = state.words[next.word];
    const int first = state.threads[thread].view.place[next.word];
    const int newest = word.count - 1;
    if (next.kind == Kind::kStore) {
        for (int place = options_.sequential ? newest + 1 : first + 1; place <= word.count;
             ++place) {
            if (state.may_write_at(thread, next.word, place))
                out.push_back({Choice::Kind::kWrite, place, 0});
        }
    } else if (next.kind == Kind::kLoad || next.kind == Kind::kExchangeIf) {
        for (int place = options_.sequential ? newest : first; place <= newest; ++place) {
            const bool succeeds = next.kind == Kind::kExchangeIf &&
                                  word.messages[place].value == next.expected;
            if (!succeeds) out.push_back({Choice::Kind::kRead, place, 0});
        }
        if (next.kind == Kind::kExchangeIf && word.messages[newest].value == next.expected) {
            out.push_back({Choice::Kind::kUpdate, 0, 0});
        }
    } else {
        out.push_back({Choice::Kind::kUpdate, 0, 0});
    }
    if (defer_ && state.deferral.state == Deferral::State::kNone) defer_choices(state, thread, out);
}

// Values that the word may have later. Those that can be had now are left to the choices above.
void Explorer::defer_choices(const State& state, int thread, std::vector<Choice>& out) const {
    const Operation& next = state.threads[thread].next;
    if (next.kind == Kind::kStore) return;
    const WordState& word = state.words[next.word];
    for (const uint64_t value : (*seen_)[next.word]) {
        // A compare-exchange that fails is a relaxed load.
        const bool loads = next.kind == Kind::kLoad ||
                           (next.kind == Kind::kExchangeIf && value != next.expected);
        if (next.acquire && (next.kind == Kind::kLoad || !loads)) continue;
        bool now = word.messages[word.count - 1].value == value;
        for (int place = state.threads[thread].view.place[next.word]; loads && place < word.count;
             ++place) {
            now = now || word.messages[place].value == value;
        }
        if (!now) out.push_back({Choice::Kind::kDefer, 0, value});
    }
}

void Explorer::record(State& state, int thread, uint64_t result) {
    ThreadState& mine = state.threads[thread];
    if (mine.history_count == kHistoryMax) misuse("an iteration has too many accesses");
    mine.history[mine.history_count++] = result;
}

// False: the step leads nowhere that counts.
bool Explorer::apply(State& state, int thread, const Choice& choice) {
    if (choice.kind == Choice::Kind::kPerform) {
        state.perform_deferred_update();
        return true;
    }
    ThreadState& mine = state.threads[thread];
    Operation next = mine.next;
    if (next.kind != Kind::kChoose && state.open_deferral() &&
        state.deferral.operation.word == next.word && state.after_deferred(thread)) {
        return false;
    }
    uint64_t result = choice.value;
    bool changed = choice.kind == Choice::Kind::kWrite || choice.kind == Choice::Kind::kUpdate;
    switch (choice.kind) {
        case Choice::Kind::kRead:
            if (next.kind == Kind::kExchangeIf) next.acquire = false;
            result = state.read(thread, next, choice.place);
            break;
        case Choice::Kind::kWrite:
            state.write(thread, next, choice.place);
            if (!defer_) (*seen_)[next.word].insert(next.operand);
            break;
        case Choice::Kind::kUpdate:
            result = state.update(thread, next);
            if (!defer_) (*seen_)[next.word].insert(state.newest(next.word));
            break;
        case Choice::Kind::kDefer: {
            const bool loads = next.kind == Kind::kLoad ||
                               (next.kind == Kind::kExchangeIf && choice.value != next.expected);
            Deferral& deferral = state.deferral;
            deferral = {Deferral::State::kOpen,
                        static_cast<uint8_t>(thread),
                        mine.view.clock[thread],
                        next,
                        choice.value,
                        mine.view};
            changed = !loads;
            if (loads) {
                deferral.operation.kind = Kind::kLoad;
                mine.guessed = true;
                mine.read |= uint64_t{1} << next.word;
            } else {
                mine.wrote = true;
                if (next.release) ++mine.view.clock[thread];
            }
            break;
        }
        default:
            break;
    }
    record(state, thread, result);
    if (changed) {
        state.begin_turn(thread);
    } else if (next.kind != Kind::kChoose) {
        mine.loading = true;
    }
    return advance(state, thread);
}

State& Explorer::state_at(size_t depth) {
    while (stack_.size() <= depth) {
        stack_.push_back(std::make_unique<State>());
        choices_.emplace_back();
    }
    return *stack_[depth];
}

bool Explorer::step_into(size_t depth, int thread, const Choice& choice) {
    State& next = state_at(depth + 1);
    const State& state = *stack_[depth];
    next = state;
    const size_t mark = trace_.size();
    const Operation operation = state.threads[thread].next;
    trace_.add(thread, choice.kind == Choice::Kind::kPerform ? state.deferral.operation : operation,
               choice.kind == Choice::Kind::kDefer, choice.kind == Choice::Kind::kPerform);
    ++result_.steps;
    if (apply(next, thread, choice)) {
        const ThreadState& after = next.threads[thread];
        if (after.history_count != 0) trace_.result(mark, after.history[after.history_count - 1]);
        if (wake(next)) {
            next.trim();
            visit(depth + 1);
        }
    }
    trace_.resize(mark);
    return !stop_;
}

void Explorer::visit(size_t depth) {
    State& state = state_at(depth);
    if (state.error != nullptr && !state.open_deferral()) return report(state.error);
    if (!visited_.insert(state.hash())) return;
    if (++result_.states > options_.states_max) {
        result_.complete = false;
        stop_ = true;
        return;
    }
    const int only = alone(state);
    bool moved = false;
    for (int thread = 0; thread < state.shape.threads; ++thread) {
        if (state.threads[thread].life != Life::kRunning || (only >= 0 && thread != only)) continue;
        moved = true;
        choices_[depth].clear();
        choices(state, thread, choices_[depth]);
        for (size_t i = 0; i < choices_[depth].size(); ++i) {
            if (!step_into(depth, thread, choices_[depth][i])) return;
        }
    }
    if (state.open_deferral() && is_update(state.deferral.operation.kind) && only < 0 &&
        state.newest(state.deferral.operation.word) == state.deferral.value) {
        moved = true;
        if (!step_into(depth, state.deferral.thread, {Choice::Kind::kPerform, 0, 0})) return;
    }
    if (!moved) end(state);
}

void Explorer::end(const State& state) {
    if (state.open_deferral()) return;  // guessed wrong
    ++result_.executions;
    for (int thread = 0; thread < state.shape.threads; ++thread) {
        if (state.threads[thread].life == Life::kWaiting && !program_.threads[thread].server) {
            return report(program_.threads[thread].name + " waits for ever");
        }
    }
    const Outcome outcome{&state};
    if (options_.on_end) options_.on_end(outcome);
    if (!program_.at_end) return;
    if (const char* error = program_.at_end(outcome)) report(error);
}

void Explorer::report(const std::string& error) {
    result_.error = error;
    result_.trace = trace_.text();
    stop_ = true;
}

Result Explorer::run() {
    Explorer* const outer = running_explorer;
    running_explorer = this;
    State& first = state_at(0);
    first.shape = {static_cast<int>(program_.word_values.size()),
                   static_cast<int>(program_.cell_values.size()),
                   static_cast<int>(program_.threads.size())};
    if (first.shape.words > kWordsMax || first.shape.cells > kCellsMax ||
        first.shape.threads > kThreadsMax) {
        misuse("the program is too large");
    }
    for (int i = 0; i < first.shape.words; ++i) {
        (*seen_)[i].insert(program_.word_values[i]);
        first.words[i].count = 1;
        first.words[i].messages[0].value = program_.word_values[i];
    }
    for (int i = 0; i < first.shape.cells; ++i) first.cells[i].value = program_.cell_values[i];
    for (int i = 0; i < first.shape.threads; ++i) {
        first.threads[i].view.clock[i] = 1;
        first.begin_turn(i);
    }
    bool counts = true;
    for (int i = 0; i < first.shape.threads; ++i) counts = advance(first, i) && counts;
    if (counts) visit(0);
    running_explorer = outer;
    return result_;
}

Result explore(const Program& program, const Options& options) {
    std::vector<std::set<uint64_t>> seen(program.word_values.size());
    Result result = Explorer(program, options, false, &seen).run();
    if (!result.passed() || !program.deferrals || !options.deferrals || options.sequential)
        return result;
    Result second = Explorer(program, options, true, &seen).run();
    second.states += result.states;
    second.steps += result.steps;
    second.executions += result.executions;
    return second;
}

}  // namespace penstock::memory_model
