// Every limit of the ground floor in one place, each with why it suffices. Plain numbers: no types,
// no code.
#pragma once

#include <cstdint>

namespace penstock::limits {

// Pages: a power of two. 4 KiB is the smallest unit of the OS page cache, 4 MiB the largest piece
// the copy engine gains from.
constexpr uint32_t kPageSizeMin = 4096;
constexpr uint32_t kPageSizeMax = 4u << 20;

// A *team* is what runs one piece of a call: a warp on a GPU, the block's one collective on the CPU
// backend. H200: 132 SMs x 64 warps = 8,448 resident; the largest part known has 10,000 and some.
constexpr uint32_t kTeamsMax = 10240;

// Pages that one team has in hand at once: 32 lanes with one each on a GPU, 64 in a loop on the CPU
// backend. Also the cap on a team's outstanding requests.
constexpr uint32_t kBatchPagesMax = 64;

// Views (gmmap) pinned at once in one file system.
constexpr uint32_t kViewsMax = 4096;

// Bits of the page entry: see abi/page_entry.h.
constexpr uint32_t kPinBits = 14;
constexpr uint32_t kGenerationBits = 17;
constexpr uint32_t kFrameBits = 28;  // 1 TiB of 4 KiB frames
static_assert(kTeamsMax + kViewsMax < (1u << kPinBits),
              "a team pins a page at most once, a view once: the pin count cannot overflow");

// A leaf of the page table: 512 entries, 4 KiB of device memory.
constexpr uint32_t kLeafEntries = 512;

// Files known at once (open, or closed with pages still cached), and the longest path a kernel may
// pass.
constexpr uint32_t kFilesMax = 4096;
constexpr uint32_t kPathSizeMax = 4096;  // with the final NUL, as PATH_MAX

// Control calls (gopen, gclose) in flight at once; more wait their turn for a resident owner.
constexpr uint32_t kPortsMax = 64;

// Demand rings: one shared, or one for each worker in the seed's static map.
constexpr uint32_t kRingsMax = 16;
constexpr uint32_t kWorkersMax = 16;
static_assert(kWorkersMax <= kRingsMax, "the static map gives every worker a ring of its own");

// Slots of the seed's queue (seed 000, section 3.3): block id & 127.
constexpr uint32_t kStaticSlots = 128;

// Requests a worker copies out and claims at once; also the most that are merged into one read.
constexpr uint32_t kDrainMax = 64;

// A wait ends with an error when the host's heartbeat has stood still for so long.
constexpr uint64_t kHeartbeatLimitNs = 4'000'000'000;
constexpr uint64_t kHeartbeatPeriodNs = 100'000'000;

}  // namespace penstock::limits
