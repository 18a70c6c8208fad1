// Computes the sizes of all parts of a GPU page cache, and the memory that they take. Pure:
// allocates nothing.
//
// src/service allocates the parts and calls initialise(). GPU threads use them through
// include/penstock/device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/file_system.h"
#include "penstock/status.h"

namespace penstock::page_cache {

struct LayoutRequest {
    uint64_t page_size = 0;     // bytes
    uint64_t cache_size = 0;    // bytes of frames
    uint32_t permit_count = 0;  // blocks resident at once
    uint32_t team_count = 0;    // teams resident at once (at least permit_count)
    uint32_t ring_count = 1;
    bool bells = true;   // threads sleep until a ring's doorbell rings
    bool pulls = false;  // waiting teams copy pages out of the host's memory themselves
    ReplacementPolicy policy = ReplacementPolicy::kRings;
    bool readahead = true;
    bool one_by_one = false;     // a read requests page after page (seed 000's original)
    uint64_t prefetch_size = 0;  // bytes read after each miss; 0: windows grow and shrink
    uint32_t windows_max = limits::kWindowsMax;  // per stream; kSentWindowsMax if teams pull
    // Bytes ahead of a reader, if windows need not wait for storage.
    uint64_t ahead_size_max = limits::kWindowSizeMax;
};

// Counts, and the sizes in bytes of the parts in device memory and in mapped host memory.
struct Layout {
    int page_shift = 0;
    uint32_t frame_count = 0;
    uint32_t leaf_count = 0;
    uint32_t ring_count = 0;
    int ring_shift = 0;
    uint64_t tickets_behind_max = 0;  // of a claimed request behind the head; 0: any
    uint32_t views_max = 0;
    uint32_t held_max = 0;         // pages that views and asynchronous calls hold together
    uint32_t async_pages_max = 0;  // those held by asynchronous calls
    uint32_t async_count = 0;      // asynchronous calls in progress
    uint64_t directory_size = 0;   // in words
    ReplacementPolicy policy = ReplacementPolicy::kRings;
    bool one_by_one = false;
    uint32_t place_count = 0;
    uint32_t slab_frames = 1, slab_count = 0;
    uint32_t mark_words = 0;       // for the dirty granules of a frame
    uint32_t write_backs_max = 0;  // in progress at once
    uint32_t sequence_count = 0;   // write sequences
    ReadaheadSettings readahead{};
    int background_shift = 0;
    bool bells = true;
    bool pulls = false;

    // Device memory.
    size_t frames_size = 0, tables_size = 0;
    size_t places_size = 0;  // part of the tables: places of readahead and their windows
    // Mapped host memory: rings, ports, host words.
    size_t shared_size = 0;
};

// Plans a layout. EINVAL: the page size is no power of two in range; there are fewer frames than
// permits, or more than an entry can name; or the prefetch size is no multiple of the page, or
// larger than a window may be or than a quarter of the cache.
Status plan_layout(const LayoutRequest& request, Layout* layout);

// The three allocations. `tables` and `shared` are zeroed memory that the host can address. If the
// host cannot address the device's memory, `tables` is a host copy and `tables_address` is where it
// will lie; else they are equal.
struct Parts {
    std::byte* frames = nullptr;
    std::byte* tables = nullptr;
    std::byte* tables_address = nullptr;
    std::byte* shared = nullptr;
};
// Divides the parts, fills in the state, and sets every owner to free. Returns the FileSystemState
// inside `tables`.
FileSystemState* initialise(const Layout& layout, const Parts& parts, uint32_t system);

}  // namespace penstock::page_cache
