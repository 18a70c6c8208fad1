// A small concurrent program for the explorer, and the words that its threads use.
//
// A program is built once, then explored any number of times. Its threads' bodies run inside the
// explorer only. `Words` is the word policy of the production templates (device/atomic.cuh has the
// others): the same lines that run on a GPU run here. Knows nothing of how the search is done.
//
// Rules for a body, which is run again from its start for every step that it takes:
//   - it depends on its registers and on results of the accesses below, on nothing else;
//   - it owns nothing that must be destroyed: it is left by longjmp in front of each access;
//   - what it keeps from one iteration to the next is in its registers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "memory_model/memory.h"
#include "penstock/abi/orders.h"

namespace penstock::memory_model {

// How an iteration of a body ended.
enum class Next {
    kDone,   // the thread has ended
    kAgain,  // next iteration
    kRetry   // found nothing to do and wrote nothing: next iteration once a word that it loaded has
             // news
};

struct Word {
    uint8_t index = 0;
};
struct Cell {
    uint8_t index = 0;
};

struct Thread {
    std::string name;
    std::function<Next(Registers&)> body;
    bool server = false;  // may still be waiting when everything has ended
};

// What is left when nothing can move any more.
struct Outcome {
    const State* state;
    uint64_t value(Word word) const { return state->newest(word.index); }
    uint64_t register_of(int thread, int index) const {
        return state->threads[thread].registers[index];
    }
};

struct Program {
    std::string name;
    bool deferrals = true;  // explored with load buffering too (explorer.h): costs ten times as
                            // much
    std::vector<std::string> word_names;
    std::vector<uint64_t> word_values;
    std::vector<bool> word_updated;
    std::vector<std::string> cell_names;
    std::vector<uint64_t> cell_values;
    std::vector<Thread> threads;
    std::function<const char*(const Outcome&)> at_end;  // an error, or null

    // `updated`: read-modify-writes may be done to it. Stores to other words need no interleaving:
    // a load can still read what was there before.
    Word word(const std::string& word_name, uint64_t value = 0, bool updated = true);
    Cell cell(const std::string& cell_name, uint64_t value = 0);
    void thread(const std::string& thread_name, std::function<Next(Registers&)> body);
    void server(const std::string& thread_name, std::function<Next(Registers&)> body);
};

// Accesses to shared words, for production templates and for bodies.
struct Words {
    using Word = memory_model::Word;
    static uint64_t load(const Word& word, Site site);
    static void store(Word& word, uint64_t value, Site site);
    static uint64_t fetch_add(Word& word, uint64_t value, Site site);
    static uint64_t fetch_sub(Word& word, uint64_t value, Site site);
    static uint64_t fetch_or(Word& word, uint64_t value, Site site);
    static uint64_t fetch_and(Word& word, uint64_t value, Site site);
    static bool compare_exchange(Word& word, uint64_t& expected, uint64_t desired, Site site);
};

// Non-atomic data; a race ends the exploration with an error.
uint64_t read(Cell cell);
void write(Cell cell, uint64_t value);
// Any of 0 … count - 1: what the body may do either way.
uint64_t choose(uint64_t count);
// One turn of a loop that waits: goes on once a word loaded since the last turn or change has news.
// The turn must have changed nothing.
void pause();
// Executions in which it is false are left out: a bound where threads could chase each other for
// ever.
void assume(bool condition);
// `what` is static text.
void check(bool condition, const char* what);

}  // namespace penstock::memory_model
