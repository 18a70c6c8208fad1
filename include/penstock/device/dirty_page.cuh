// The protocol of a dirty page: marking what was written, writing it back, becoming clean; and
// nothing else.
//
// Templates over the word policy, as page_entry.cuh, so that the weak-memory explorer runs the same
// lines. Any thread may call; nothing here waits. Words: the page's entry, and of its frame the
// write-back word, the marks and their snapshot (abi/write_back.h).
//
//   clean --[mark, set_dirty]--> dirty --[begin_write_back]--> dirty, under way --[finish]-->
//   clean, or dirty where somebody has marked more meanwhile, or it could not be written
//
// Invariants:
//   1. Who marks holds a pin, and marks behind its bytes; the dirty bit comes behind the marks, and
//      both before the unpin. So a page without pins and dirty bit has no marks, and its frame may
//      go.
//   2. The dirty bit stays while a write-back is under way: so the frame stays, and a write-back
//      holds no pin and nobody's attention.
//   3. Of one page at most one write-back is under way, and the next one has later bytes.
//   4. A granule that changes while the host reads it is marked again.
//   5. A granule that could not be written is marked again, and its page is dirty.
//   6. Without its dirty bit a page is clean for who keeps it by a pin that was never given back
//      since it was marked, or evicts it; who only looks asks is_dirty().
#pragma once

#include "penstock/abi/orders.h"
#include "penstock/abi/request.h"
#include "penstock/abi/write_back.h"
#include "penstock/device/page_entry.cuh"

namespace penstock::device {

// Granules of one word of marks have been written, behind their bytes. By who pins the page.
template <class Words>
PENSTOCK_BOTH void mark(typename Words::Word& marks, uint64_t bits) {
    Words::fetch_or(marks, bits, site::kMark);
}

// Behind all marks of a write to the page. Whether it was clean.
template <class Words>
PENSTOCK_BOTH bool set_dirty(typename Words::Word& entry) {
    return (Words::fetch_or(entry, kDirtyBit, site::kDirty) & kDirtyBit) == 0;
}

// Nobody need pin a page to have it written: who has the write-back word looks whether the entry is
// VALID, dirty and, by `holds(entry)`, that of the page he means, in the frame whose words these
// are; which it stays until he gives the word back.
template <class Words, class Holds>
PENSTOCK_BOTH bool is_fixed(const typename Words::Word& entry, Holds holds) {
    const uint64_t now = Words::load(entry, site::kLook);
    return state_of(now) == PageState::kValid && (now & kDirtyBit) != 0 && holds(now);
}

// Takes the marks of a dirty page into its snapshot, if no write-back of it is under way; the
// caller owes the host a request of `number` then. False: one is, it is clean, or another page.
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

// Whether a page has been written to and its write-back is not over, as an entry tells that says so
// in `seen` if it is VALID; `word_of(frame)`: a frame's write-back word.
//
// The dirty bit alone does not tell: who ends a write-back takes it away, looks at the marks, and
// may set it again (finish_write_back). While he does, the word is not idle; and an idle word that
// is the same on both sides of a look says that whoever took the bit away was done with it.
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

// What begin_unless_held() did.
enum class BeginResult : uint32_t {
    kNot,   // the file is held, or as begin_write_back()
    kHeld,  // it has begun, and somebody holds the file: the caller withdraws it
    kYes,
};

// begin_write_back() for who may not if the page's file is held. Asked behind the begin: who locks
// the file from here on sees that it has begun, since both are read-modify-writes; and who asks
// sees what those have changed who had the lock before.
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

// What became of a write-back, for who ended it.
enum class Written : uint32_t {
    kNot,     // it is not over, another ends it, or it is of another page
    kClean,   // the page is clean, or was before it was written to again
    kDirty,   // it has been written to meanwhile
    kFailed,  // it is as it was
};

// Ends the write-back that `completion` (read at kCompletion) is of; `ended(result)` is called
// before anybody can see that it has.
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
        // Pinned, or it might be evicted between the two: clean it is only if nobody has marked it
        // since. Who marks it from here on makes it dirty himself.
        pin<Words>(entry);
        Words::fetch_and(entry, ~kDirtyBit, site::kClean);
        bool marked = false;
        for (uint32_t i = 0; i < mark_words && !marked; ++i)
            marked = Words::load(marks[i], site::kRelaxed) != 0;
        // Unless who marked it has made it dirty himself, and counted that: then it was clean.
        if (marked) marked = (Words::fetch_or(entry, kDirtyBit, site::kRelaxed) & kDirtyBit) == 0;
        unpin<Words>(entry);
        result = marked ? Written::kDirty : Written::kClean;
    }
    ended(result);
    Words::store(word, make_write_back(number, WritePhase::kIdle), site::kEndWrite);
    return result;
}

}  // namespace penstock::device
