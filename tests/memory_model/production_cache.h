// The device half of the page cache (device/page_cache.cuh and all below it), compiled to run in
// the explorer.
//
// For cache_scenarios.cc and window_scenarios.cc. The lines are production's; what is exchanged by
// name: the word policies, which look up an address of the scenario's file system and ask the
// explorer; Wait::step, which pauses in the explorer; the number of entries in a leaf, 2 instead of
// 512; and the position in the grid. Words that a scenario does not name are constants: loads
// return what is there, updates do nothing and return it. The hands of CLOCK and of the leaf pool
// are counted by each team for itself.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "memory_model/program.h"

// A namespace of its own: the same functions may be linked as production compiled them.
#define device device_explored

#define kLeafEntries kLeafEntriesOfProduction
#include "penstock/abi/limits.h"
#undef kLeafEntries

namespace penstock::limits {
constexpr uint32_t kLeafEntries = 2;
}

#define DeviceWords DeviceWordsOfProduction
#define SystemWords SystemWordsOfProduction
#include "penstock/device/atomic.cuh"
#undef DeviceWords
#undef SystemWords

namespace penstock::memory_model {

// Which addresses are words of the program.
class AddressMap {
public:
    void add(const uint64_t& at, Word word) { entries_.push_back({&at, word}); }
    // A counter that each body counts for itself, from where `use` set it. Executions in which one
    // iteration takes more than `count_max` are left out.
    void counter(const uint64_t& at, uint64_t count_max) { counters_.push_back({&at, count_max}); }
    uint64_t count(const uint64_t& at) const;
    // Null: a constant.
    const Word* find(const uint64_t& at) const {
        for (const Entry& entry : entries_) {
            if (entry.at == &at) return &entry.word;
        }
        return nullptr;
    }

private:
    struct Entry {
        const uint64_t* at;
        Word word;
    };
    struct Counter {
        const uint64_t* at;
        uint64_t count_max;
    };
    std::vector<Entry> entries_;
    std::vector<Counter> counters_;
};

// Of the body that runs; it sets them when it begins an iteration.
inline thread_local const AddressMap* address_map = nullptr;
inline thread_local std::array<uint64_t, 4> counted{};
inline thread_local uint64_t count_first = 0;

inline void use(const AddressMap& map, uint64_t first = 0) {
    address_map = &map;
    counted = {};
    count_first = first;
}

inline uint64_t AddressMap::count(const uint64_t& at) const {
    for (size_t i = 0; i < counters_.size(); ++i) {
        if (counters_[i].at != &at) continue;
        assume(counted[i] < counters_[i].count_max);
        return count_first + counted[i]++;
    }
    return at;
}

struct AddressWords {
    using Word = uint64_t;
    static uint64_t load(const Word& at, Site site) {
        const auto* word = address_map->find(at);
        return word == nullptr ? at : Words::load(*word, site);
    }
    static void store(Word& at, uint64_t value, Site site) {
        if (const auto* word = address_map->find(at)) Words::store(copy(*word), value, site);
    }

protected:
    static Words::Word& copy(const Words::Word& word) { return const_cast<Words::Word&>(word); }
};

struct UpdatedAddressWords : AddressWords {
    static uint64_t fetch_add(Word& at, uint64_t value, Site site) {
        const auto* word = address_map->find(at);
        return word == nullptr ? address_map->count(at)
                               : Words::fetch_add(copy(*word), value, site);
    }
    static uint64_t fetch_sub(Word& at, uint64_t value, Site site) {
        const auto* word = address_map->find(at);
        return word == nullptr ? at : Words::fetch_sub(copy(*word), value, site);
    }
    static uint64_t fetch_or(Word& at, uint64_t value, Site site) {
        const auto* word = address_map->find(at);
        return word == nullptr ? at : Words::fetch_or(copy(*word), value, site);
    }
    static uint64_t fetch_and(Word& at, uint64_t value, Site site) {
        const auto* word = address_map->find(at);
        return word == nullptr ? at : Words::fetch_and(copy(*word), value, site);
    }
    static bool compare_exchange(Word& at, uint64_t& expected, uint64_t desired, Site site) {
        return Words::compare_exchange(copy(*address_map->find(at)), expected, desired, site);
    }
};

}  // namespace penstock::memory_model

namespace penstock::device {
using DeviceWords = memory_model::UpdatedAddressWords;
using SystemWords = memory_model::AddressWords;
}  // namespace penstock::device

#define Wait WaitOfProduction
#define notify notify_of_production
#include "penstock/device/wait.cuh"
#undef Wait
#undef notify

namespace penstock::device {

inline void notify(const uint64_t*) {}

class Wait {
public:
    explicit Wait(const FileSystemState&) {}
    int step(const uint64_t*, uint64_t) {
        memory_model::pause();
        return 0;
    }
    int step(const uint64_t*, uint64_t, const uint64_t*, uint64_t) {
        memory_model::pause();
        return 0;
    }
};

}  // namespace penstock::device

namespace penstock::memory_model {
struct BlockIndex {
    unsigned x, y, z;
};
constexpr BlockIndex kFirstBlock{0, 0, 0};
}  // namespace penstock::memory_model

#include "penstock/language/cuda.h"
#undef blockIdx
#undef gridDim
#define blockIdx (::penstock::memory_model::kFirstBlock)
#define gridDim (::penstock::memory_model::kFirstBlock)
#include "penstock/device/page_cache.cuh"

#undef device
#undef blockIdx
#undef gridDim
