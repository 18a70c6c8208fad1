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
constexpr uint32_t kWarpsPerMultiprocessor = 64;  // resident at most, on any GPU so far
constexpr uint32_t kWarpsPerBlock = 32;

// Pages that one team has in hand at once: 32 lanes with one each on a GPU, 64 in a loop on the CPU
// backend. Also the cap on a team's outstanding requests.
constexpr uint32_t kBatchPagesMax = 64;

// Views (gmmap) pinned at once in one file system.
constexpr uint32_t kViewsMax = 4096;

// Reads and writes that a team may have begun and not waited for (gread_async, gwrite_async): past
// it -EAGAIN. Over all teams no more than kAsyncTableMax, so that the leaves that they hold stay
// 128 MiB.
constexpr uint32_t kAsyncCallsMax = 4;
constexpr uint32_t kAsyncTableMax = 16384;
// Pages that one of them holds, a write only those that it begins and ends in; what lies beyond is
// read when it is waited for. 2 MiB of 4 KiB pages, in two leaves of the page table at most.
constexpr uint32_t kAsyncPagesMax = 512;
// Pages that all of them hold: also the requests that the demand ring has room for beside those of
// calls that wait. 1 GiB of 4 KiB pages.
constexpr uint32_t kAsyncFramesMax = 1u << 18;
// They hold a page together at most so often; who would be one more asks for it when it waits.
constexpr uint32_t kAsyncPinsMax = 2046;

// Bits of the page entry: see abi/page_entry.h.
constexpr uint32_t kPinBits = 14;
constexpr uint32_t kGenerationBits = 17;
constexpr uint32_t kFrameBits = 28;  // 1 TiB of 4 KiB frames
static_assert(kTeamsMax + kViewsMax + kAsyncPinsMax + 1 < (1u << kPinBits),
              "a call of a team pins a page at most once, a view once, and one who ends its "
              "write-back: the pin count cannot overflow");

// A leaf of the page table: 512 entries, 4 KiB of device memory.
constexpr uint32_t kLeafEntries = 512;
static_assert(kAsyncPagesMax <= kLeafEntries, "so many adjacent pages lie in two leaves");

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

// A readahead window: so many pages at most, in as many adjacent frames, of at most so many bytes.
// What a stream has is at most kWindowsMax of them: 4 MiB of 4 KiB pages ahead of its reader, and
// the 1 MiB that it is at; on a device that the host cannot address, where windows do not wait for
// storage by themselves, kSentWindowsMax. A block follows kStreamsMax streams.
constexpr uint32_t kWindowPagesMax = 64;
constexpr uint64_t kWindowSizeMax = 1u << 20;
constexpr uint16_t kWindowsMax = 20;
constexpr uint32_t kSentWindowsMax = 4;
constexpr uint32_t kStreamsMax = 4;
static_assert(kWindowPagesMax <= 64, "a window's pages that are left are one word");
static_assert(kWindowPagesMax < (1u << 12), "a request's page count");

// Files that a place counts for at once: as many as it follows streams.
constexpr uint32_t kCountedMax = kStreamsMax;

// Frames that all windows together may hold, beside a quarter of the cache: 1 GiB of 4 KiB pages.
// Also the most requests that the background ring must have room for, as each names a frame of a
// window.
constexpr uint32_t kWindowFramesMax = 1u << 18;

// Requests of gadvise(kWillNeed) that one team may have on their way, of a window's pages each; the
// background ring has room for them beside those of windows.
constexpr uint32_t kAdvisedMax = 4;

// Dirty bits are kept for so many bytes: what lies between two writes of other processors. One word
// of them is 4 KiB, the smallest page.
constexpr uint32_t kGranuleSize = 64;
static_assert(kPageSizeMin % (64 * kGranuleSize) == 0, "a page has whole words of dirty granules");
// Write-backs under way at once: each names a frame, and the background ring has room for them.
constexpr uint32_t kWriteBacksMax = 1u << 14;
// Words that write sequences are counted in. Groups of 64 pages share them where there are more:
// who shares one reads a page again that he need not.
constexpr uint32_t kSequencesMax = 1u << 16;
// Words of the directory that a file has which is open for writing, at least: room to grow to a
// million pages.
constexpr uint32_t kGrowingWordsMin = 2048;
// How long who opens a file waits for its last writer, who drops what could not be written: that
// takes a walk over the file's pages, unless the writer has stopped in the midst of it.
constexpr uint64_t kGivenUpNs = 10'000'000'000;

// Frames that a block takes at a time for its ring (seed 000, section 5), where the cache has
// enough of them.
constexpr uint32_t kChunkFramesMax = 256;
// Frames that a block keeps to while it reads what is read once (ReadOnce), in chunks:
// twice the windows that a stream may have, but at most half of its share of the cache, and so many
// chunks.
constexpr uint32_t kOnceChunksMax = 8;

// Requests a worker copies out and claims at once; also the most that are merged into one read.
constexpr uint32_t kDrainMax = 64;

// A wait ends with an error when the host's heartbeat has stood still for so long.
constexpr uint64_t kHeartbeatLimitNs = 4'000'000'000;
constexpr uint64_t kHeartbeatPeriodNs = 100'000'000;

}  // namespace penstock::limits
