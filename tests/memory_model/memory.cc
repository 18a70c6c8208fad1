// See memory.h.
#include "memory_model/memory.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace penstock::memory_model {

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "memory model: %s\n", what);
    std::abort();
}

struct Hash {
    uint64_t value = 0x243f6a8885a308d3;
    void add(uint64_t word) {
        value = (std::rotl(value, 7) ^ word) * 0x9e3779b97f4a7c15;
        value ^= value >> 32;
    }
    void add(const void* bytes, size_t size) {  // size: whole words
        const auto* at = static_cast<const unsigned char*>(bytes);
        for (size_t i = 0; i < size; i += 8) {
            uint64_t word;
            std::memcpy(&word, at + i, 8);
            add(word);
        }
    }
    void add(const View& view) { add(&view, sizeof view); }
    void add(const Operation& o) {
        add(static_cast<uint64_t>(o.kind) | uint64_t{o.word} << 8 | uint64_t{o.acquire} << 16 |
            uint64_t{o.release} << 17);
        add(o.operand);
        add(o.expected);
    }
};
static_assert(sizeof(View) % 8 == 0, "hashed as words");

}  // namespace

uint64_t updated(const Operation& operation, uint64_t old) {
    switch (operation.kind) {
        case Kind::kAdd:
            return old + operation.operand;
        case Kind::kOr:
            return old | operation.operand;
        case Kind::kAnd:
            return old & operation.operand;
        default:
            return operation.operand;
    }
}

State& State::operator=(const State& other) {
    if (this == &other) return *this;
    shape = other.shape;
    for (int i = 0; i < shape.words; ++i) {
        words[i].count = other.words[i].count;
        std::copy_n(other.words[i].messages.begin(), words[i].count, words[i].messages.begin());
    }
    std::copy_n(other.cells.begin(), shape.cells, cells.begin());
    for (int i = 0; i < shape.threads; ++i) {
        const ThreadState& from = other.threads[i];
        ThreadState& to = threads[i];
        to.life = from.life;
        to.wrote = from.wrote;
        to.guessed = from.guessed;
        to.loading = from.loading;
        to.history_count = from.history_count;
        to.turn_history = from.turn_history;
        to.read = from.read;
        to.turn_view = from.turn_view;
        to.view = from.view;
        to.next = from.next;
        to.registers = from.registers;
        std::copy_n(from.history.begin(), from.history_count, to.history.begin());
    }
    deferral = other.deferral;
    error = other.error;
    return *this;
}

// `next` follows from registers and history, hence is left out.
uint64_t State::hash() const {
    Hash hash;
    for (int i = 0; i < shape.words; ++i) {
        hash.add(words[i].count);
        for (int k = 0; k < words[i].count; ++k) {
            const Message& message = words[i].messages[k];
            hash.add(message.value);
            hash.add(message.bound);
            hash.add(message.view);
        }
    }
    for (int i = 0; i < shape.cells; ++i) {
        const CellState& cell = cells[i];
        hash.add(cell.value);
        hash.add(uint64_t{cell.writer} | uint64_t{cell.write_clock} << 8);
        hash.add(cell.read_clock.data(), sizeof cell.read_clock);
    }
    for (int i = 0; i < shape.threads; ++i) {
        const ThreadState& thread = threads[i];
        hash.add(static_cast<uint64_t>(thread.life) | uint64_t{thread.wrote} << 8 |
                 uint64_t{thread.guessed} << 9 | uint64_t{thread.loading} << 10 |
                 uint64_t{thread.history_count} << 16 | uint64_t{thread.turn_history} << 24);
        hash.add(thread.read);
        hash.add(thread.view);
        if (thread.loading) hash.add(thread.turn_view);
        hash.add(thread.registers.data(), sizeof thread.registers);
        hash.add(thread.history.data(), thread.history_count * sizeof(uint64_t));
    }
    hash.add(static_cast<uint64_t>(deferral.state));
    if (open_deferral()) {
        hash.add(uint64_t{deferral.thread} | uint64_t{deferral.clock} << 8);
        hash.add(deferral.operation);
        hash.add(deferral.value);
        hash.add(deferral.view);
    }
    hash.add(error != nullptr);
    return hash.value;
}

bool State::after_deferred(int thread) const {
    return open_deferral() && (thread == deferral.thread ||
                               threads[thread].view.clock[deferral.thread] >= deferral.clock);
}

uint64_t State::read(int thread, const Operation& operation, int place) {
    View& view = threads[thread].view;
    const Message& message = words[operation.word].messages[place];
    view.place[operation.word] = static_cast<uint8_t>(place);
    if (operation.acquire) view.join(message.view);
    threads[thread].read |= uint64_t{1} << operation.word;
    return message.value;
}

bool State::may_write_at(int thread, int word, int place) const {
    if (place <= threads[thread].view.place[word]) return false;
    return place == words[word].count || words[word].messages[place].bound == 0;
}

template <class Change>
void State::change_views(Change change) {
    for (int i = 0; i < shape.threads; ++i) {
        change(threads[i].view);
        change(threads[i].turn_view);
    }
    for (int i = 0; i < shape.words; ++i) {
        for (int k = 0; k < words[i].count; ++k) change(words[i].messages[k].view);
    }
    change(deferral.view);
}

void State::begin_turn(int thread) {
    ThreadState& mine = threads[thread];
    mine.guessed = false;
    mine.loading = false;
    mine.read = 0;
    mine.turn_history = mine.history_count;
    mine.turn_view = mine.view;
}

void State::take_turn_back(int thread) {
    threads[thread].history_count = threads[thread].turn_history;
    threads[thread].view = threads[thread].turn_view;
    begin_turn(thread);
}

void State::insert(int word, int place, const Message& message) {
    WordState& state = words[word];
    require(state.count < kMessagesMax, "too many messages of one word");
    if (place < state.count) {
        change_views([&](View& view) { view.place[word] += view.place[word] >= place ? 1 : 0; });
        std::copy_backward(state.messages.begin() + place, state.messages.begin() + state.count,
                           state.messages.begin() + state.count + 1);
    }
    state.messages[place] = message;
    ++state.count;
    for (int i = 0; i < shape.threads; ++i) {
        ThreadState& thread = threads[i];
        if (thread.life == Life::kWaiting && (thread.read >> word & 1) != 0)
            thread.life = Life::kWoken;
    }
}

void State::write(int thread, const Operation& operation, int place) {
    insert(operation.word, place, Message{operation.operand, {}, 0});
    View& view = threads[thread].view;
    view.place[operation.word] = static_cast<uint8_t>(place);
    if (operation.release) {
        words[operation.word].messages[place].view = view;
        require(++view.clock[thread] != 0, "a clock ran over");
    }
    threads[thread].wrote = true;
    if (open_deferral() && deferral.operation.word == operation.word &&
        deferral.operation.kind == Kind::kLoad && deferral.value == operation.operand &&
        place > deferral.view.place[operation.word]) {
        keep_deferral(place);
    }
}

uint64_t State::update(int thread, const Operation& operation) {
    const int word = operation.word;
    const int place = words[word].count;
    View& view = threads[thread].view;
    const uint64_t old = newest(word);
    if (operation.acquire) view.join(words[word].messages[place - 1].view);
    view.place[word] = static_cast<uint8_t>(place);
    Message message{updated(operation, old), words[word].messages[place - 1].view, 1};
    if (operation.release) message.view.join(view);
    message.view.place[word] = static_cast<uint8_t>(place);
    insert(word, place, message);
    if (operation.release) require(++view.clock[thread] != 0, "a clock ran over");
    threads[thread].wrote = true;
    if (open_deferral() && deferral.operation.word == word &&
        deferral.operation.kind == Kind::kLoad && deferral.value == message.value) {
        keep_deferral(place);
    }
    return old;
}

void State::perform_deferred_update() {
    const Operation& operation = deferral.operation;
    const int place = words[operation.word].count;
    Message message{updated(operation, deferral.value),
                    words[operation.word].messages[place - 1].view, 1};
    if (operation.release) message.view.join(deferral.view);
    message.view.place[operation.word] = static_cast<uint8_t>(place);
    insert(operation.word, place, message);
    keep_deferral(place);
}

// The deferred operation took place at `place`: whoever knows that it is past knows of this message
// too.
void State::keep_deferral(int place) {
    const int word = deferral.operation.word;
    const int thread = deferral.thread, clock = deferral.clock;
    change_views([&](View& view) {
        if (view.clock[thread] < clock) return;
        view.place[word] = std::max(view.place[word], static_cast<uint8_t>(place));
    });
    deferral = Deferral{};
    deferral.state = Deferral::State::kKept;
}

bool State::read_cell(int thread, int cell, uint64_t& value) {
    CellState& state = cells[cell];
    const View& view = threads[thread].view;
    value = state.value;
    state.read_clock[thread] = view.clock[thread];
    return view.clock[state.writer] >= state.write_clock;
}

bool State::write_cell(int thread, int cell, uint64_t value) {
    CellState& state = cells[cell];
    const View& view = threads[thread].view;
    bool ordered = view.clock[state.writer] >= state.write_clock;
    for (int i = 0; i < shape.threads; ++i)
        ordered = ordered && view.clock[i] >= state.read_clock[i];
    state = CellState{value, static_cast<uint8_t>(thread), view.clock[thread], {}};
    return ordered;
}

void State::drop_oldest(int word, int count) {
    WordState& state = words[word];
    std::copy(state.messages.begin() + count, state.messages.begin() + state.count,
              state.messages.begin());
    state.count = static_cast<uint8_t>(state.count - count);
    state.messages[0].bound = 0;  // nothing comes before it any more
    change_views([&](View& view) {
        view.place[word] = static_cast<uint8_t>(std::max(0, view.place[word] - count));
    });
}

void State::trim() {
    for (int word = 0; word < shape.words; ++word) {
        int oldest = words[word].count - 1;
        for (int i = 0; i < shape.threads && oldest > 0; ++i) {
            if (threads[i].life != Life::kDone)
                oldest = std::min<int>(oldest, threads[i].turn_view.place[word]);
        }
        if (oldest > 0) drop_oldest(word, oldest);
    }
}

}  // namespace penstock::memory_model
