// Every limit of the shared formats and tables in one place, each with the reason why it suffices.
// Plain numbers: no types, no code.
#pragma once

#include <cstdint>

namespace penstock::limits {

// Page sizes, powers of two. 4 KiB is the smallest unit of the OS page cache. 4 MiB is the largest
// piece from which the copy engine gains.
constexpr uint32_t kPageSizeMin = 4096;
constexpr uint32_t kPageSizeMax = 4u << 20;

// A *team* runs one piece of a call: a warp on a GPU, the block's single collective on the CPU
// backend. H200: 132 SMs x 64 warps = 8,448 resident warps. The largest GPU known has a little more
// than 10,000.
constexpr uint32_t kTeamsMax = 10240;
constexpr uint32_t kWarpsPerMultiprocessor = 64;  // resident at once, the most of any GPU so far
constexpr uint32_t kWarpsPerBlock = 32;

// Pages that one team works on at once: on a GPU 32 lanes with one page each, on the CPU backend 64
// in a loop. Also the limit of a team's requests in flight.
constexpr uint32_t kBatchPagesMax = 64;

// Views (gmmap) that may be pinned at once in one file system.
constexpr uint32_t kViewsMax = 4096;

// Calls that a team may have begun with gread_async or gwrite_async and not waited for. One more
// gets -EAGAIN. All teams together have at most kAsyncTableMax, so that the leaves that these calls
// hold stay within 128 MiB.
constexpr uint32_t kAsyncCallsMax = 4;
constexpr uint32_t kAsyncTableMax = 16384;
// Pages that one such call holds; a write holds only its first and its last page. gwait reads the
// other pages. 2 MiB of 4 KiB pages, which lie in at most two leaves of the page table.
constexpr uint32_t kAsyncPagesMax = 512;
// Pages that all these calls hold together. The demand ring has room for as many requests, beside
// those of calls that wait. 1 GiB of 4 KiB pages.
constexpr uint32_t kAsyncFramesMax = 1u << 18;
// Pins of one page by all these calls together. A call beyond the limit requests the page in gwait.
constexpr uint32_t kAsyncPinsMax = 2046;

// Widths of the fields of a page entry: see abi/page_entry.h.
constexpr uint32_t kPinBits = 14;
constexpr uint32_t kGenerationBits = 17;
constexpr uint32_t kFrameBits = 28;  // 1 TiB of 4 KiB frames
static_assert(kTeamsMax + kViewsMax + kAsyncPinsMax + 1 < (1u << kPinBits),
              "a call of a team pins a page at most once, a view once, and the team that ends its "
              "write-back once: the pin count cannot overflow");

// A leaf of the page table: 512 entries, 4 KiB of device memory.
constexpr uint32_t kLeafEntries = 512;
static_assert(kAsyncPagesMax <= kLeafEntries, "so many adjacent pages lie in two leaves");

// Files that the file system knows at once (open, or closed with pages still cached), and the
// longest path that a kernel may pass.
constexpr uint32_t kFilesMax = 4096;
constexpr uint32_t kPathSizeMax = 4096;  // with the final NUL, as PATH_MAX

// Control calls (gopen, gclose) in flight at once. Further calls wait until an owner, which is
// resident, gives its port back.
constexpr uint32_t kPortsMax = 64;

// Demand rings: one shared ring, or one for each worker in the seed's static map.
constexpr uint32_t kRingsMax = 16;
constexpr uint32_t kWorkersMax = 16;
static_assert(kWorkersMax <= kRingsMax, "the static map gives every worker a ring of its own");

// Slots of the seed's queue (seed 000, section 3.3): block id & 127.
constexpr uint32_t kStaticSlots = 128;

// A readahead window has at most kWindowPagesMax pages, in as many adjacent frames, and at most
// kWindowSizeMax bytes. A stream has at most kWindowsMax windows: 4 MiB of 4 KiB pages ahead of its
// reader, and the 1 MiB that is being read. On a device that the host cannot address, windows do
// not wait for storage by themselves, and a stream has at most kSentWindowsMax. A block follows
// kStreamsMax streams.
constexpr uint32_t kWindowPagesMax = 64;
constexpr uint64_t kWindowSizeMax = 1u << 20;
constexpr uint16_t kWindowsMax = 20;
constexpr uint32_t kSentWindowsMax = 4;
constexpr uint32_t kStreamsMax = 4;
static_assert(kWindowPagesMax <= 64, "a window's pages that are left are one word");
static_assert(kWindowPagesMax < (1u << 12), "a request's page count");

// Files that a place counts for at once: as many as the streams that it follows.
constexpr uint32_t kCountedMax = kStreamsMax;

// Frames that all windows together may hold; they hold at most a quarter of the cache, too. 1 GiB
// of 4 KiB pages. The background ring must have room for as many requests, because each request
// names a frame of a window.
constexpr uint32_t kWindowFramesMax = 1u << 18;

// Requests of gadvise(kWillNeed) that one team may have in flight, each of a window's pages. The
// background ring has room for them beside those of windows.
constexpr uint32_t kAdvisedMax = 4;

// Bytes of a granule, which has one dirty bit. Writes of different processors merge by granules.
// One word of dirty bits covers 4 KiB, the smallest page.
constexpr uint32_t kGranuleSize = 64;
static_assert(kPageSizeMin % (64 * kGranuleSize) == 0, "a page has whole words of dirty granules");
// Write-backs in flight at once. Each names a frame, and the background ring has room for them.
constexpr uint32_t kWriteBacksMax = 1u << 14;
// Words that count write sequences. If there are more groups of 64 pages, groups share a word: then
// a page may be read again without need.
constexpr uint32_t kSequencesMax = 1u << 16;
// Directory words, at least, of a file that is open for writing: it has room to grow to a million
// pages.
constexpr uint32_t kGrowingWordsMin = 2048;
// How long an open waits for the file's last writer while that drops pages that could not be
// written back. This takes one walk over the file's pages, unless the writer has stopped during it.
constexpr uint64_t kDiscardingNs = 10'000'000'000;

// Frames that a block takes at a time for its ring (seed 000, section 5), if the cache has enough
// frames.
constexpr uint32_t kSlabFramesMax = 256;
// Limit, in slabs, of the frames that a block uses for pages that are read once (ReadOnce). It
// uses frames for twice the windows that a stream may have, at most half of its share of the cache.
constexpr uint32_t kOnceSlabsMax = 8;

// Requests that a worker copies out and claims at once. At most so many are merged into one read.
constexpr uint32_t kDrainMax = 64;

// A wait ends with an error when the host's heartbeat has not advanced for this long.
constexpr uint64_t kHeartbeatLimitNs = 4'000'000'000;
constexpr uint64_t kHeartbeatPeriodNs = 100'000'000;

}  // namespace penstock::limits
