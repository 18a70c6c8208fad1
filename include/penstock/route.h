// The routes that bytes take between a file and memory, the reasons for a route, and the states of
// the OS page cache. Plans and reports use these names.
//
// This header knows nothing of files or GPUs. Values only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

// The way that a byte range takes between a file and memory.
enum class Route : uint8_t {
    kCached,  // through the OS page cache: a read copies bytes out of it, after the OS has read
              // them in if needed; a write copies bytes into it
    kDirect,  // past the OS page cache (O_DIRECT), through staging buffers or directly between
              // storage and memory that the host can address
    kPeer,    // DMA into GPU memory: PCI peer-to-peer memory or cuFile
};
inline constexpr size_t kRouteCount = 3;

// Why a range takes its route. The first six reasons follow from costs; each of the others
// overrides or replaces costs. A report counts the first five by byte, even within one transfer.
// Where only the number of cached pages is known, it counts by that number.
enum class RouteReason : uint8_t {
    kResident,         // cached: its pages are in the OS page cache, and a copy is cheaper
    kMissing,          // direct: its pages are not in the OS page cache
    kSwallowed,        // direct: resident, but reading over it is cheaper than leaving it out
    kCheaperBuffered,  // cached: not resident, but too small for a direct transfer to pay
    kUnknown,  // direct, or cached if costs say so: the residency cannot be determined, and the
               // range counts as missing
    kSmall,    // cached: the request is too small for planning to pay

    kDirty,             // cached: its pages hold bytes that storage does not have yet
    kUnaligned,         // cached: a head or tail that no aligned transfer covers
    kBufferMisaligned,  // cached: offset and address disagree modulo the alignment of direct I/O
    kNotOffered,        // cached: the file system has no direct I/O
    kRefused,           // cached: direct I/O was refused before; the file remembers it
    kAsked,             // any: the caller or PENSTOCK_ROUTE named the route
    kKeep,              // cached: the caller wants the bytes to stay in the OS page cache
    kTimed,             // cached: recent reads of the file were as fast as copies, and its
                        // residency cannot be asked, or need not be; or this read measures that
    kNoPeer,            // cached or direct, by costs: `peer` was asked for and is not available
    kDeferred,          // cached: written to the OS page cache; the OS writes it to storage later
    kNoDrop,  // cached: `drop` was asked for, but the kernel has no calls for this file that leave
              // nothing: bytes that were not in the OS page cache may be there now
};
inline constexpr size_t kRouteReasonCount = 17;

// What the OS page cache holds of a range.
enum class Residency : uint8_t {
    kMissing,  // nothing
    kCached,   // all of it, equal to storage as far as the kernel tells
    kDirty,    // some of it, with bytes that storage does not have or that are being written to it
    kMixed,    // some of it; the report does not resolve which bytes
    kUnknown,  // not known
};
inline constexpr size_t kResidencyCount = 5;

// Returns "cached", "direct" or "peer".
[[nodiscard]] constexpr const char* name(Route route) {
    constexpr const char* kNames[kRouteCount] = {"cached", "direct", "peer"};
    return kNames[static_cast<size_t>(route)];
}

// Returns the name of a reason: "resident", "missing", "swallowed" ...
[[nodiscard]] constexpr const char* name(RouteReason reason) {
    constexpr const char* kNames[kRouteReasonCount] = {
        "resident", "missing",   "swallowed",         "cheaper-buffered", "unknown", "small",
        "dirty",    "unaligned", "buffer-misaligned", "not-offered",      "refused", "asked",
        "keep",     "timed",     "no-peer",           "deferred",         "no-drop"};
    return kNames[static_cast<size_t>(reason)];
}

// Returns "missing", "cached", "dirty", "mixed" or "unknown".
[[nodiscard]] constexpr const char* name(Residency state) {
    constexpr const char* kNames[kResidencyCount] = {"missing", "cached", "dirty", "mixed",
                                                     "unknown"};
    return kNames[static_cast<size_t>(state)];
}

}  // namespace penstock
