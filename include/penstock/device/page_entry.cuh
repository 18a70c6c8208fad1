// The protocol of one page entry (abi/page_entry.h): every transition of the state machine, and
// nothing else.
//
// The functions are templates over the word policy (device/atomic.cuh). So GPU threads, the CPU
// backend, the host and the weak-memory explorer run the same lines. Any thread may call; nothing
// here waits.
//
// Invariants:
//   1. Other threads may add and drop pins in any state, so no transition overwrites the pin bits.
//   2. A frame leaves its page (evict) only at zero pins: a thread that holds a pin and saw VALID
//      may read the frame.
//   3. At most one entry names a frame in FETCHING, VALID or FAILED.
//   4. The first thread that sees the completion word of an entry in FETCHING makes it VALID or
//      FAILED.
//   5. An EMPTY entry names the frame and generation of its last fill. No two fills share them
//      until a frame's generations wrap. So adopt fails if the page was in the cache after the
//      caller saw the word.
//   6. A thread that gets VALID from pin, claim, claim_again or publish may read the frame. A
//      failed compare-exchange reads relaxed, so the new word is then loaded again with acquire.
#pragma once

#include "penstock/abi/orders.h"
#include "penstock/abi/page_entry.h"
#include "penstock/abi/request.h"

namespace penstock::device {

// Adds a pin. Returns the entry as it was, with the new pin counted.
template <class Words>
PENSTOCK_BOTH uint64_t pin(typename Words::Word& entry) {
    return Words::fetch_add(entry, kPinUnit, site::kPin) + kPinUnit;
}

template <class Words>
PENSTOCK_BOTH void unpin(typename Words::Word& entry) {
    Words::fetch_sub(entry, kPinUnit, site::kUnpin);
}

// EMPTY -> FETCHING, with a frame that the caller owns. `bits` is kTouchedBit or 0, and is set in
// the entry. Returns false if another thread was first; `seen` is then the newest entry.
template <class Words>
PENSTOCK_BOTH bool claim(typename Words::Word& entry, uint64_t& seen, FrameIndex frame,
                         uint32_t generation, uint64_t bits = 0) {
    while (state_of(seen) == PageState::kEmpty) {
        const uint64_t fetching = make_entry(PageState::kFetching, frame, generation, seen) | bits;
        if (Words::compare_exchange(entry, seen, fetching, site::kRelaxed)) {
            seen = fetching;
            return true;
        }
        seen = Words::load(entry, site::kLook);
    }
    return false;
}

// EMPTY -> VALID or FETCHING, with a frame that the caller owns and that was requested ahead.
// `completion` is the frame's completion word (read at kCompletion), which says whether the bytes
// have arrived. Drops `pins` pins of the caller. Returns false if another thread was first, even if
// the page was evicted since; then `seen` is the newest entry, and the pins are kept.
template <class Words>
PENSTOCK_BOTH bool adopt(typename Words::Word& entry, uint64_t& seen, FrameIndex frame,
                         uint32_t generation, Completion completion, uint64_t pins = 0) {
    const PageState state = completion_generation(completion) == generation ? PageState::kValid
                                                                            : PageState::kFetching;
    const uint64_t fill = seen & kFillMask;
    while (state_of(seen) == PageState::kEmpty && (seen & kFillMask) == fill) {
        const uint64_t adopted = make_entry(state, frame, generation, seen - pins * kPinUnit);
        if (Words::compare_exchange(entry, seen, adopted, site::kPublish)) {
            seen = adopted;
            return true;
        }
        seen = Words::load(entry, site::kLook);
    }
    return false;
}

// FAILED -> FETCHING: a page whose read failed is requested again, into the same frame.
template <class Words>
PENSTOCK_BOTH bool claim_again(typename Words::Word& entry, uint64_t& seen) {
    while (state_of(seen) == PageState::kFailed) {
        const uint32_t generation = (generation_of(seen) + 1) & kGenerationMax;
        const uint64_t fetching = make_entry(PageState::kFetching, frame_of(seen), generation,
                                             seen);
        if (Words::compare_exchange(entry, seen, fetching, site::kRelaxed)) {
            seen = fetching;
            return true;
        }
        seen = Words::load(entry, site::kLook);
    }
    return false;
}

// FETCHING -> VALID or FAILED, if `completion` (read at kCompletion) is that of this fill. Returns
// the newest entry. It is still FETCHING only if the completion is older.
template <class Words>
PENSTOCK_BOTH uint64_t publish(typename Words::Word& entry, uint64_t seen, Completion completion) {
    while (state_of(seen) == PageState::kFetching &&
           generation_of(seen) == completion_generation(completion)) {
        const PageState state = completion_error(completion) == 0 ? PageState::kValid
                                                                  : PageState::kFailed;
        const uint64_t published = (seen & ~kStateMask) | static_cast<uint64_t>(state);
        if (Words::compare_exchange(entry, seen, published, site::kPublish)) return published;
        seen = Words::load(entry, site::kLook);
    }
    return seen;
}

// VALID or FAILED -> EMPTY if the entry has no pins, is clean and still names `frame`. The caller
// owns the frame from then on.
template <class Words>
PENSTOCK_BOTH bool evict(typename Words::Word& entry, uint64_t seen, FrameIndex frame) {
    for (;;) {
        const PageState state = state_of(seen);
        if (state != PageState::kValid && state != PageState::kFailed) return false;
        if (frame_of(seen) != frame || (seen & (kPinMask | kDirtyBit)) != 0) return false;
        if (Words::compare_exchange(entry, seen, seen & kFillMask, site::kEvict)) return true;
    }
}

// EMPTY without pins -> RETIRED: no thread can use this entry until it is restored.
template <class Words>
PENSTOCK_BOTH bool retire(typename Words::Word& entry) {
    uint64_t seen = Words::load(entry, site::kRelaxed);
    if ((seen & ~kFillMask) != 0) return false;
    return Words::compare_exchange(entry, seen, seen | static_cast<uint64_t>(PageState::kRetired),
                                   site::kRelaxed);
}

// EMPTY -> EMPTY with another word, so that bytes which another thread has read for the page, and
// would adopt, are not used. That thread sees what the caller stored before. `number` differs from
// that of every earlier renewal, of whatever page, since entries are reused for other pages.
// Returns the newest word: if it is not EMPTY, the page is in the cache.
template <class Words>
PENSTOCK_BOTH uint64_t renew(typename Words::Word& entry, uint64_t number) {
    constexpr FrameIndex kNoFrame = (1u << limits::kFrameBits) - 1;
    const auto generation = static_cast<uint32_t>(number & kGenerationMax);
    uint64_t seen = Words::load(entry, site::kLook);
    while (state_of(seen) == PageState::kEmpty) {
        const uint64_t renewed = make_entry(PageState::kEmpty, kNoFrame, generation, seen);
        if (Words::compare_exchange(entry, seen, renewed, site::kPublish)) return renewed;
        seen = Words::load(entry, site::kLook);
    }
    return seen;
}

// RETIRED -> EMPTY; keeps pins that were added meanwhile.
template <class Words>
PENSTOCK_BOTH void restore(typename Words::Word& entry) {
    Words::fetch_and(entry, ~kStateMask, site::kRestore);
}

}  // namespace penstock::device
