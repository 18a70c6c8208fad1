// See program.h and search.h: how bodies are run up to their next access, and what they call.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include "memory_model/search.h"

namespace penstock::memory_model {

namespace {

constexpr int kIterationsMax = 1000;  // of a body without any access: it would never end

// Why a body was left.
constexpr int kStopped = 1;  // in front of an access
constexpr int kCut = 2;      // by assume()

}  // namespace

thread_local Explorer* running_explorer = nullptr;

void misuse(const char* what) {
    std::fprintf(stderr, "memory model: %s\n", what);
    std::abort();
}

uint64_t Explorer::access(const Operation& operation) {
    ThreadState& thread = state_->threads[thread_];
    if (cursor_ < thread.history_count) return thread.history[cursor_++];
    if (is_update(operation.kind) && !program_.word_updated[operation.word])
        misuse("update of a plain word");
    thread.next = operation;
    std::longjmp(leave_, kStopped);
}

uint64_t Explorer::read_cell(int cell) {
    ThreadState& thread = state_->threads[thread_];
    if (cursor_ < thread.history_count) return thread.history[cursor_++];
    uint64_t value = 0;
    if (!state_->read_cell(thread_, cell, value)) check(false, "race: data read without order");
    trace_.add_cell(thread_, cell, value, false);
    record(*state_, thread_, value);
    ++cursor_;
    return value;
}

void Explorer::write_cell(int cell, uint64_t value) {
    ThreadState& thread = state_->threads[thread_];
    if (cursor_ < thread.history_count) {
        ++cursor_;
        return;
    }
    if (!state_->write_cell(thread_, cell, value)) check(false, "race: data written without order");
    trace_.add_cell(thread_, cell, value, true);
    thread.wrote = true;
    record(*state_, thread_, 0);
    state_->begin_turn(thread_);
    ++cursor_;
}

void Explorer::check(bool condition, const char* what) {
    const bool again = cursor_ < state_->threads[thread_].history_count;
    if (!condition && !again && state_->error == nullptr) state_->error = what;
}

void Explorer::assume(bool condition) {
    if (!condition) std::longjmp(leave_, kCut);
}

Order Explorer::order_at(Site site) const {
    const Weakening& weakening = options_.weakening;
    const Order order = order_of(site);
    if (weakening.half == Order::kRelaxed || weakening.site != site) return order;
    if (order == weakening.half) return Order::kRelaxed;
    if (order != Order::kAcquireRelease) return order;
    return weakening.half == Order::kAcquire ? Order::kRelease : Order::kAcquire;
}

// 0: the body has ended its iteration.
int Explorer::run_body(int thread, Registers& registers, Next& next) {
    if (const int why = setjmp(leave_); why != 0) return why;
    next = program_.threads[thread].body(registers);
    return 0;
}

// Runs `thread` up to its next access, its end or its wait. False: this state need not be explored.
bool Explorer::advance(State& state, int thread) {
    ThreadState& mine = state.threads[thread];
    state_ = &state;
    thread_ = thread;
    for (int i = 0; i < kIterationsMax; ++i) {
        Registers registers = mine.registers;
        Next next = Next::kDone;
        cursor_ = 0;
        if (const int why = run_body(thread, registers, next); why != 0) {
            if (why == kCut) return false;
            return mine.next.kind != Kind::kPause || wait(state, thread);
        }
        if (next == Next::kRetry) {
            if (mine.wrote) misuse("an iteration that wrote ended in kRetry");
            return wait(state, thread);
        }
        mine.history_count = 0;
        mine.registers = registers;
        mine.wrote = false;
        const bool loading = mine.loading;
        if (next == Next::kDone) {
            mine.life = Life::kDone;
            mine.view = View{};
        }
        state.begin_turn(thread);
        if (next == Next::kDone) return true;
        mine.loading = loading;
    }
    misuse("a body goes on without any access");
}

// The turn found nothing: it is taken back, and begun again when one of its words has news. False:
// there is news already, so that it is the same as one begun later.
bool Explorer::wait(State& state, int thread) {
    ThreadState& mine = state.threads[thread];
    if (mine.guessed) return false;
    for (int word = 0; word < state.shape.words; ++word) {
        if ((mine.read >> word & 1) != 0 && mine.view.place[word] + 1 < state.words[word].count)
            return false;
    }
    const uint64_t read = mine.read;
    state.take_turn_back(thread);
    mine.read = read;
    mine.life = Life::kWaiting;
    return true;
}

bool Explorer::wake(State& state) {
    for (int thread = 0; thread < state.shape.threads; ++thread) {
        ThreadState& mine = state.threads[thread];
        if (mine.life != Life::kWoken) continue;
        mine.life = Life::kRunning;
        mine.read = 0;
        if (!advance(state, thread)) return false;
    }
    return true;
}

namespace {

uint64_t access(Kind kind, const Word& word, uint64_t operand, uint64_t expected, Site site) {
    const Order order = running_explorer->order_at(site);
    const bool both = order == Order::kAcquireRelease;
    return running_explorer->access({kind, word.index, both || order == Order::kAcquire,
                                     both || order == Order::kRelease, operand, expected});
}

}  // namespace

uint64_t Words::load(const Word& word, Site site) { return access(Kind::kLoad, word, 0, 0, site); }
void Words::store(Word& word, uint64_t value, Site site) {
    access(Kind::kStore, word, value, 0, site);
}
uint64_t Words::fetch_add(Word& word, uint64_t value, Site site) {
    return access(Kind::kAdd, word, value, 0, site);
}
uint64_t Words::fetch_sub(Word& word, uint64_t value, Site site) {
    return access(Kind::kAdd, word, 0 - value, 0, site);
}
uint64_t Words::fetch_or(Word& word, uint64_t value, Site site) {
    return access(Kind::kOr, word, value, 0, site);
}
uint64_t Words::fetch_and(Word& word, uint64_t value, Site site) {
    return access(Kind::kAnd, word, value, 0, site);
}
bool Words::compare_exchange(Word& word, uint64_t& expected, uint64_t desired, Site site) {
    const uint64_t old = access(Kind::kExchangeIf, word, desired, expected, site);
    if (old == expected) return true;
    expected = old;
    return false;
}

uint64_t read(Cell cell) { return running_explorer->read_cell(cell.index); }
void write(Cell cell, uint64_t value) { running_explorer->write_cell(cell.index, value); }
uint64_t choose(uint64_t count) {
    return running_explorer->access({Kind::kChoose, 0, false, false, count, 0});
}
void pause() { running_explorer->access({Kind::kPause, 0, false, false, 0, 0}); }
void assume(bool condition) { running_explorer->assume(condition); }
void check(bool condition, const char* what) { running_explorer->check(condition, what); }

}  // namespace penstock::memory_model
