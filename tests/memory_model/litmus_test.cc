// Goal: the explorer finds what the C++ memory model allows and nothing that it forbids, on the
// litmus tests of the literature, each with the set of all outcomes.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "memory_model/explorer.h"

namespace penstock::memory_model {
namespace {

constexpr Site kRelaxed = site::kRelaxed;
constexpr Site kAcquire = static_cast<Site>(Order::kAcquire);  // sites of no protocol
constexpr Site kRelease = static_cast<Site>(Order::kRelease);
constexpr Site kBoth = static_cast<Site>(Order::kAcquireRelease);

using Outcomes = std::set<std::vector<uint64_t>>;

// The values of the named registers (thread, index) at the end of every execution.
Outcomes outcomes(const Program& program, const std::vector<std::pair<int, int>>& registers) {
    Outcomes found;
    Options options;
    options.on_end = [&](const Outcome& outcome) {
        std::vector<uint64_t> values;
        for (const auto& [thread, index] : registers)
            values.push_back(outcome.register_of(thread, index));
        found.insert(values);
    };
    const Result result = explore(program, options);
    EXPECT_TRUE(result.passed()) << result.error << "\n" << result.trace;
    return found;
}

Outcomes message_passing(Site store, Site load) {
    Program program;
    Word x = program.word("x", 0, false), y = program.word("y", 0, false);
    program.thread("writer", [=](Registers&) mutable {
        Words::store(x, 1, kRelaxed);
        Words::store(y, 1, store);
        return Next::kDone;
    });
    program.thread("reader", [=](Registers& r) {
        r[0] = Words::load(y, load);
        r[1] = Words::load(x, kRelaxed);
        return Next::kDone;
    });
    return outcomes(program, {{1, 0}, {1, 1}});
}

TEST(Litmus, MessagePassing) {
    const Outcomes all{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    const Outcomes ordered{{0, 0}, {0, 1}, {1, 1}};
    EXPECT_EQ(message_passing(kRelease, kAcquire), ordered);
    EXPECT_EQ(message_passing(kRelaxed, kAcquire), all);
    EXPECT_EQ(message_passing(kRelease, kRelaxed), all);
    EXPECT_EQ(message_passing(kRelaxed, kRelaxed), all);
}

TEST(Litmus, MessagePassingOfDataIsARaceWithoutOrder) {
    for (const bool ordered : {true, false}) {
        Program program;
        Word flag = program.word("flag");
        const Cell data = program.cell("data");
        program.thread("writer", [=](Registers&) mutable {
            write(data, 7);
            Words::store(flag, 1, ordered ? kRelease : kRelaxed);
            return Next::kDone;
        });
        program.thread("reader", [=](Registers&) {
            if (Words::load(flag, kAcquire) == 0) return Next::kRetry;
            check(read(data) == 7, "old data");
            return Next::kDone;
        });
        const Result result = explore(program);
        EXPECT_EQ(result.passed(), ordered) << result.error;
    }
}

TEST(Litmus, StoreBuffering) {
    Program program;
    Word x = program.word("x", 0, false), y = program.word("y", 0, false);
    const auto side = [](Word mine, Word other) {
        return [=](Registers& r) mutable {
            Words::store(mine, 1, kRelease);
            r[0] = Words::load(other, kAcquire);
            return Next::kDone;
        };
    };
    program.thread("a", side(x, y));
    program.thread("b", side(y, x));
    EXPECT_EQ(outcomes(program, {{0, 0}, {1, 0}}), (Outcomes{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
}

// `independent`: the stored value does not depend on what was loaded.
Outcomes load_buffering(Site load, Site store, bool independent_a, bool independent_b) {
    Program program;
    Word x = program.word("x", 0, false), y = program.word("y", 0, false);
    const auto side = [=](Word from, Word to, bool independent) {
        return [=](Registers& r) mutable {
            r[0] = Words::load(from, load);
            if (independent || r[0] != 0) Words::store(to, 1, store);
            return Next::kDone;
        };
    };
    program.thread("a", side(x, y, independent_a));
    program.thread("b", side(y, x, independent_b));
    return outcomes(program, {{0, 0}, {1, 0}});
}

TEST(Litmus, LoadBuffering) {
    const Outcomes all{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    const Outcomes ordered{{0, 0}, {0, 1}, {1, 0}};
    EXPECT_EQ(load_buffering(kRelaxed, kRelaxed, true, true), all);
    EXPECT_EQ(load_buffering(kAcquire, kRelaxed, true, true), ordered);
    EXPECT_EQ(load_buffering(kRelaxed, kRelease, true, true), all)
        << "release without acquire orders nothing";
    EXPECT_EQ(load_buffering(kAcquire, kRelease, true, true), ordered);
    EXPECT_EQ(load_buffering(kRelaxed, kRelaxed, false, true), (Outcomes{{0, 0}, {1, 0}, {1, 1}}));
    EXPECT_EQ(load_buffering(kRelaxed, kRelaxed, false, false), (Outcomes{{0, 0}}))
        << "out of thin air";
}

TEST(Litmus, LoadBufferingOfUpdates) {
    for (const bool ordered : {false, true}) {
        Program program;
        Word x = program.word("x"), y = program.word("y");
        Site site = ordered ? kBoth : kRelaxed;
        program.thread("a", [=](Registers& r) mutable {
            r[0] = Words::fetch_add(x, 1, site);
            Words::fetch_add(y, 1, site);
            return Next::kDone;
        });
        program.thread("b", [=](Registers& r) mutable {
            r[0] = Words::fetch_add(y, 1, site);
            Words::fetch_add(x, 1, site);
            return Next::kDone;
        });
        Outcomes expected{{0, 0}, {0, 1}, {1, 0}};
        if (!ordered) expected.insert({1, 1});
        EXPECT_EQ(outcomes(program, {{0, 0}, {1, 0}}), expected);
    }
}

TEST(Litmus, IndependentReadsOfIndependentWrites) {
    Program program;
    Word x = program.word("x", 0, false), y = program.word("y", 0, false);
    const auto writer = [](Word word) {
        return [=](Registers&) mutable {
            Words::store(word, 1, kRelease);
            return Next::kDone;
        };
    };
    const auto reader = [](Word first, Word second) {
        return [=](Registers& r) {
            r[0] = Words::load(first, kAcquire);
            r[1] = Words::load(second, kAcquire);
            return Next::kDone;
        };
    };
    program.thread("x=1", writer(x));
    program.thread("y=1", writer(y));
    program.thread("xy", reader(x, y));
    program.thread("yx", reader(y, x));
    const Outcomes found = outcomes(program, {{2, 0}, {2, 1}, {3, 0}, {3, 1}});
    EXPECT_EQ(found.size(), 16u);
    EXPECT_TRUE(found.contains({1, 0, 1, 0}));
}

TEST(Litmus, CoherenceOfReads) {
    Program program;
    Word x = program.word("x", 0, false);
    program.thread("writer", [=](Registers&) mutable {
        Words::store(x, 1, kRelaxed);
        Words::store(x, 2, kRelaxed);
        return Next::kDone;
    });
    program.thread("reader", [=](Registers& r) {
        r[0] = Words::load(x, kRelaxed);
        r[1] = Words::load(x, kRelaxed);
        return Next::kDone;
    });
    EXPECT_EQ(outcomes(program, {{1, 0}, {1, 1}}),
              (Outcomes{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}}));
}

TEST(Litmus, ReadersAgreeOnTheOrderOfWritesToOneWord) {
    Program program;
    Word x = program.word("x", 0, false);
    for (const uint64_t value : {1, 2}) {
        program.thread("writer", [=](Registers&) mutable {
            Words::store(x, value, kRelaxed);
            return Next::kDone;
        });
    }
    for (int i = 0; i < 2; ++i) {
        program.thread("reader", [=](Registers& r) {
            r[0] = Words::load(x, kRelaxed);
            r[1] = Words::load(x, kRelaxed);
            return Next::kDone;
        });
    }
    const Outcomes found = outcomes(program, {{2, 0}, {2, 1}, {3, 0}, {3, 1}});
    EXPECT_TRUE(found.contains({1, 2, 1, 2}));
    EXPECT_TRUE(found.contains({2, 1, 2, 1}));
    EXPECT_FALSE(found.contains({1, 2, 2, 1}));
    EXPECT_FALSE(found.contains({2, 1, 1, 2}));
}

TEST(Litmus, WritesToTwoWordsInBothOrders) {  // 2+2W: each first write may be the last of its word
    Program program;
    Word x = program.word("x", 0, false), y = program.word("y", 0, false);
    const auto side = [](Word first, Word second) {
        return [=](Registers&) mutable {
            Words::store(first, 1, kRelaxed);
            Words::store(second, 2, kRelaxed);
            return Next::kDone;
        };
    };
    program.thread("a", side(x, y));
    program.thread("b", side(y, x));
    Outcomes found;
    Options options;
    options.on_end = [&](const Outcome& outcome) {
        found.insert({outcome.value(x), outcome.value(y)});
    };
    EXPECT_TRUE(explore(program, options).passed());
    EXPECT_EQ(found, (Outcomes{{1, 1}, {1, 2}, {2, 1}, {2, 2}}));
}

// `between` changes the released word once more before the reader sees it.
Outcomes release_sequence(bool update) {
    Program program;
    Word x = program.word("x", 0, false), y = program.word("y");
    program.thread("writer", [=](Registers&) mutable {
        Words::store(x, 1, kRelaxed);
        Words::store(y, 1, kRelease);
        return Next::kDone;
    });
    program.thread("between", [=](Registers& r) mutable {
        if (update) {
            r[0] = Words::fetch_add(y, 1, kRelaxed);
        } else {
            r[0] = Words::load(y, kRelaxed);
            if (r[0] == 1) Words::store(y, 2, kRelaxed);
        }
        return Next::kDone;
    });
    program.thread("reader", [=](Registers& r) {
        r[0] = Words::load(y, kAcquire);
        r[1] = Words::load(x, kRelaxed);
        return Next::kDone;
    });
    return outcomes(program, {{1, 0}, {2, 0}, {2, 1}});
}

TEST(Litmus, ReleaseSequencesGoOnThroughUpdatesOnly) {
    const Outcomes updated = release_sequence(true);
    EXPECT_TRUE(updated.contains({1, 2, 1}));
    EXPECT_FALSE(updated.contains({1, 2, 0}))
        << "a relaxed update carries on the release before it";
    const Outcomes stored = release_sequence(false);
    EXPECT_TRUE(stored.contains({1, 2, 0}))
        << "a store of another thread ends the release sequence";
}

TEST(Litmus, UpdatesAreAtomic) {
    Program program;
    Word x = program.word("x");
    for (int i = 0; i < 3; ++i) {
        program.thread("adder", [=](Registers& r) mutable {
            r[0] = Words::fetch_add(x, 1, kRelaxed);
            return Next::kDone;
        });
    }
    program.at_end = [=](const Outcome& outcome) {
        return outcome.value(x) == 3 ? nullptr : "an add was lost";
    };
    EXPECT_EQ(outcomes(program, {{0, 0}, {1, 0}, {2, 0}}),
              (Outcomes{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}));
}

TEST(Litmus, OneOfTwoCompareExchangesWins) {
    Program program;
    Word x = program.word("x");
    for (const uint64_t value : {1, 2}) {
        program.thread("claimer", [=](Registers& r) mutable {
            uint64_t expected = 0;
            r[0] = Words::compare_exchange(x, expected, value, kRelaxed) ? 1 : 0;
            r[1] = expected;
            return Next::kDone;
        });
    }
    EXPECT_EQ(outcomes(program, {{0, 0}, {0, 1}, {1, 0}, {1, 1}}),
              (Outcomes{{1, 0, 0, 1}, {0, 2, 1, 0}}));
}

// A lock by compare-exchange round a counter that is not atomic.
Result explore_mutex(Site lock, Site unlock, bool atomic_lock, bool sequential) {
    Program program;
    Word mutex = program.word("mutex");
    const Cell counter = program.cell("counter");
    for (int i = 0; i < 2; ++i) {
        program.thread("locker", [=](Registers&) mutable {
            if (atomic_lock) {
                uint64_t expected = 0;
                if (!Words::compare_exchange(mutex, expected, 1, lock)) return Next::kRetry;
            } else {
                if (Words::load(mutex, lock) != 0) return Next::kRetry;
                Words::store(mutex, 1, kRelaxed);
            }
            write(counter, read(counter) + 1);
            Words::store(mutex, 0, unlock);
            return Next::kDone;
        });
    }
    Options options;
    options.sequential = sequential;
    return explore(program, options);
}

TEST(Litmus, BrokenMutexesAreFound) {
    EXPECT_TRUE(explore_mutex(kAcquire, kRelease, true, false).passed());
    EXPECT_TRUE(explore_mutex(kAcquire, kRelease, true, true).passed());
    EXPECT_FALSE(explore_mutex(kRelaxed, kRelease, true, false).passed());
    EXPECT_FALSE(explore_mutex(kAcquire, kRelaxed, true, false).passed());
    EXPECT_FALSE(explore_mutex(kAcquire, kRelease, false, false).passed()) << "test and set apart";
    EXPECT_FALSE(explore_mutex(kAcquire, kRelease, false, true).passed()) << "test and set apart";
}

TEST(Litmus, AWaitThatCannotEndIsFound) {
    Program program;
    Word x = program.word("x", 0, false);
    program.thread("waiter", [=](Registers&) {
        return Words::load(x, kAcquire) == 0 ? Next::kRetry : Next::kDone;
    });
    EXPECT_EQ(explore(program).error, "waiter waits for ever");
}

}  // namespace
}  // namespace penstock::memory_model
