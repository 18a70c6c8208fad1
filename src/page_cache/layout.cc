#include "page_cache/layout.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "penstock/abi/limits.h"

namespace penstock::page_cache {
namespace {

// Words in the directory: 8 MiB, enough for 2 TiB of files in 4 KiB pages.
constexpr uint64_t kDirectoryWords = 1 << 20;

constexpr size_t kLine = 64;

size_t aligned(size_t size, size_t alignment) {
    return (size + alignment - 1) / alignment * alignment;
}

// Divides one allocation into adjacent pieces.
class Cursor {
public:
    Cursor(std::byte* here, std::byte* address) : here_(here), address_(address) {}
    // Takes `count` objects of T on their own cache line. Returns the address that GPU threads use.
    template <class T>
    T* take(size_t count, T** host = nullptr) {
        at_ = aligned(at_, std::max(alignof(T), kLine));
        if (host != nullptr) *host = reinterpret_cast<T*>(here_ + at_);
        T* result = reinterpret_cast<T*>(address_ + at_);
        at_ += count * sizeof(T);
        return result;
    }
    [[nodiscard]] size_t size() const { return aligned(at_, kLine); }

private:
    std::byte* here_;
    std::byte* address_;
    size_t at_ = 0;
};

// Describes one allocation. It is called once to measure it and once to fill it in.
uint64_t* lay_tables(const Layout& layout, Cursor& cursor, FileSystemState& state,
                     FileSystemState** home) {
    cursor.take<FileSystemState>(1, home);
    state.files = cursor.take<FileState>(limits::kFilesMax);
    state.port_locks = cursor.take<uint64_t>(limits::kPortsMax);
    uint64_t* owners = nullptr;
    state.owners = cursor.take<uint64_t>(layout.frame_count, &owners);
    state.completions = cursor.take<uint64_t>(layout.frame_count);
    state.leaf_owners = cursor.take<uint64_t>(layout.leaf_count);
    state.leaf_locks = cursor.take<uint64_t>(layout.leaf_count);
    state.leaves = cursor.take<PageEntry>(size_t{layout.leaf_count} * limits::kLeafEntries);
    state.directory = cursor.take<uint64_t>(layout.directory_size);
    state.async_calls = cursor.take<AsyncCall>(layout.async_count);
    state.totals = cursor.take<FileTotals>(limits::kFilesMax);
    state.places = cursor.take<ReadaheadPlace>(layout.place_count + 1);
    state.windows = cursor.take<Window>(size_t{layout.place_count} * limits::kStreamsMax *
                                        layout.readahead.windows_max);
    state.slab_next = cursor.take<uint64_t>(layout.slab_count);
    state.slab_owners = cursor.take<uint64_t>(layout.slab_count);
    const size_t mark_words = size_t{layout.frame_count} * layout.mark_words;
    state.marks = cursor.take<uint64_t>(mark_words);
    state.snapshots = cursor.take<uint64_t>(mark_words);
    state.write_backs = cursor.take<uint64_t>(layout.frame_count);
    state.write_completions = cursor.take<uint64_t>(layout.frame_count);
    state.write_order = cursor.take<uint64_t>(layout.write_backs_max);
    state.sequences = cursor.take<uint64_t>(layout.sequence_count);
    for (uint32_t i = 0; layout.pulls && i < layout.ring_count; ++i)
        state.rings[i].answers = cursor.take<uint64_t>(size_t{1} << layout.ring_shift);
    return owners;
}

void lay_shared(const Layout& layout, Cursor& cursor, FileSystemState& state) {
    state.host = cursor.take<HostWords>(1);
    state.port_requests = cursor.take<uint64_t>(limits::kPortsMax);
    state.port_responses = cursor.take<uint64_t>(limits::kPortsMax);
    state.ports = cursor.take<ControlPort>(limits::kPortsMax);
    for (uint32_t i = 0; i < layout.ring_count; ++i) {
        state.rings[i].shift = layout.ring_shift;
        state.rings[i].bells = layout.bells ? 1 : 0;
        state.rings[i].slots = cursor.take<uint64_t>(size_t{4} << layout.ring_shift);
    }
    state.background.shift = layout.background_shift;
    state.background.slots = cursor.take<uint64_t>(size_t{4} << layout.background_shift);
}

// Least room in a ring besides outstanding requests: a drain of every worker, and some more.
constexpr uint64_t kBehindMin = 2 * limits::kWorkersMax * limits::kDrainMax;

// Bytes in a stream's first window.
constexpr uint64_t kFirstWindowSize = 32 << 10;
// Bytes ahead of a reader if storage is waited for: a few requests of 1 MiB keep a disk busy
// (docs/design/0008-readahead-on-the-gpu.md).
constexpr uint64_t kAheadSizeMissing = 4 << 20;
// Least slabs of a ring if each block has a ring. A ring with few slabs is half empty most of the
// time, because it is freed slab by slab.
constexpr uint64_t kSlabsOfRing = 4;
// So many slabs suffice even if more blocks could be resident. A GPU could have thousands of
// blocks but seldom has, and slabs of a few frames would make windows of a few pages.
constexpr uint64_t kSlabsMax = 1024;
// A ring that a stream outruns is this many times as large as what then takes turns in it.
constexpr uint64_t kOutrunShare = 8;

// Plans windows and rings for a layout that has its frames.
Status plan_readahead(const LayoutRequest& request, Layout& layout) {
    const uint64_t page = request.page_size;
    ReadaheadSettings& settings = layout.readahead;
    settings.window_pages_max = std::clamp<uint64_t>(limits::kWindowSizeMax / page, 1,
                                                     limits::kWindowPagesMax);
    // A static window includes the page that was missed.
    const uint64_t prefetch_pages = request.prefetch_size / page;
    if (request.prefetch_size % page != 0 ||
        prefetch_pages >
            std::min<uint64_t>(settings.window_pages_max, limits::kWindowPagesMax - 1)) {
        return {EINVAL, "prefetch size",
                "must be a multiple of the page size, at most 63 pages and 1 MiB, or one page"};
    }
    settings.frames_max = std::min(layout.frame_count / 4, limits::kWindowFramesMax);
    if (prefetch_pages > 0 && prefetch_pages + 1 > settings.frames_max) {
        return {EINVAL, "prefetch size",
                "with one page more must be at most a quarter of the cache, which is all that "
                "windows may hold"};
    }
    settings.enabled = request.readahead && settings.frames_max > 0 ? 1 : 0;
    settings.window_pages_max = std::clamp<uint64_t>(settings.frames_max, 1,
                                                     settings.window_pages_max);
    settings.prefetch_pages = prefetch_pages;
    settings.window_pages_min = std::clamp<uint64_t>(kFirstWindowSize / page, 1,
                                                     settings.window_pages_max);
    settings.windows_max = request.windows_max;
    const auto ahead_pages = [&](uint64_t size) {
        return std::clamp<uint64_t>(size / page, settings.window_pages_max,
                                    settings.window_pages_max * settings.windows_max);
    };
    settings.ahead_pages_max = request.ahead_size_max == 0 ? 0
                                                           : ahead_pages(request.ahead_size_max);
    // There is room for one stream of each resident block.
    const uint64_t each = settings.frames_max / std::max(request.permit_count, 1u);
    settings.ahead_pages_missing = ahead_pages(std::min(kAheadSizeMissing, each * page));
    layout.policy = request.policy;
    layout.bells = request.bells;
    layout.one_by_one = request.one_by_one;
    layout.place_count = std::max(request.team_count, 1u);
    const uint64_t share = layout.frame_count / (std::max(request.permit_count, 1u) * kSlabsOfRing);
    const uint64_t wanted = std::max({share, layout.frame_count / kSlabsMax, uint64_t{1}});
    layout.slab_frames = static_cast<uint32_t>(
        std::min<uint64_t>(std::bit_floor(wanted), limits::kSlabFramesMax));
    layout.slab_count = (layout.frame_count + layout.slab_frames - 1) / layout.slab_frames;
    const uint64_t once_frames = 2 * settings.windows_max * limits::kWindowPagesMax;
    const uint64_t half = layout.slab_count / (2 * std::max(request.permit_count, 1u));
    // At least two: one is read while the next is filled.
    settings.once_slabs = std::max<uint64_t>(
        2, std::min({once_frames / layout.slab_frames, half, uint64_t{limits::kOnceSlabsMax}}));
    // The slabs used in turn must hold more than the windows of a stream. If they are a large part
    // of the ring, nothing is gained; and seed 000's rings keep their order.
    const bool holds = 2 * settings.once_slabs * layout.slab_frames >=
                       3 * settings.windows_max * settings.window_pages_max;
    settings.outrun_slabs = holds && settings.prefetch_pages == 0
                                ? kOutrunShare * settings.once_slabs
                                : UINT64_MAX;
    const uint64_t advised = uint64_t{layout.place_count} * limits::kAdvisedMax;
    // A window whose pages were all taken is free. Pages that an asynchronous read holds may still
    // be in flight.
    const uint64_t outstanding = settings.frames_max + advised + layout.async_pages_max +
                                 layout.write_backs_max;
    layout.background_shift = std::countr_zero(std::bit_ceil(std::max<uint64_t>(outstanding, 1)));
    return {};
}

}  // namespace

Status plan_layout(const LayoutRequest& request, Layout* layout) {
    if (!std::has_single_bit(request.page_size) || request.page_size < limits::kPageSizeMin ||
        request.page_size > limits::kPageSizeMax) {
        return {EINVAL, "page size", "must be a power of two from 4 KiB to 4 MiB"};
    }
    const uint64_t frames = request.cache_size / request.page_size;
    if (frames < request.permit_count || frames == 0) {
        return {EINVAL, "cache size",
                "must hold at least one page for each block that can be resident"};
    }
    if (frames >> limits::kFrameBits != 0) {
        return {EINVAL, "cache size", "more frames than a page entry can name: use larger pages"};
    }
    if (request.team_count > limits::kTeamsMax || request.ring_count > limits::kRingsMax) {
        return {EINVAL, "device", "more blocks or workers than the limits allow"};
    }
    Layout result;
    result.page_shift = std::countr_zero(request.page_size);
    result.frame_count = static_cast<uint32_t>(frames);
    const uint32_t teams = std::max(request.team_count, 1u);
    result.held_max = result.frame_count - request.permit_count;
    result.views_max = std::min(limits::kViewsMax, result.held_max);
    // If a cache has few frames more than resident blocks, half of them is left to views.
    result.async_pages_max = std::min(
        {limits::kAsyncFramesMax, result.frame_count / 4, (result.held_max + 1) / 2});
    result.async_count = std::min(limits::kAsyncTableMax, teams * limits::kAsyncCallsMax);
    // A batch of pages and an asynchronous call use two leaves each, and a view uses one. With so
    // many leaves there is always one without held pages. More leaves, one per 64 frames, keep
    // scattered pages from evicting each other's leaves.
    result.leaf_count = std::max<uint32_t>(
        request.team_count * 2 + result.async_count * 2 + result.views_max + 16,
        result.frame_count / 64);
    result.ring_count = request.ring_count;
    const uint64_t outstanding = uint64_t{teams} * limits::kBatchPagesMax + result.async_pages_max;
    // If teams pull, claimed requests keep their slots: this is how far they may lie behind.
    const uint64_t behind = request.pulls ? std::max<uint64_t>(outstanding / 8, kBehindMin) : 0;
    result.ring_shift = std::countr_zero(std::bit_ceil(outstanding + behind));
    result.tickets_behind_max = request.pulls ? (1ull << result.ring_shift) - outstanding : 0;
    result.pulls = request.pulls;
    result.directory_size = kDirectoryWords;
    result.frames_size = request.page_size * frames;
    result.mark_words = static_cast<uint32_t>(request.page_size >> kMarkShift);
    result.write_backs_max = std::min(limits::kWriteBacksMax, result.frame_count);
    result.sequence_count = std::min(limits::kSequencesMax, std::bit_ceil(result.frame_count));
    if (Status status = plan_readahead(request, result); !status.ok()) return status;
    FileSystemState measured{};
    Cursor tables(nullptr, nullptr), shared(nullptr, nullptr);
    lay_tables(result, tables, measured, nullptr);
    lay_shared(result, shared, measured);
    result.tables_size = tables.size();
    const size_t windows = size_t{limits::kStreamsMax} * result.readahead.windows_max;
    result.places_size = (result.place_count + 1) * sizeof(ReadaheadPlace) +
                         result.place_count * windows * sizeof(Window);
    result.shared_size = shared.size();
    *layout = result;
    return {};
}

FileSystemState* initialise(const Layout& layout, const Parts& parts, uint32_t system) {
    FileSystemState state{};
    state.system = system;
    state.page_shift = static_cast<uint32_t>(layout.page_shift);
    state.frame_count = layout.frame_count;
    state.leaf_count = layout.leaf_count;
    state.ring_count = layout.ring_count;
    state.views_max = layout.views_max;
    state.held_max = layout.held_max;
    state.async_pages_max = layout.async_pages_max;
    state.async_count = layout.async_count;
    state.directory_size = layout.directory_size;
    state.frames = parts.frames;
    state.policy = layout.policy;
    state.one_by_one = layout.one_by_one ? 1 : 0;
    state.place_count = layout.place_count;
    state.slab_frames = layout.slab_frames;
    state.slab_count = layout.slab_count;
    state.mark_words = layout.mark_words;
    state.write_backs_max = layout.write_backs_max;
    state.sequence_count = layout.sequence_count;
    state.readahead = layout.readahead;
    Cursor tables(parts.tables, parts.tables_address), shared(parts.shared, parts.shared);
    FileSystemState* home = nullptr;
    uint64_t* owners = lay_tables(layout, tables, state, &home);
    lay_shared(layout, shared, state);
    std::fill_n(owners, layout.frame_count, kFrameFree);
    *home = state;
    return home;
}

}  // namespace penstock::page_cache
