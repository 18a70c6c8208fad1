// The ways that bytes take between a file and memory, why one of them was taken, and what the OS
// page cache held: the words of plans and reports.
//
// Knows nothing of files or GPUs. Values only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

enum class Route : uint8_t {
    kCached,  // through the OS page cache: copied out of it, or brought in by it first; written,
              // copied into it
    kDirect,  // bypassing it (O_DIRECT), by staging or straight from or into memory the host can
              // address
    kPeer,    // DMA into GPU memory: PCI peer-to-peer memory or cuFile
};
inline constexpr size_t kRouteCount = 3;

// Why a range takes its route. The first six are what costs say; each of the others decides
// against or without them. A report tells the first five apart by each byte, whatever lies beside
// it in one transfer; where only a count of cached pages is known, by that count.
enum class RouteReason : uint8_t {
    kResident,         // cached: its pages are in the OS page cache, and copying them is cheaper
    kMissing,          // direct: its pages are not in the OS page cache
    kSwallowed,        // direct: resident, but cheaper to pass over than to go round
    kCheaperBuffered,  // cached: not resident, but too little for a direct transfer to pay
    kUnknown,  // direct, or cached as costs say: nobody can tell what the OS page cache holds of
               // it, and it is taken for missing
    kSmall,    // cached: the request is too small for planning to pay

    kDirty,             // cached: its pages hold bytes that storage has not
    kUnaligned,         // cached: a head or tail that no aligned transfer covers
    kBufferMisaligned,  // cached: offset and address disagree modulo the alignment of direct I/O
    kNotOffered,        // cached: the file system has no direct I/O
    kRefused,           // cached: direct I/O was tried and refused; the file remembers
    kAsked,             // the caller or PENSTOCK_ROUTE named the route
    kKeep,              // cached: the caller wants the bytes to stay in the OS page cache
    kTimed,             // cached: its reads were lately as fast as copies; nobody may ask what is
                        // cached of it, or need not. Or one is, to find out
    kNoPeer,            // cached or direct, as costs say: `peer` was asked for and is not to be had
    kDeferred,          // cached: written, and left to the OS to bring to storage
    kNoDrop,  // cached: `drop` was asked for, and the kernel takes no calls here that leave
              // nothing: what was not seen in the OS page cache before may be there now
};
inline constexpr size_t kRouteReasonCount = 17;

// What the OS page cache holds of a range.
enum class Residency : uint8_t {
    kMissing,  // nothing
    kCached,   // all of it, the same as on storage as far as could be told
    kDirty,    // some of it, with bytes that storage has not or that are on their way there
    kMixed,    // some of it; which, was not looked into
    kUnknown,  // nobody could tell
};
inline constexpr size_t kResidencyCount = 5;

// "cached", "direct", "peer".
[[nodiscard]] constexpr const char* name(Route route) {
    constexpr const char* kNames[kRouteCount] = {"cached", "direct", "peer"};
    return kNames[static_cast<size_t>(route)];
}

// "resident", "missing", "swallowed" ...
[[nodiscard]] constexpr const char* name(RouteReason reason) {
    constexpr const char* kNames[kRouteReasonCount] = {
        "resident", "missing",   "swallowed",         "cheaper-buffered", "unknown", "small",
        "dirty",    "unaligned", "buffer-misaligned", "not-offered",      "refused", "asked",
        "keep",     "timed",     "no-peer",           "deferred",         "no-drop"};
    return kNames[static_cast<size_t>(reason)];
}

// "missing", "cached", "dirty", "mixed", "unknown".
[[nodiscard]] constexpr const char* name(Residency state) {
    constexpr const char* kNames[kResidencyCount] = {"missing", "cached", "dirty", "mixed",
                                                     "unknown"};
    return kNames[static_cast<size_t>(state)];
}

}  // namespace penstock
