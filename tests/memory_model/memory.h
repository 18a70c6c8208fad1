// Shared memory as the C++ memory model lets threads see it: one state of it, and what an access
// does to it.
//
// Release/acquire views over the history of each word. Knows nothing of threads' code or of the
// search (explorer.h). A State is plain bytes, copied at each step of the search. One thread.
//
//   word      its messages in modification order; a read-modify-write is bound to the message that
//   it read view      for each word the newest message known, for each thread how much of it has
//   happened before load      any message that is not older than the reader's view; acquire joins
//   the message's view store     any place in the order behind the writer's view; release attaches
//   the writer's view update    reads the newest message (read-modify-write); carries on the view
//   of what it read, as a
//             release sequence does, also where it is relaxed itself
//   cell      non-atomic data: a read or write that the last write, or a write that some read, has
//   not
//             happened before is a race, hence an error
#pragma once

#include <array>
#include <cstdint>

namespace penstock::memory_model {

// What the largest scenario needs, with some room; overrunning one ends the test program with a
// message.
constexpr int kWordsMax = 40;
constexpr int kCellsMax = 8;
constexpr int kThreadsMax = 8;
constexpr int kMessagesMax = 48;  // of one word that some thread may still read
constexpr int kHistoryMax = 200;  // accesses of one iteration of a thread's body
constexpr int kRegistersMax = 8;

using Registers = std::array<uint64_t, kRegistersMax>;

struct View {
    std::array<uint8_t, kWordsMax> place{};    // index into the word's messages
    std::array<uint8_t, kThreadsMax> clock{};  // advanced by a thread at each of its releases

    void join(const View& other) {
        for (int i = 0; i < kWordsMax; ++i)
            place[i] = place[i] < other.place[i] ? other.place[i] : place[i];
        for (int i = 0; i < kThreadsMax; ++i)
            clock[i] = clock[i] < other.clock[i] ? other.clock[i] : clock[i];
    }
};

struct Message {
    uint64_t value = 0;
    View view;           // what an acquire that reads this learns; empty for a relaxed store
    uint64_t bound = 0;  // 1: written by an update of the message before; nothing comes between
};

struct WordState {
    uint8_t count = 0;
    std::array<Message, kMessagesMax> messages;
};

struct CellState {
    uint64_t value = 0;
    uint8_t writer = 0, write_clock = 0;
    std::array<uint8_t, kThreadsMax> read_clock{};
};

// A thread stops in front of each of these; the search decides when it happens and what it reads.
enum class Kind : uint8_t { kLoad, kStore, kAdd, kOr, kAnd, kExchangeIf, kChoose, kPause };

struct Operation {
    Kind kind = Kind::kLoad;
    uint8_t word = 0;
    bool acquire = false, release = false;
    uint64_t operand = 0;   // what is stored, added, …; how many choices
    uint64_t expected = 0;  // of kExchangeIf
};

constexpr bool is_update(Kind kind) {
    return kind == Kind::kAdd || kind == Kind::kOr || kind == Kind::kAnd ||
           kind == Kind::kExchangeIf;
}
uint64_t updated(const Operation& operation, uint64_t old);

enum class Life : uint8_t {
    kRunning,  // stands in front of `next`
    kWaiting,  // for a message in one of the words in `read`: in front of pause(), or its iteration
               // ended in kRetry
    kWoken,    // there is one
    kDone
};

struct ThreadState {
    Life life = Life::kRunning;
    bool wrote = false;  // in this iteration
    uint8_t history_count = 0;
    // The turn: what it did since it last changed something, began an iteration or waited. It only
    // loaded, so that the turn can be taken back.
    bool guessed = false;      // a load was deferred
    bool loading = false;      // it has loaded; see Explorer::alone
    uint8_t turn_history = 0;  // history_count when the turn began
    uint64_t read = 0;         // words loaded, as bits
    View turn_view;            // the view when the turn began
    View view;
    Operation next;
    Registers registers{};                        // at the start of the iteration
    std::array<uint64_t, kHistoryMax> history{};  // results of this iteration's accesses, in order
};

// A load or update without acquire whose value was guessed and which takes place later than its
// thread's next accesses. See explorer.h.
struct Deferral {
    enum class State : uint8_t { kNone, kOpen, kKept };
    State state = State::kNone;
    uint8_t thread = 0, clock = 0;
    Operation operation;
    uint64_t value = 0;  // guessed
    View view;           // of the thread when it passed the operation
};

struct Shape {
    int words = 0, cells = 0, threads = 0;
};

struct State {
    Shape shape;
    std::array<WordState, kWordsMax> words;
    std::array<CellState, kCellsMax> cells;
    std::array<ThreadState, kThreadsMax> threads;
    Deferral deferral;
    const char* error = nullptr;

    State() = default;
    State(const State&) = delete;
    State& operator=(const State& other);  // copies what is in use
    uint64_t hash() const;

    uint64_t newest(int word) const { return words[word].messages[words[word].count - 1].value; }
    bool open_deferral() const { return deferral.state == Deferral::State::kOpen; }

    void begin_turn(int thread);
    void take_turn_back(int thread);

    // Each does one access of `thread`; the place is one that the caller found to be allowed.
    uint64_t read(int thread, const Operation& operation, int place);
    void write(int thread, const Operation& operation, int place);
    uint64_t update(int thread, const Operation& operation);
    bool may_write_at(int thread, int word, int place) const;

    // Non-atomic data. False: a race.
    bool read_cell(int thread, int cell, uint64_t& value);
    bool write_cell(int thread, int cell, uint64_t value);

    // The deferred update takes place: allowed where the newest value is the guessed one.
    void perform_deferred_update();
    // Whether `thread` knows of the deferred operation as past: it may not see the word before it
    // was done.
    bool after_deferred(int thread) const;

    // Forgets messages that no thread can read any more: states that differ only in those are one.
    void trim();

private:
    void insert(int word, int place, const Message& message);
    template <class Change>
    void change_views(Change change);
    void keep_deferral(int place);
    void drop_oldest(int word, int count);
};

}  // namespace penstock::memory_model
