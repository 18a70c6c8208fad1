// Counts of what calls did with each file, kept where no other block counts.
//
// A place has counts of a few files (abi/readahead.h), to which only its team adds. When another
// file needs the row, the counts move to the file's totals. Calls without a place add to the totals
// directly. The host adds up all places.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/atomic.cuh"

namespace penstock::device {

PENSTOCK_BOTH inline void add_count(uint64_t& word, uint64_t more) {
    if (more != 0) DeviceWords::fetch_add(word, more, site::kRelaxed);
}

// Adds to a count of the call's place.
template <class Team>
PENSTOCK_BOTH void add_own_count(uint64_t& word, uint64_t more) {
    if constexpr (Team::kAlone) {
        DeviceWords::store(word, DeviceWords::load(word, site::kRelaxed) + more, site::kRelaxed);
    } else {
        add_count(word, more);
    }
}

// Returns the counts to use for a file. `place` is the call's, or null.
PENSTOCK_BOTH inline FileCounts& counts_of(FileSystemState& system, ReadaheadPlace* place,
                                           uint32_t file_slot) {
    if (place != nullptr) {
        FileCounts& row = place->counts[file_slot % limits::kCountedMax];
        if (DeviceWords::load(row.whose, site::kRelaxed) == file_slot + 1) return row;
    }
    return system.totals[file_slot].counts;
}

// Counts pages of a team whose call has a place; `word` is a count of FileCounts.
template <class Team>
PENSTOCK_BOTH void count_pages(FileSystemState& system, ReadaheadPlace& place, uint32_t file_slot,
                               uint64_t FileCounts::*word, uint64_t more) {
    FileCounts& row = place.counts[file_slot % limits::kCountedMax];
    if (DeviceWords::load(row.whose, site::kRelaxed) == file_slot + 1) {
        add_own_count<Team>(row.*word, more);
    } else {
        add_count(system.totals[file_slot].counts.*word, more);
    }
}

// Prepares a file's row at a place, and counts the pages that a call wants. One lane of the call
// that holds `busy` calls it, before the call's teams begin.
PENSTOCK_BOTH inline void begin_counts(FileSystemState& system, ReadaheadPlace& place,
                                       uint32_t file_slot, uint64_t pages) {
    FileCounts& row = place.counts[file_slot % limits::kCountedMax];
    const uint64_t whose = DeviceWords::load(row.whose, site::kRelaxed);
    if (whose != file_slot + 1) {
        if (whose != 0) {
            FileCounts& total = system.totals[whose - 1].counts;
            for_each_count([&](auto word) {
                add_count(total.*word, DeviceWords::load(row.*word, site::kRelaxed));
                DeviceWords::store(row.*word, 0, site::kRelaxed);
            });
        }
        DeviceWords::store(row.whose, file_slot + 1, site::kRelaxed);
    }
    // No other thread adds to this word.
    DeviceWords::store(row.pages, DeviceWords::load(row.pages, site::kRelaxed) + pages,
                       site::kRelaxed);
}

}  // namespace penstock::device
