// The ways that bytes of a file can take to memory, and why one of them was taken.
//
// Pure. These words appear in plans, in reports and in what users read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::extent {

enum class Route : uint8_t {
    kCached,  // through the OS page cache: copied out of it, or brought in by it first
    kDirect,  // bypassing it (O_DIRECT), into staging or straight into memory the host can address
    kPeer,    // DMA into GPU memory: PCI peer-to-peer memory or cuFile
};
inline constexpr size_t kRouteCount = 3;

// Why a range takes its route. The first group is what a plan chooses by cost; each of the second
// keeps a range off the direct route though cost might speak for it.
enum class RouteReason : uint8_t {
    kResident,   // cached: its pages are in the OS page cache and copying them is cheaper
    kMissing,    // direct: its pages are not in the OS page cache
    kSwallowed,  // direct: resident, but a direct transfer over it is cheaper than one round it
    kCheaperBuffered,  // cached: not resident, but too short for a direct transfer to pay
    kSmall,            // cached: the request is too small for planning to pay

    kDirty,             // its pages hold bytes that storage has not
    kUnaligned,         // head or tail that no aligned transfer covers
    kBufferMisaligned,  // offset and address disagree modulo the alignment of direct I/O
    kNotOffered,        // the file system has no direct I/O
    kRefused,           // direct I/O was tried and refused; the plan is bent, the file remembers
    kAsked,             // the caller or PENSTOCK_ROUTE named the route
    kKeep,              // the caller wants the bytes to stay in the OS page cache
};
inline constexpr size_t kRouteReasonCount = 12;

// "cached", "direct", "peer".
[[nodiscard]] constexpr const char* name(Route route) {
    switch (route) {
        case Route::kCached:
            return "cached";
        case Route::kDirect:
            return "direct";
        case Route::kPeer:
            return "peer";
    }
    return "";
}

// As reports say it: "resident", "missing", "swallowed" ...
[[nodiscard]] constexpr const char* name(RouteReason reason) {
    switch (reason) {
        case RouteReason::kResident:
            return "resident";
        case RouteReason::kMissing:
            return "missing";
        case RouteReason::kSwallowed:
            return "swallowed";
        case RouteReason::kCheaperBuffered:
            return "cheaper-buffered";
        case RouteReason::kSmall:
            return "small";
        case RouteReason::kDirty:
            return "dirty";
        case RouteReason::kUnaligned:
            return "unaligned";
        case RouteReason::kBufferMisaligned:
            return "buffer-misaligned";
        case RouteReason::kNotOffered:
            return "not-offered";
        case RouteReason::kRefused:
            return "refused";
        case RouteReason::kAsked:
            return "asked";
        case RouteReason::kKeep:
            return "keep";
    }
    return "";
}

}  // namespace penstock::extent
