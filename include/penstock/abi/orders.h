// Every acquire and release of the shared protocols, by name, with its partner. The protocols are
// templates over the way to access a word. So the same code runs on a GPU, on the CPU backend and
// in the weak-memory explorer (tests/memory_model). The explorer weakens each site in turn and must
// then find a wrong execution.
//
// Chain of one page, in order: the frame's last readers -> unpin -> evict -> (the evictor requests
// another page) submit -> drain -> the worker writes the frame -> complete -> completion -> publish
// -> pin -> the next readers.
//
// Chain of a page that was written: the writer's bytes -> mark -> take marks -> submit -> drain ->
// the worker writes the file -> complete -> completion -> the dirty bit is cleared -> evict.
#pragma once

#include <cstdint>

#include "penstock/abi/qualifiers.h"

namespace penstock {

enum class Order : uint32_t { kRelaxed, kAcquire, kRelease, kAcquireRelease };

// Columns: name, order, partner (the site it synchronises with, and what that carries).
//
// Page entry (device/page_entry.cuh): kPin to kTakeFrame. Leaves of the page table
// (device/page_table.cuh): kRestore, kLeafWord. Finding a leaf is relaxed, because a thread that
// found one pins an entry of it, and a read-modify-write always sees the entry's newest state.
// Request queue (device/request_queue.cuh, src/request_queue/ring.h): kTicket to kRefill. Dirty
// pages (device/dirty_page.cuh): kMark to kEndWrite. Control ports (device/control_port.cuh):
// kAskHeld to kResponse. Blocks that leave (device/preemption_queue.cuh): the rest.
#define PENSTOCK_SITES(X)                                                                     \
    X(kRelaxed, kRelaxed, "")                                                                 \
    X(kPin, kAcquire, "kPublish: the page's bytes")                                           \
    X(kLook, kAcquire, "kPublish: the page's bytes, seen without a new pin; kClean")          \
    X(kUnpin, kRelease, "kEvict: my reads are over before the frame is filled again")         \
    X(kEvict, kAcquire, "kUnpin of every reader of the frame")                                \
    X(kPublish, kRelease, "kPin, kLook")                                                      \
    X(kFreeFrame, kRelease, "kTakeFrame: the frame's last readers are done")                  \
    X(kTakeFrame, kAcquire, "kFreeFrame")                                                     \
    X(kRestore, kRelease, "kPin: the directory no longer names the leaf's old owner")         \
    X(kLeafWord, kAcquireRelease,                                                             \
      "itself: the cutter of a file sees the leaf, or its installer sees the cut")            \
    X(kTicket, kAcquireRelease,                                                               \
      "itself: a team that saw a completion lets a slot's next lap be written")               \
    X(kSubmit, kRelease, "kDrain: the words, and that no thread reads the frame")             \
    X(kDrain, kAcquire, "kSubmit")                                                            \
    X(kClaimRun, kAcquireRelease,                                                             \
      "itself: slots are copied out before a later claim, hence before their next lap")       \
    X(kComplete, kRelease, "kCompletion: the frame's bytes")                                  \
    X(kCompletion, kAcquire, "kComplete")                                                     \
    X(kPulled, kRelease, "kRefill: the page was copied out of the host's memory")             \
    X(kRefill, kAcquire, "kPulled")                                                           \
    X(kMark, kRelease, "kTakeMarks: the granules' bytes, and the file's size")                \
    X(kTakeMarks, kAcquire, "kMark")                                                          \
    X(kDirty, kRelease, "kClean: the granules' bits")                                         \
    X(kClean, kAcquireRelease, "kDirty; kLook: a thread is about to look at the marks again") \
    X(kCountWrite, kRelease, "kTakeCounts: the page is in the cache")                         \
    X(kTakeCounts, kAcquire, "kCountWrite")                                                   \
    X(kBeginWrite, kAcquire, "kEndWrite: the page is clean, or its marks are set again")      \
    X(kEndWrite, kRelease, "kBeginWrite")                                                     \
    X(kAskHeld, kAcquireRelease,                                                              \
      "kUnlockPort: the size that was set; kLockPort: that a write-back has begun")           \
    X(kLockPort, kAcquire, "kUnlockPort")                                                     \
    X(kUnlockPort, kRelease, "kLockPort: what the lock guards may be written again")          \
    X(kCall, kRelease, "kServe: the payload")                                                 \
    X(kServe, kAcquire, "kCall")                                                              \
    X(kRespond, kRelease, "kResponse: the result and what it stands for")                     \
    X(kResponse, kAcquire, "kRespond")                                                        \
    X(kLeave, kRelease, "kSeeLeft: what the block has saved")                                 \
    X(kSeeLeft, kAcquire, "kLeave")                                                           \
    X(kReady, kRelease, "kResume: what the block has saved, through the watcher")             \
    X(kResume, kAcquire, "kReady")                                                            \
    X(kWatch, kAcquireRelease,                                                                \
      "itself: a block that found a watcher is counted before that watcher ends")             \
    X(kFinish, kAcquireRelease, "itself: the last block has what all blocks wrote")

namespace site_index {
enum : uint32_t {
#define PENSTOCK_SITE_ROW(name, order, partner) name,
    PENSTOCK_SITES(PENSTOCK_SITE_ROW)
#undef PENSTOCK_SITE_ROW
};
}  // namespace site_index

// A site is a number, so that device code can use the constants below: index << 2 | order.
enum class Site : uint32_t {};

namespace site {
#define PENSTOCK_SITE_ROW(name, order, partner)                     \
    constexpr Site name = static_cast<Site>(site_index::name << 2 | \
                                            static_cast<uint32_t>(Order::order));
PENSTOCK_SITES(PENSTOCK_SITE_ROW)
#undef PENSTOCK_SITE_ROW
}  // namespace site

PENSTOCK_BOTH constexpr Order order_of(Site site) {
    return static_cast<Order>(static_cast<uint32_t>(site) & 3);
}

// Name and partner of a site, for reports and for the explorer. Host only.
struct SiteDescription {
    Site site;
    const char* name;
    const char* partner;
};
inline constexpr SiteDescription kSiteDescriptions[] = {
#define PENSTOCK_SITE_ROW(name, order, partner) {site::name, #name, partner},
    PENSTOCK_SITES(PENSTOCK_SITE_ROW)
#undef PENSTOCK_SITE_ROW
};

}  // namespace penstock
