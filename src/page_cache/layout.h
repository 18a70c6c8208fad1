// How many of everything a GPU page cache has, and how much memory that takes. Pure: nothing is
// allocated here.
//
// src/service allocates the parts and calls initialise(); GPU threads use them by
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
    bool bells = true;   // threads sleep until a ring's bell is rung
    bool pulls = false;  // teams that wait copy pages out of the host's memory themselves
    ReplacementPolicy policy = ReplacementPolicy::kRings;
    bool readahead = true;
    bool one_by_one = false;     // a read asks for page after page (seed 000's original)
    uint64_t prefetch_size = 0;  // bytes behind every miss; 0: windows grow and shrink
    uint32_t windows_max = limits::kWindowsMax;  // of a stream; kSentWindowsMax, where teams pull
    uint64_t ahead_size_max = limits::kWindowSizeMax;  // bytes that lie ahead of a reader, where
                                                       // windows need not wait for storage
};

// Counts; sizes in bytes of the parts in device memory and in mapped host memory.
struct Layout {
    int page_shift = 0;
    uint32_t frame_count = 0;
    uint32_t leaf_count = 0;
    uint32_t ring_count = 0;
    int ring_shift = 0;
    uint64_t tickets_behind_max = 0;  // that a claimed request may lie behind the head; 0: any
    uint32_t views_max = 0;
    uint32_t held_max = 0;         // pages that views and asynchronous calls hold together
    uint32_t async_pages_max = 0;  // of those, asynchronous calls
    uint32_t async_count = 0;      // asynchronous calls at once
    uint64_t directory_size = 0;   // words
    ReplacementPolicy policy = ReplacementPolicy::kRings;
    bool one_by_one = false;
    uint32_t place_count = 0;
    uint32_t chunk_frames = 1, chunk_count = 0;
    uint32_t mark_words = 0;       // dirty granules of a frame
    uint32_t write_backs_max = 0;  // under way at once
    uint32_t sequence_count = 0;   // write sequences
    ReadaheadSettings readahead{};
    int background_shift = 0;
    bool bells = true;
    bool pulls = false;

    // Device memory.
    size_t frames_size = 0, tables_size = 0;
    size_t places_size = 0;  // of the tables: places of readahead and their windows
    // Mapped host memory: rings, ports, host words.
    size_t shared_size = 0;
};

// EINVAL: page size no power of two in range; fewer frames than permits; more frames than an entry
// can name; a prefetch size that is no multiple of the page, larger than a window may be, or than a
// quarter of the cache.
Status plan_layout(const LayoutRequest& request, Layout* layout);

// Divides the three allocations, fills in `state` and sets every owner to free. `tables`, `shared`
// are zeroed memory that the host can address; on a device that it cannot, `tables` is a host copy
// and `tables_address` where it will lie (else equal).
struct Parts {
    std::byte* frames = nullptr;
    std::byte* tables = nullptr;
    std::byte* tables_address = nullptr;
    std::byte* shared = nullptr;
};
// Returns the FileSystemState inside `tables`.
FileSystemState* initialise(const Layout& layout, const Parts& parts, uint32_t system);

}  // namespace penstock::page_cache
