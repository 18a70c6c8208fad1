// The protocol of one page entry (abi/page_entry.h): every transition of the state machine, and
// nothing else.
//
// Templates over the word policy (device/atomic.cuh), so that GPU threads, the CPU backend, the
// host's stand-in and the weak-memory explorer run the same lines. Any thread may call; nothing
// here waits.
//
// Invariants:
//   1. Strangers may add and drop pins in any state, so no transition overwrites the pin bits.
//   2. A frame leaves its page (evict) only at zero pins: who holds a pin and saw VALID may read
//      the frame.
//   3. At most one entry names a frame in FETCHING, VALID or FAILED.
//   4. An entry in FETCHING becomes VALID or FAILED by whoever sees its completion word first.
//   5. An EMPTY entry names the frame and generation of its last fill, which no two fills share
//      until a frame's generations begin anew. So adopt, from the word that was seen, fails if the
//      page was in the cache in between.
//   6. Who is told VALID by pin, claim, claim_again or publish may read the frame: a
//      compare-exchange that fails reads relaxed, so what stands there instead is looked at once
//      more, with acquire.
#pragma once

#include "penstock/abi/orders.h"
#include "penstock/abi/page_entry.h"
#include "penstock/abi/request.h"

namespace penstock::device {

// Adds a pin; the entry as it was, with the new pin counted.
template <class Words>
PENSTOCK_BOTH uint64_t pin(typename Words::Word& entry) {
    return Words::fetch_add(entry, kPinUnit, site::kPin) + kPinUnit;
}

template <class Words>
PENSTOCK_BOTH void unpin(typename Words::Word& entry) {
    Words::fetch_sub(entry, kPinUnit, site::kUnpin);
}

// EMPTY -> FETCHING, with a frame that the caller owns. `bits`: kTouchedBit or 0, which the entry
// gets. False: somebody else was first; `seen` is what is there.
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

// EMPTY -> VALID or FETCHING, with a frame that the caller owns and that was asked for ahead.
// `completion` is its completion word (read at kCompletion), which says whether the bytes are
// there. `pins` of the caller's are dropped by it. False: somebody else was first, if he has gone
// since or not; `seen` is what is there, and the pins are kept.
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

// FAILED -> FETCHING: a page whose read failed is asked for again, into the frame it has.
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

// FETCHING -> VALID or FAILED, once `completion` (read at kCompletion) is that of this
// fill. Returns the newest entry; it is still FETCHING only if the completion is an older one.
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

// VALID or FAILED -> EMPTY if nobody holds it, it is clean and it still lies in `frame`, which the
// caller owns from then on.
template <class Words>
PENSTOCK_BOTH bool evict(typename Words::Word& entry, uint64_t seen, FrameIndex frame) {
    for (;;) {
        const PageState state = state_of(seen);
        if (state != PageState::kValid && state != PageState::kFailed) return false;
        if (frame_of(seen) != frame || (seen & (kPinMask | kDirtyBit)) != 0) return false;
        if (Words::compare_exchange(entry, seen, seen & kFillMask, site::kEvict)) return true;
    }
}

// EMPTY without pins -> RETIRED: nobody gets hold of this entry until it is restored.
template <class Words>
PENSTOCK_BOTH bool retire(typename Words::Word& entry) {
    uint64_t seen = Words::load(entry, site::kRelaxed);
    if ((seen & ~kFillMask) != 0) return false;
    return Words::compare_exchange(entry, seen, seen | static_cast<uint64_t>(PageState::kRetired),
                                   site::kRelaxed);
}

// EMPTY -> EMPTY, another word: what somebody has read for the page, and would adopt, is not to be
// taken. What the caller has stored before, they see. `number`: of no renewal before, of whatever
// page, since entries change hands. Returns the newest word: who finds it not EMPTY has the page in
// the cache.
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

// RETIRED -> EMPTY; pins that came meanwhile are kept.
template <class Words>
PENSTOCK_BOTH void restore(typename Words::Word& entry) {
    Words::fetch_and(entry, ~kStateMask, site::kRestore);
}

}  // namespace penstock::device
