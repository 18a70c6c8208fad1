// Which bytes of an open file the OS page cache holds, by the kernel's probes as far as they can be
// believed.
//
// The ladder. `cachestat` where it answers right: on ext4, xfs, btrfs, tmpfs and NFS always; on
// another file system once it has counted a page of this file (an answer of 0 is held against
// mincore: overlayfs answers 0 whatever is cached). `mincore` where the kernel tells this process
// the truth; it tells who neither owns the file nor may write it that everything is resident, so a
// page far beyond the end of the file is asked about too, and an answer with that page in it is not
// believed. Else unknown: never a guess. A probe reads no bytes and brings none into the cache.
//
// An answer is old when it arrives: other programs read and evict. It is good for choosing a
// route, never for correctness. mincore cannot tell dirty pages: cached ones may be dirty there. A
// direct read of such a range is right all the same, because the kernel writes the dirty pages of
// its range back before it reads; it waits for that.
//
// What it costs (two cores of a virtual machine, Linux 6.18): 0.4 us where all is cold, or cached
// in large folios; in folios of 4 KiB 7 us a MiB, and twice to four times that where pieces of 64
// KiB are cached and others not; by mincore 10 us and 13 to 30 us a MiB. It pays from ranges of
// about 256 KiB on; below, the caller asks only where reads were slow lately, or are to
// leave nothing in the cache.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "extent/residency.h"
#include "storage/storage.h"

namespace penstock::storage {

enum class ResidencyMethod : uint8_t {
    kNone,       // nothing could be told
    kCachestat,  // tells dirty pages too
    kMincore,    // does not
    kBoth,       // cachestat, and mincore for what would have taken it too many calls: what is
                 // cached there is kDirty if any of it is
};

// "unknown", "cachestat", "mincore", "cachestat, mincore".
[[nodiscard]] const char* name(ResidencyMethod method);

struct ResidencyQuestion {
    // Should end at the file's end or before: what lies behind counts as missing.
    extent::Extent range;
    // The answer is told for whole pieces of the file of this size, aligned to it; one that is
    // cached in part is kMixed, one with a dirty page kDirty. 0: pages; else a power of two, raised
    // to the page size. What it costs to find out more than this is the caller's to know.
    uint64_t grain = 0;
    // Calls of cachestat, after which mincore tells the rest; where it cannot, large pieces stay
    // kMixed or kDirty. 0: as many as take about as long as mincore would.
    uint32_t probes_max = 0;
};

struct ResidencyAnswer {
    size_t runs = 0;  // how many, at the front; no neighbours of one state
    // They cover the question's range up to here: to its end, unless there was no room for more.
    uint64_t end = 0;
    ResidencyMethod method = ResidencyMethod::kNone;
    const char* reason = "";  // why not cachestat, or why nothing; a literal, empty: no reason
    uint32_t probes = 0;      // questions that the kernel was asked
};

// What cachestat counts, in pages of the OS page cache.
struct CacheCounts {
    uint64_t cached = 0;
    uint64_t dirty = 0;
    uint64_t writeback = 0;  // being written; may be dirty again
};

// PORT to the probes, so that tests can make them fail. All: 0 or an errno; any thread.
class ResidencyCalls {
public:
    virtual ~ResidencyCalls() = default;
    // Pages that touch [range.offset, range.end()), which is not empty.
    virtual int cachestat(int descriptor, const extent::Extent& range, CacheCounts* out) = 0;
    // Bit 0 of each byte: whether that page is resident. `offset` is a multiple of the page size.
    virtual int mincore(int descriptor, uint64_t offset, std::span<unsigned char> pages) = 0;
    // The number by which statfs(2) names the file system.
    virtual int file_system(int descriptor, uint64_t* magic) = 0;
};

// Those of the kernel.
[[nodiscard]] ResidencyCalls& kernel_residency_calls();

// Asks about one file, and remembers what works for it. Any thread, several at once. Takes no
// memory.
class ResidencyProbe {
public:
    // `file` must outlive it. One system call.
    explicit ResidencyProbe(const File& file, ResidencyCalls& calls = kernel_residency_calls());

    // Blocks for as long as the kernel takes to look: microseconds a MiB at most, no I/O. `runs`
    // has at least one; range.size / grain + 2 are always enough.
    [[nodiscard]] ResidencyAnswer ask(const ResidencyQuestion& question,
                                      std::span<extent::ResidencyRun> runs);

    // The bytes live in memory (tmpfs, ramfs, kRam): no read of them can bypass a cache, so there
    // is nothing to ask before one.
    [[nodiscard]] bool in_memory() const { return in_memory_; }
    // Of the OS page cache, bytes.
    [[nodiscard]] uint64_t page_size() const { return page_size_; }

private:
    enum class Trust : uint8_t { kRight, kUnproven, kNever };
    class Answering;  // one call of ask()

    void distrust(const char* reason);

    const int descriptor_;
    const uint64_t file_size_;  // as of the open
    const uint64_t page_size_;
    ResidencyCalls& calls_;
    bool in_memory_ = false;
    std::atomic<Trust> cachestat_{Trust::kUnproven};
    std::atomic<const char*> reason_{""};  // why cachestat_ is kNever
};

}  // namespace penstock::storage
