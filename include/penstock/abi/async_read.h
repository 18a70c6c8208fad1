// A read that was asked for and not waited for yet: what gread_async leaves for gwait.
//
// Device memory, in one table (FileSystemState::async_reads); each team that can be resident has
// kAsyncReadsMax of them. Written and read by GPU threads: by the group that takes it, and then by
// the one that waits, which the program orders. The protocol is in device/async_read.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/limits.h"

namespace penstock {

// What gread_async returns and gwait takes: number 47 | index 16, from the high end; or -errno.
using AsyncHandle = int64_t;
constexpr int kAsyncIndexBits = 16;
static_assert(limits::kAsyncTableMax <= 1u << kAsyncIndexBits);

struct ReadaheadPlace;

// The pages that are held are the first ones of the read, cut into one run for each team: run r is
// pages r * run_pages to (r + 1) * run_pages - 1 of them, and its first held[r] pages are pinned.
struct alignas(64) AsyncRead {
    uint64_t state;  // number << 1 | 1 while somebody has it; the number counts up when it is
                     // taken, waited for and given back; device scope
    int64_t descriptor;
    uint64_t offset;  // bytes
    uint64_t size;    // bytes, cut at the end of the file as it was
    std::byte* buffer;
    ReadaheadPlace* place;  // of the call that is under way; null: none
    uint64_t page_count;    // of all runs
    uint32_t run_count;
    uint32_t run_pages;
    uint8_t held[64];
};
static_assert(sizeof(AsyncRead) == 128);
static_assert(limits::kBatchPagesMax < 256, "`held` counts the pages of a run");
static_assert(limits::kWarpsPerBlock <= 64, "a run for each warp");

}  // namespace penstock
