// The protocol of a dirty page: marking what was written, writing it back, becoming clean; and
// nothing else.
//
// The functions are templates over the word policy, as in page_entry.cuh, so that the weak-memory
// explorer runs the same lines. Any thread may call; nothing here waits. Words: the page's entry,
// and its frame's write-back word, marks and snapshot (abi/write_back.h).
//
//   clean --[mark, set_dirty]--> dirty --[begin_write_back]--> dirty, under way --[finish]-->
//   clean, or dirty if more was marked meanwhile, or if the write failed
//
// Invariants:
//   1. A thread that marks holds a pin and marks after it has stored the bytes. It sets the dirty
//      bit after the marks, and both before the unpin. So a page without pins and dirty bit has no
//      marks, and its frame may be evicted.
//   2. The dirty bit stays set during a write-back. So the frame stays, and a write-back needs no
//      pin and no waiting thread.
//   3. One page has at most one write-back in flight, and the next one has later bytes.
//   4. A granule that changes while the host reads it is marked again.
//   5. A granule that could not be written is marked again, and its page is dirty.
//   6. A page without its dirty bit is clean for a thread that has pinned it continuously since it
//      was marked, and for a thread that evicts it. A thread that only looks calls is_dirty().
#pragma once

#include "penstock/abi/orders.h"
#include "penstock/abi/request.h"
#include "penstock/abi/write_back.h"
#include "penstock/device/page_entry.cuh"

namespace penstock::device {

// Marks granules of one word of marks as written, after their bytes are stored. The caller holds a
// pin of the page.
template <class Words>
PENSTOCK_BOTH void mark(typename Words::Word& marks, uint64_t bits) {
    Words::fetch_or(marks, bits, site::kMark);
}

// Sets the dirty bit, after all marks of a write to the page. Returns whether the page was clean.
template <class Words>
PENSTOCK_BOTH bool set_dirty(typename Words::Word& entry) {
    return (Words::fetch_or(entry, kDirtyBit, site::kDirty) & kDirtyBit) == 0;
}

// Returns whether the entry is VALID, dirty and, by `holds(entry)`, that of the intended page, in
// the frame whose words the caller uses. Requires that the caller has the write-back word: then all
// of this stays true until the caller gives the word back. So a write-back needs no pin.
template <class Words, class Holds>
PENSTOCK_BOTH bool is_fixed(const typename Words::Word& entry, Holds holds) {
    const uint64_t now = Words::load(entry, site::kLook);
    return state_of(now) == PageState::kValid && (now & kDirtyBit) != 0 && holds(now);
}

// Takes the marks of a dirty page into its snapshot, if no write-back of it is in flight. Returns
// true if so: the caller then owes the host a request with `number`. Returns false if a write-back
// is in flight, the page is clean, or the entry is another page's.
template <class Words, class Holds>
PENSTOCK_BOTH bool begin_write_back(typename Words::Word& entry, Holds holds,
                                    typename Words::Word& word, typename Words::Word* marks,
                                    typename Words::Word* snapshot, uint32_t mark_words,
                                    uint32_t& number) {
    uint64_t seen = Words::load(word, site::kRelaxed);
    if (phase_of(seen) != WritePhase::kIdle) return false;
    number = static_cast<uint32_t>((number_of(seen) + 1) & kGenerationMax);
    const uint64_t under_way = make_write_back(number, WritePhase::kUnderWay);
    if (!Words::compare_exchange(word, seen, under_way, site::kBeginWrite)) return false;
    if (!is_fixed<Words>(entry, holds)) {
        Words::store(word, seen, site::kEndWrite);
        return false;
    }
    for (uint32_t i = 0; i < mark_words; ++i)
        Words::store(snapshot[i], Words::fetch_and(marks[i], 0, site::kTakeMarks), site::kRelaxed);
    return true;
}

// Returns whether a page has been written to and its write-back has not ended. `seen` becomes the
// newest entry; a page that is not VALID is not dirty. `word_of(frame)` is a frame's write-back
// word.
//
// The dirty bit alone does not tell. A thread that ends a write-back clears it, checks the marks,
// and may set it again (finish_write_back). Meanwhile the word is not idle. An idle word that is
// the same before and after the second load of the entry shows that such a thread had finished.
template <class Words, class WordOf>
PENSTOCK_BOTH bool is_dirty(const typename Words::Word& entry, WordOf word_of, uint64_t& seen) {
    for (;;) {
        seen = Words::load(entry, site::kLook);
        if (state_of(seen) != PageState::kValid) return false;
        if ((seen & kDirtyBit) != 0) return true;
        const typename Words::Word& word = word_of(frame_of(seen));
        const uint64_t before = Words::load(word, site::kBeginWrite);
        if (phase_of(before) != WritePhase::kIdle) return true;
        const uint64_t again = Words::load(entry, site::kLook);
        if (state_of(again) != PageState::kValid || (again & kDirtyBit) != 0 ||
            frame_of(again) != frame_of(seen))
            continue;
        if (Words::load(word, site::kRelaxed) == before) return false;
    }
}

// The result of begin_unless_held().
enum class BeginResult : uint32_t {
    kNot,   // the file is held, or as begin_write_back()
    kHeld,  // it has begun, but the file is held by now: the caller withdraws it
    kYes,
};

// Does begin_write_back() unless the page's file is held. It checks that after the begin. A thread
// that locks the file later sees that the write-back has begun, since both are read-modify-writes.
// The check also acquires what earlier lock holders changed.
template <class Words, class Holds>
PENSTOCK_BOTH BeginResult begin_unless_held(typename Words::Word& entry, Holds holds,
                                            typename Words::Word& word, typename Words::Word* marks,
                                            typename Words::Word* snapshot, uint32_t mark_words,
                                            typename Words::Word& held, uint32_t& number) {
    if (Words::load(held, site::kRelaxed) != 0) return BeginResult::kNot;
    if (!begin_write_back<Words>(entry, holds, word, marks, snapshot, mark_words, number))
        return BeginResult::kNot;
    return Words::fetch_or(held, 0, site::kAskHeld) != 0 ? BeginResult::kHeld : BeginResult::kYes;
}

// The result of a write-back, for the thread that ended it.
enum class Written : uint32_t {
    kNot,     // it has not ended, another thread ends it, or it is of another page
    kClean,   // the page is clean, or was before it was written to again
    kDirty,   // the page was written to meanwhile
    kFailed,  // the page is dirty as before
};

// Ends the write-back to which `completion` (read at kCompletion) belongs. Calls `ended(result)`
// before any other thread can see the end.
template <class Words, class Holds, class Ended>
PENSTOCK_BOTH Written finish_write_back(typename Words::Word& entry, Holds holds,
                                        typename Words::Word& word, typename Words::Word* marks,
                                        const typename Words::Word* snapshot, uint32_t mark_words,
                                        Completion completion, Ended ended) {
    const uint32_t number = completion_generation(completion);
    uint64_t seen = make_write_back(number, WritePhase::kUnderWay);
    const uint64_t ending = make_write_back(number, WritePhase::kEnding);
    if (!Words::compare_exchange(word, seen, ending, site::kRelaxed)) return Written::kNot;
    if (!is_fixed<Words>(entry, holds)) {
        Words::store(word, make_write_back(number, WritePhase::kUnderWay), site::kEndWrite);
        return Written::kNot;
    }
    Written result = Written::kFailed;
    if (completion_error(completion) != 0) {
        for (uint32_t i = 0; i < mark_words; ++i) {
            const uint64_t bits = Words::load(snapshot[i], site::kRelaxed);
            if (bits != 0) Words::fetch_or(marks[i], bits, site::kMark);
        }
    } else {
        // The pin prevents eviction between the two steps. The page is clean only if no thread has
        // marked it since. A thread that marks it from here on sets the dirty bit itself.
        pin<Words>(entry);
        Words::fetch_and(entry, ~kDirtyBit, site::kClean);
        bool marked = false;
        for (uint32_t i = 0; i < mark_words && !marked; ++i)
            marked = Words::load(marks[i], site::kRelaxed) != 0;
        // If the marking thread has set the bit itself, and counted that, the page was clean.
        if (marked) marked = (Words::fetch_or(entry, kDirtyBit, site::kRelaxed) & kDirtyBit) == 0;
        unpin<Words>(entry);
        result = marked ? Written::kDirty : Written::kClean;
    }
    ended(result);
    Words::store(word, make_write_back(number, WritePhase::kIdle), site::kEndWrite);
    return result;
}

}  // namespace penstock::device
