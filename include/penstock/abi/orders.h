// Every acquire and release of the shared protocols, by name, with its partner. The protocols are templates
// over how a word is accessed, so the same code runs on a GPU, on the CPU backend and in the weak-memory
// explorer (tests/memory_model), which weakens each of these in turn and must then find a wrong execution.
//
// Chain of one page, in order: the frame's last readers -> unpin_release -> evict_acquire -> (the evictor
// asks for another page) submit_release -> drain_acquire -> the worker writes the frame -> complete_release
// -> completion_acquire -> publish_release -> pin_acquire -> the next readers.
#pragma once

#include <cstdint>

namespace penstock {

enum class Order : uint32_t { kRelaxed, kAcquire, kRelease, kAcquireRelease };

struct Site {
    const char* name;
    Order order;
    const char* partner;  // the site that this one synchronises with, and what that carries
};

namespace site {

constexpr Site kRelaxed{"relaxed", Order::kRelaxed, ""};

// Page entry (device/page_entry.cuh).
constexpr Site kPin{"pin_acquire", Order::kAcquire, "publish_release: the page's bytes"};
constexpr Site kLook{"look_acquire", Order::kAcquire, "publish_release: the page's bytes, seen without a new pin"};
constexpr Site kUnpin{"unpin_release", Order::kRelease, "evict_acquire: my reads are over before the frame is refilled"};
constexpr Site kEvict{"evict_acquire", Order::kAcquire, "unpin_release of every reader of the frame"};
constexpr Site kPublish{"publish_release", Order::kRelease, "pin_acquire, look_acquire"};
constexpr Site kFreeFrame{"free_frame_release", Order::kRelease, "take_frame_acquire: the frame's last readers"};
constexpr Site kTakeFrame{"take_frame_acquire", Order::kAcquire, "free_frame_release"};

// Leaves of the page table (device/page_table.cuh). Installing and finding one is relaxed: whoever found a
// leaf pins an entry of it, and a read-modify-write always sees the entry's newest state.
constexpr Site kRestore{"restore_release", Order::kRelease, "pin_acquire: the directory no longer names the old owner"};

// Request queue (device/request_queue.cuh, src/request_queue).
constexpr Site kTicket{"ticket_acquire_release", Order::kAcquireRelease,
                       "itself: a team that saw a completion lets the next lap of the slot be written"};
constexpr Site kSubmit{"submit_release", Order::kRelease, "drain_acquire: the words, and that the frame is free"};
constexpr Site kDrain{"drain_acquire", Order::kAcquire, "submit_release"};
constexpr Site kClaimRun{"claim_run_acquire_release", Order::kAcquireRelease,
                         "itself: the slots were copied out before a later claim, hence before their next lap"};
constexpr Site kComplete{"complete_release", Order::kRelease, "completion_acquire: the frame's bytes"};
constexpr Site kCompletion{"completion_acquire", Order::kAcquire, "complete_release"};


// Control ports (device/control_port.cuh): a team's lock on a port, and the call itself.
constexpr Site kLockPort{"lock_port_acquire", Order::kAcquire, "unlock_port_release"};
constexpr Site kUnlockPort{"unlock_port_release", Order::kRelease, "lock_port_acquire: the payload may be written again"};
constexpr Site kCall{"call_release", Order::kRelease, "serve_acquire: the payload"};
constexpr Site kServe{"serve_acquire", Order::kAcquire, "call_release"};
constexpr Site kRespond{"respond_release", Order::kRelease, "response_acquire: the result and what it stands for"};
constexpr Site kResponse{"response_acquire", Order::kAcquire, "respond_release"};

}  // namespace site
}  // namespace penstock
