// A read or a write that was begun and not waited for yet: what gread_async and gwrite_async leave
// for gwait.
//
// Device memory, in one table (FileSystemState::async_calls); each team that can be resident has
// kAsyncCallsMax of them. Written and read by GPU threads: by the group that takes it, and then by
// the one that waits, which the program orders. The protocol is in device/async_call.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/limits.h"

namespace penstock {

// What gread_async and gwrite_async return and gwait takes: number 47 | index 16, from the high
// end; or -errno.
using AsyncHandle = int64_t;
constexpr int kAsyncIndexBits = 16;
static_assert(limits::kAsyncTableMax <= 1u << kAsyncIndexBits);

// Which way bytes go: out of the cache, into it.
enum class Direction : uint32_t { kOut, kIn };

struct ReadaheadPlace;

// The pages that are held lie in runs: run r begins r * run_step pages behind the call's first page
// and has run_pages of them, and its first held[r] pages are pinned. Of a read they are its first
// pages, a run for each team; of a write the page that it begins in and the one that it ends in.
struct alignas(64) AsyncCall {
    uint64_t state;  // number << 1 | 1 while somebody has it; the number counts up when it is
                     // taken, waited for and given back; device scope
    int64_t descriptor;
    uint64_t offset;        // bytes
    uint64_t size;          // bytes; of a read cut at the end of the file as it was
    std::byte* buffer;      // of a write only read
    ReadaheadPlace* place;  // of the call that is under way; null: none
    uint64_t page_count;    // of all runs; the last ones may have fewer pages, or none
    uint64_t run_step;      // pages
    uint32_t run_count;
    uint32_t run_pages;
    Direction direction;
    uint8_t held[52];
};
static_assert(sizeof(AsyncCall) == 128);
static_assert(limits::kBatchPagesMax < 256, "`held` counts the pages of a run");
static_assert(limits::kWarpsPerBlock <= sizeof(AsyncCall::held), "a run for each warp");

}  // namespace penstock
