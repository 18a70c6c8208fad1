// Implements the order of probes of residency.h: bisects counts into runs, and folds maps of pages
// into runs.
#include "storage/residency.h"

#include <linux/magic.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/units.h"

namespace penstock::storage {

using extent::Extent;
using extent::Residency;
using extent::ResidencyRun;

namespace {

// File systems whose cachestat was seen to answer right. residency_mounts_test.cc checks all but
// NFS again.
constexpr std::array<uint64_t, 5> kRight = {
    EXT4_SUPER_MAGIC,  // ext2 and ext3 too
    0x58465342,        // xfs, which linux/magic.h does not name
    BTRFS_SUPER_MAGIC, TMPFS_MAGIC, NFS_SUPER_MAGIC,
};

constexpr const char* kNoFile = "held in memory, not in the OS page cache";
constexpr const char* kOverlay = "cachestat answers 0 on overlayfs";
constexpr const char* kDisproved = "cachestat answers 0 here though pages are cached";
constexpr const char* kUnprovable =
    "cachestat answers 0, which may be wrong on this file system, and mincore cannot be asked";
constexpr const char*
    kDishonest = "the kernel tells only who owns a file or may write it what is cached";

const char* explain_cachestat(int error) {
    switch (error) {
        case EPERM:
        case EACCES:
            return "cachestat is refused: not the owner of the file, or a sandbox";
        case ENOSYS:
            return "this kernel or sandbox has no cachestat";
        default:
            return "cachestat fails on this file";
    }
}

const char* explain_mincore(int error) {
    switch (error) {
        case EPERM:
        case EACCES:
        case ENOSYS:
            return "cachestat and mincore are refused";
        case ENODEV:
            return "this file cannot be mapped, so mincore cannot be asked";
        case EAGAIN:
        case ENOMEM:
            return "no memory for a mapping, so mincore cannot be asked";
        default:
            return "mincore fails on this file";
    }
}

// Pages in one call of mincore. A map of so many fits on the stack.
constexpr uint64_t kMapPages = 4096;

// Distance from the end of a file to a page that cannot be cached. It exceeds the largest folio
// that can contain the end of a file (512 MiB, with pages of 64 KiB).
constexpr uint64_t kBeyond = base::kGiB;

// In the time of one call of cachestat, mincore describes this many pages. Its own start takes as
// long as kProbesMin calls.
constexpr uint64_t kPagesPerProbe = 16;
constexpr uint64_t kProbesMin = 32;

// If a piece as small as this is still mixed, more such pieces are likely. Each of them lowers the
// limit of calls by kSplinterPrice.
constexpr uint64_t kSplinterPages = 16;
constexpr uint32_t kSplinterPrice = 8;

uint32_t probes_worthwhile(const Extent& range, uint64_t page) {
    const uint64_t probes = kProbesMin + range.size / page / kPagesPerProbe;
    return static_cast<uint32_t>(std::min<uint64_t>(probes, UINT32_MAX));
}

bool dirty(const CacheCounts& counts) { return counts.dirty != 0 || counts.writeback != 0; }

// Returns the count of pages that touch `range`, which must not be empty.
uint64_t pages_of(const Extent& range, uint64_t page) {
    return (range.end() - 1) / page - range.offset / page + 1;
}

// Returns what is left of `all` without `part`. The two are from different moments, so each result
// is at least 0.
CacheCounts without(const CacheCounts& all, const CacheCounts& part) {
    const auto less = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
    return {.cached = less(all.cached, part.cached),
            .dirty = less(all.dirty, part.dirty),
            .writeback = less(all.writeback, part.writeback)};
}

// Returns how many bytes of `range` lie in the `cached` resident pages of its `pages` pages. The
// first and the last page may reach beyond the range.
uint64_t resident_size_of(const Extent& range, uint64_t cached, uint64_t pages, uint64_t page) {
    if (cached >= pages) return range.size;
    return std::min(cached * page, range.size - 1);
}

// Returns the boundary within `range` that the largest possible power of two divides. Cuts there
// meet the edges of folios and of readahead windows.
uint64_t middle(const Extent& range) {
    const uint64_t last = range.end() - 1;
    const int bit = 63 - __builtin_clzll(range.offset ^ last);
    return last & ~((uint64_t{1} << bit) - 1);
}

}  // namespace

// The state of one question while the probes are tried in turn.
class ResidencyProbe::Answering {
public:
    Answering(ResidencyProbe& probe, const ResidencyQuestion& question,
              std::span<ResidencyRun> runs)
        : probe_(probe),
          range_(question.range),
          runs_(runs),
          page_(probe.page_size_),
          grain_(std::max(question.grain, page_)),
          counts_left_(question.probes_max != 0 ? question.probes_max
                                                : probes_worthwhile(question.range, page_)) {}

    ResidencyAnswer answer() {
        if (!range_.empty() && !by_cachestat()) by_mincore_alone();
        answer_.end = told_end();
        return answer_;
    }

private:
    // A part of the range that has no run yet, and its counts from cachestat.
    struct Piece {
        Extent range;
        CacheCounts counts;
    };

    // Here and below, false means that there is no room for another run.
    bool emit(const Extent& range, Residency state, uint64_t resident_size) {
        return append_run(runs_, &answer_.runs, {range, state, resident_size});
    }
    int count(Piece* piece) {
        ++answer_.probes;
        --counts_left_;
        return probe_.calls_.cachestat(probe_.descriptor_, piece->range, &piece->counts);
    }
    // Returns whether halving the piece could show nothing more.
    [[nodiscard]] bool uniform(const Piece& piece) const;
    [[nodiscard]] bool one_grain(const Extent& range) const {
        return range.offset / grain_ == (range.end() - 1) / grain_;
    }

    bool by_cachestat();                                        // false: nothing is known
    bool halve(const Piece& piece, Piece* front, Piece* back);  // false: no calls are left
    void bisect(Piece piece);
    bool settle(const Piece& piece);  // emits a piece that is not halved

    void by_mincore_alone();
    bool mincore_is_honest();
    bool by_mincore(const Extent& range, bool may_be_dirty);
    bool fold(uint64_t offset, std::span<const unsigned char> map, uint64_t end, bool may_be_dirty);
    // Returns the end of the runs so far.
    [[nodiscard]] uint64_t told_end() const {
        return answer_.runs > 0 ? runs_[answer_.runs - 1].range.end() : range_.offset;
    }

    ResidencyProbe& probe_;
    const Extent range_;
    const std::span<ResidencyRun> runs_;
    const uint64_t page_, grain_;
    ResidencyAnswer answer_;
    uint32_t counts_left_;        // remaining calls of cachestat
    bool zero_unproven_ = false;  // cachestat counted 0, and has never counted a page of this file
    bool honesty_known_ = false;
    bool honest_ = false;
    int honesty_error_ = 0;
    uint64_t mapped_resident_ = 0;  // resident pages by mincore
    // fold()'s counts for the grain that it is in.
    uint64_t grain_pages_ = 0, grain_resident_ = 0;
};

bool ResidencyProbe::Answering::by_cachestat() {
    // The acquire pairs with the release in distrust(), so that the reason is visible with kNever.
    const Trust trust = probe_.cachestat_.load(std::memory_order_acquire);
    if (trust == Trust::kNever) {
        answer_.reason = probe_.reason_.load(std::memory_order_relaxed);
        return false;
    }
    Piece whole{range_, {}};
    if (const int error = count(&whole); error != 0) {
        answer_.reason = explain_cachestat(error);
        probe_.distrust(answer_.reason);
        return false;
    }
    if (trust == Trust::kUnproven) {
        zero_unproven_ = whole.counts.cached == 0;
        if (zero_unproven_) return false;
        probe_.cachestat_.store(Trust::kRight, std::memory_order_relaxed);
    }
    answer_.method = ResidencyMethod::kCachestat;
    bisect(whole);
    return true;
}

bool ResidencyProbe::Answering::uniform(const Piece& piece) const {
    const CacheCounts& counts = piece.counts;
    if (counts.cached == 0 || one_grain(piece.range)) return true;
    const uint64_t pages = pages_of(piece.range, page_);
    return counts.cached >= pages &&
           (!dirty(counts) || counts.dirty >= pages || counts.writeback >= pages);
}

bool ResidencyProbe::Answering::halve(const Piece& piece, Piece* front, Piece* back) {
    if (counts_left_ == 0) return false;
    const uint64_t cut = middle(piece.range);
    *front = {{piece.range.offset, cut - piece.range.offset}, {}};
    const uint64_t pages = pages_of(piece.range, page_);
    if (count(front) != 0) {  // the last call worked, so what is known is used
        counts_left_ = 0;
        return false;
    }
    if (pages <= kSplinterPages && pages > kSplinterPages / 2) {
        counts_left_ -= std::min(counts_left_, kSplinterPrice);
    }
    *back = {{cut, piece.range.end() - cut}, without(piece.counts, front->counts)};
    return true;
}

// Goes from front to back. Only the front half is asked about; the counts of the back half are the
// rest.
void ResidencyProbe::Answering::bisect(Piece piece) {
    // Each halving clears a bit in which the ends of the piece differ, so at most 64 pieces wait.
    std::array<Piece, 64> waiting;
    size_t count_waiting = 0;
    for (;;) {
        if (!uniform(piece)) {
            Piece front, back;
            if (halve(piece, &front, &back)) {
                waiting[count_waiting++] = back;
                piece = front;
                continue;
            }
            if (piece.counts.cached < pages_of(piece.range, page_) && mincore_is_honest()) {
                // The whole rest goes to mincore in one call, because a call costs as much as 64
                // pages of its map.
                bool may_be_dirty = dirty(piece.counts);
                for (size_t i = 0; i < count_waiting; ++i) may_be_dirty |= dirty(waiting[i].counts);
                answer_.method = ResidencyMethod::kBoth;
                const uint64_t begin = piece.range.offset;
                (void)by_mincore({begin, range_.end() - begin}, may_be_dirty);
                return;
            }
        }
        if (!settle(piece) || count_waiting == 0) return;
        piece = waiting[--count_waiting];
    }
}

bool ResidencyProbe::Answering::settle(const Piece& piece) {
    const uint64_t pages = pages_of(piece.range, page_);
    const uint64_t cached = std::min(piece.counts.cached, pages);
    if (cached == 0) return emit(piece.range, Residency::kMissing, 0);
    Residency state = cached == pages ? Residency::kCached : Residency::kMixed;
    if (dirty(piece.counts)) state = Residency::kDirty;
    return emit(piece.range, state, resident_size_of(piece.range, cached, pages, page_));
}

void ResidencyProbe::Answering::by_mincore_alone() {
    if (mincore_is_honest()) {
        answer_.method = ResidencyMethod::kMincore;
        (void)by_mincore(range_, false);
        if (zero_unproven_ && mapped_resident_ > 0) {
            answer_.reason = kDisproved;
            probe_.distrust(kDisproved);
        }
        return;
    }
    if (zero_unproven_ && honesty_error_ == ENODEV) {
        // A file that cannot be mapped has no pages of its own for which those of another file
        // could stand.
        answer_.method = ResidencyMethod::kCachestat;
        (void)emit(range_, Residency::kMissing, 0);
        return;
    }
    answer_.reason = honesty_error_ != 0 ? explain_mincore(honesty_error_) : kDishonest;
    if (zero_unproven_) answer_.reason = kUnprovable;
    (void)emit(range_, Residency::kUnknown, 0);
}

// Asks about a page that no file can have in the cache. If the kernel hides the truth from this
// process, it reports that page as resident too. Asks once per question, because owners and rights
// can change.
bool ResidencyProbe::Answering::mincore_is_honest() {
    if (honesty_known_) return honest_;
    honesty_known_ = true;
    ++answer_.probes;
    const uint64_t beyond = std::max(probe_.file_size_, range_.end()) + kBeyond;
    unsigned char page = 0;
    honesty_error_ = probe_.calls_.mincore(probe_.descriptor_, base::align_up(beyond, page_),
                                           {&page, 1});
    honest_ = honesty_error_ == 0 && (page & 1) == 0;
    return honest_;
}

bool ResidencyProbe::Answering::by_mincore(const Extent& range, bool may_be_dirty) {
    std::array<unsigned char, kMapPages> map;
    Extent left{base::align_down(range.offset, page_), 0};
    left.size = range.end() - left.offset;
    while (!left.empty()) {
        const uint64_t pages = std::min(pages_of(left, page_), kMapPages);
        const std::span<unsigned char> told(map.data(), pages);
        ++answer_.probes;
        if (const int error = probe_.calls_.mincore(probe_.descriptor_, left.offset, told);
            error != 0) {
            answer_.reason = explain_mincore(error);
            const uint64_t begin = told_end();
            return emit({begin, range.end() - begin}, Residency::kUnknown, 0);
        }
        if (!fold(left.offset, told, range.end(), may_be_dirty)) return false;
        const uint64_t size = std::min(pages * page_, left.size);
        left = {left.offset + size, left.size - size};
    }
    return true;
}

// Adds the pages in `map`, which begin at `offset`. The last pages before `end` complete a grain
// even if it is not full.
bool ResidencyProbe::Answering::fold(uint64_t offset, std::span<const unsigned char> map,
                                     uint64_t end, bool may_be_dirty) {
    for (const unsigned char told : map) {
        offset += page_;
        ++grain_pages_;
        grain_resident_ += told & 1;
        if (offset < end && offset % grain_ != 0) continue;
        const uint64_t begin = told_end();
        const Extent range{begin, std::min(offset, end) - begin};
        const uint64_t size = resident_size_of(range, grain_resident_, grain_pages_, page_);
        Residency state = Residency::kMixed;
        if (size == range.size) state = Residency::kCached;
        if (size == 0) {
            state = Residency::kMissing;
        } else if (may_be_dirty) {
            state = Residency::kDirty;
        }
        mapped_resident_ += grain_resident_;
        grain_pages_ = grain_resident_ = 0;
        if (!emit(range, state, size)) return false;
    }
    return true;
}

void ResidencyProbe::distrust(const char* reason) {
    reason_.store(reason, std::memory_order_relaxed);
    // The release makes reason_ visible before kNever; its partner is the acquire in
    // by_cachestat().
    cachestat_.store(Trust::kNever, std::memory_order_release);
}

ResidencyProbe::ResidencyProbe(const File& file, ResidencyCalls& calls)
    : descriptor_(file.descriptor()),
      file_size_(file.size()),
      page_size_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))),
      calls_(calls) {
    if (descriptor_ < 0) {
        in_memory_ = true;
        return;
    }
    uint64_t magic = 0;
    if (calls_.file_system(descriptor_, &magic) != 0) return;  // unproven, like unknown ones
    in_memory_ = magic == TMPFS_MAGIC || magic == RAMFS_MAGIC;
    if (magic == OVERLAYFS_SUPER_MAGIC) distrust(kOverlay);
    for (const uint64_t right : kRight) {
        if (magic == right) cachestat_.store(Trust::kRight, std::memory_order_relaxed);
    }
}

ResidencyAnswer ResidencyProbe::ask(const ResidencyQuestion& question,
                                    std::span<ResidencyRun> runs) {
    if (descriptor_ < 0 && !question.range.empty()) {
        runs.front() = {question.range, Residency::kUnknown, 0};
        return {.runs = 1, .end = question.range.end(), .reason = kNoFile};
    }
    return Answering(*this, question, runs).answer();
}

const char* name(ResidencyMethod method) {
    switch (method) {
        case ResidencyMethod::kNone:
            return "unknown";
        case ResidencyMethod::kCachestat:
            return "cachestat";
        case ResidencyMethod::kMincore:
            return "mincore";
        case ResidencyMethod::kBoth:
            return "cachestat, mincore";
    }
    return "";
}

}  // namespace penstock::storage
