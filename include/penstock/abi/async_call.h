// An asynchronous call: a read or write that gread_async or gwrite_async began and gwait has not
// completed yet.
//
// The calls lie in one table in device memory (FileSystemState::async_calls), kAsyncCallsMax for
// each team that can be resident. GPU threads write and read an entry: first the group that takes
// it, then the group that waits. The program orders the two. The protocol is in
// device/async_call.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/limits.h"

namespace penstock {

// The result of gread_async and gwrite_async, and the argument of gwait: number 47 | index 16, from
// the high end; or -errno.
using AsyncHandle = int64_t;
constexpr int kAsyncIndexBits = 16;
static_assert(limits::kAsyncTableMax <= 1u << kAsyncIndexBits);

// The direction of the bytes: out of the cache or into it.
enum class Direction : uint32_t { kOut, kIn };

struct ReadaheadPlace;

// The pages that a call holds lie in runs. Run r begins r * run_step pages after the call's first
// page and has run_pages pages, of which the first held[r] are pinned. A read holds its first
// pages, in one run for each team. A write holds its first and its last page.
struct alignas(64) AsyncCall {
    uint64_t state;  // number << 1 | 1 while the entry is in use; the number grows when the entry
                     // is taken, waited for and given back; device scope
    int64_t descriptor;
    uint64_t offset;        // bytes
    uint64_t size;          // bytes; of a read cut at the end of the file at that time
    std::byte* buffer;      // a write only reads it
    ReadaheadPlace* place;  // of the call in flight; null: none
    uint64_t page_count;    // over all runs; the last runs may have fewer pages, or none
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
