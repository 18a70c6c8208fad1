// Finds out which bytes of an open file the OS page cache holds. It asks the kernel's probes, as
// far as their answers can be trusted.
//
// The probes are tried in this order. (1) `cachestat`, if its answer is right. It always is on
// ext4, xfs, btrfs, tmpfs and NFS. On another file system it is trusted once it has counted a page
// of this file; an answer of 0 is checked with mincore, because overlayfs answers 0 whatever is
// cached. (2) `mincore`, if the kernel tells this process the truth. To a process that neither owns
// the file nor may write it, the kernel says that everything is resident. So a page far beyond the
// end of the file is asked about too; if that page is reported resident, mincore is not trusted.
// (3) Otherwise the answer is unknown, never a guess. A probe reads no bytes and brings none into
// the cache.
//
// An answer is out of date when it arrives, because other programs read and evict. It may choose a
// route, but correctness must not depend on it. mincore does not report dirty pages, so a page that
// it reports as cached may be dirty. A direct read of such a range is still right: the kernel
// writes the dirty pages back before it reads, and the read waits for that.
//
// Cost (two cores of a virtual machine, Linux 6.18). cachestat takes 0.4 us if the range is not
// cached, or is cached in large folios. In folios of 4 KiB it takes 7 us per MiB. It takes two to
// four times that if pieces of 64 KiB are cached and others not. mincore takes 10 us, and 13 to 30
// us per MiB. Asking pays for ranges of about 256 KiB or more. Below that, the caller asks only if
// recent reads were slow, or if reads are to leave nothing in the cache.
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
    kNone,       // nothing is known
    kCachestat,  // reports dirty pages too
    kMincore,    // does not report dirty pages
    kBoth,       // cachestat, then mincore where cachestat would take too many calls
};

// Returns "unknown", "cachestat", "mincore" or "cachestat, mincore".
[[nodiscard]] const char* name(ResidencyMethod method);

struct ResidencyQuestion {
    // The range to ask about. It should end at the file's end or before, because bytes beyond count
    // as missing.
    extent::Extent range;
    // The answer describes whole pieces of the file of this size, aligned to it. A piece that is
    // partly cached is kMixed; one with a dirty page is kDirty. 0 means pages. Other values must be
    // powers of two and are raised to the page size. The caller chooses how much a finer answer may
    // cost.
    uint64_t grain = 0;
    // Limits the calls of cachestat. After them mincore describes the rest; if mincore is not
    // trusted, large pieces stay kMixed or kDirty. 0: as many calls as take about as long as
    // mincore would.
    uint32_t probes_max = 0;
};

struct ResidencyAnswer {
    size_t runs = 0;  // runs stored, from the front; neighbours differ in state
    // The runs cover the question's range up to here. This is the end of the range unless `runs`
    // was full.
    uint64_t end = 0;
    ResidencyMethod method = ResidencyMethod::kNone;
    const char* reason = "";  // why cachestat or all probes failed; a literal; empty: no reason
    uint32_t probes = 0;      // system calls made
};

// The counts of cachestat, in pages of the OS page cache.
struct CacheCounts {
    uint64_t cached = 0;
    uint64_t dirty = 0;
    uint64_t writeback = 0;  // being written back; may be dirty again
};

// PORT to the kernel's probes, so that tests can make them fail. All calls return 0 or an errno.
// Any thread.
class ResidencyCalls {
public:
    virtual ~ResidencyCalls() = default;
    // Counts the pages that touch [range.offset, range.end()), which must not be empty.
    virtual int cachestat(int descriptor, const extent::Extent& range, CacheCounts* out) = 0;
    // Sets bit 0 of each byte if that page is resident. `offset` must be a multiple of the page
    // size.
    virtual int mincore(int descriptor, uint64_t offset, std::span<unsigned char> pages) = 0;
    // Stores the number by which statfs(2) identifies the file system.
    virtual int file_system(int descriptor, uint64_t* magic) = 0;
};

// Returns the kernel's own probes.
[[nodiscard]] ResidencyCalls& kernel_residency_calls();

// Asks about one file, and remembers which probe works for it. Any thread; several threads may ask
// at once. Takes no memory.
class ResidencyProbe {
public:
    // `file` must outlive this object. Makes one system call.
    explicit ResidencyProbe(const File& file, ResidencyCalls& calls = kernel_residency_calls());

    // Blocks while the kernel looks: microseconds per MiB at most, and no I/O. `runs` must have
    // room for at least one run; range.size / grain + 2 always suffice.
    [[nodiscard]] ResidencyAnswer ask(const ResidencyQuestion& question,
                                      std::span<extent::ResidencyRun> runs);

    // Returns whether the bytes live in memory (tmpfs, ramfs, kRam). Then no read can bypass a
    // cache, so no question is needed.
    [[nodiscard]] bool in_memory() const { return in_memory_; }
    // Returns the page size of the OS page cache, in bytes.
    [[nodiscard]] uint64_t page_size() const { return page_size_; }

private:
    enum class Trust : uint8_t { kRight, kUnproven, kNever };
    class Answering;  // the state of one call of ask()

    void distrust(const char* reason);

    const int descriptor_;
    const uint64_t file_size_;  // at the open
    const uint64_t page_size_;
    ResidencyCalls& calls_;
    bool in_memory_ = false;
    std::atomic<Trust> cachestat_{Trust::kUnproven};
    std::atomic<const char*> reason_{""};  // why cachestat_ is kNever
};

}  // namespace penstock::storage
