// The request from a GPU to the host, and its answer: 32 bytes one way, 8 bytes the other.
//
// A request lies in a ring slot in mapped host memory. One GPU thread writes it, and host workers
// read it. Word 0 carries the lap of the ring and is stored last with release (system scope); the
// other words are relaxed. A completion is one word for each frame, in memory that both can read.
// The host writes it with release, or the team that has pulled the page does (see kPullPage).
// Write-backs have completions of their own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/page_entry.h"

namespace penstock {

enum class RequestKind : uint32_t {
    kReadPages = 1,   // the team that asks holds pins: their file's slot cannot be reused
    kReadWindow = 2,  // requested ahead, without pins: `opened` identifies the open file
    kPullPage = 3,    // as kReadPages, from a team that waits and copies the bytes itself, from the
                      // address in the answer (RingState::answers), unless the frame's completion
                      // comes
    kPullWindow = 4,  // as kReadWindow, from a team that waits and copies all the bytes itself,
                      // from the address in the answer, unless the frames' completions come
    kWritePage = 5,   // the granules of the frame's snapshot that lie before `size` go to the file;
                      // the page is dirty, so it keeps its frame and the file keeps its slot
};

PENSTOCK_BOTH constexpr bool is_window(RequestKind kind) {
    return kind == RequestKind::kReadWindow || kind == RequestKind::kPullWindow;
}

// Returns whether the requesting team copies the bytes itself after the answer.
PENSTOCK_BOTH constexpr bool is_pulled(RequestKind kind) {
    return kind == RequestKind::kPullPage || kind == RequestKind::kPullWindow;
}

// A ring slot. Words, bits from the low end:
//   word 0: lap 8 | kind 8 | file slot 16 | generation 17          (lap: see lap_of)
//   word 1: lap 8 | page index 56
//   word 2: lap 8 | frame 28 | page count 12 | opened 16
//   word 3: lap 8 | behind 24 | block id 32                        (block: reports, the static map)
// For kWritePage word 3 has `size` in place of `behind`.
struct alignas(32) RequestSlot {
    uint64_t words[4];
};
static_assert(sizeof(RequestSlot) == 32, "two 16-byte stores");
static_assert(limits::kPageSizeMax < 1u << 24, "the size of a page has room in word 3");

// A request for `page_count` pages from `page` on, into as many adjacent frames from `frame` on.
struct Request {
    RequestKind kind = RequestKind::kReadPages;
    uint32_t file_slot = 0;
    uint32_t generation = 0;  // the completion words of its frames will carry it
    PageIndex page = 0;
    FrameIndex frame = 0;
    uint32_t page_count = 1;
    uint32_t opened = 0;  // low bits of FileState::generation, for windows
    uint32_t behind = 0;  // how many of the next tickets belong to it: one worker takes them all
    uint32_t size = 0;    // kWritePage: bytes of the page that lie before the end of the file
    uint32_t block = 0;
    uint64_t ticket = 0;  // of the slot that it lay in; not stored in the slot's words
};

// Returns the lap of a ticket, which is not 0 and differs between consecutive laps. So a slot of an
// earlier lap is never mistaken for this one. The value repeats after 255 laps. A worker that read
// half a slot 255 laps ago fails its claim, because the head has moved.
PENSTOCK_BOTH constexpr uint64_t lap_of(uint64_t ticket, int ring_shift) {
    return (ticket >> ring_shift) % 255 + 1;
}

PENSTOCK_BOTH inline void encode_request(const Request& request, uint64_t lap, uint64_t words[4]) {
    words[0] = lap | (uint64_t{static_cast<uint32_t>(request.kind)} << 8) |
               (uint64_t{request.file_slot} << 16) | (uint64_t{request.generation} << 32);
    words[1] = lap | (request.page << 8);
    words[2] = lap | (uint64_t{request.frame} << 8) | (uint64_t{request.page_count} << 36) |
               (uint64_t{request.opened & 0xffff} << 48);
    const bool writes = request.kind == RequestKind::kWritePage;
    words[3] = lap | (uint64_t{writes ? request.size : request.behind} << 8) |
               (uint64_t{request.block} << 32);
}

PENSTOCK_BOTH inline Request decode_request(const uint64_t words[4]) {
    Request request;
    request.kind = static_cast<RequestKind>((words[0] >> 8) & 0xff);
    request.file_slot = static_cast<uint32_t>((words[0] >> 16) & 0xffff);
    request.generation = static_cast<uint32_t>((words[0] >> 32) & kGenerationMax);
    request.page = words[1] >> 8;
    request.frame = static_cast<FrameIndex>((words[2] >> 8) & ((1u << limits::kFrameBits) - 1));
    request.page_count = static_cast<uint32_t>((words[2] >> 36) & 0xfff);
    request.opened = static_cast<uint32_t>(words[2] >> 48);
    const auto number = static_cast<uint32_t>((words[3] >> 8) & 0xffffff);
    (request.kind == RequestKind::kWritePage ? request.size : request.behind) = number;
    request.block = static_cast<uint32_t>(words[3] >> 32);
    return request;
}

// Makes the answer to a kPullPage or kPullWindow: the address of the bytes in mapped host memory.
// Answers lie in device memory, by ticket. The host may overwrite the bytes when the request's slot
// has another lap: the team stores 0, the next one its own. Both halves carry the lap of the
// ticket, because a copy engine that reads words during a write may bring halves of them.
//   lap 8 | address bits 12 to 35 | lap 8 | address bits 36 to 58 | waited 1
// `waited`: the OS page cache did not have all of the bytes.
PENSTOCK_BOTH inline uint64_t make_answer(const void* bytes, uint64_t lap, bool waited) {
    const uint64_t page = reinterpret_cast<uint64_t>(bytes) >> 12;
    return lap | (page & 0xffffff) << 8 | lap << 32 | (page >> 24 & 0x7fffff) << 40 |
           uint64_t{waited} << 63;
}
// Returns the lap of an answer, or 0, which is no lap, if only half of the answer has arrived.
PENSTOCK_BOTH constexpr uint64_t lap_of_answer(uint64_t answer) {
    const uint64_t lap = answer & 0xff;
    return (answer >> 32 & 0xff) == lap ? lap : 0;
}
// Returns the address in an answer; null for 0, which is no answer.
PENSTOCK_BOTH inline const std::byte* bytes_of_answer(uint64_t answer) {
    const uint64_t page = (answer >> 8 & 0xffffff) | (answer >> 40 & 0x7fffff) << 24;
    return reinterpret_cast<const std::byte*>(page << 12);
}
PENSTOCK_BOTH constexpr bool waited_of_answer(uint64_t answer) { return answer >> 63 != 0; }

// Completion word of a frame: generation 17 | errno 15 | bytes 32. `bytes` is the part of the page
// that the file had; the rest of the frame is zero. The word stays valid as long as the frame holds
// the page.
using Completion = uint64_t;

// Stands in place of an errno: the file was closed before the request was served. It is the result
// for calls with that descriptor. Calls with another descriptor of the file request the page again.
constexpr uint32_t kErrorClosed = 0x7fff;

PENSTOCK_BOTH constexpr Completion make_completion(uint32_t generation, uint32_t error_number,
                                                   uint32_t bytes) {
    return uint64_t{generation} | (uint64_t{error_number} << 17) | (uint64_t{bytes} << 32);
}
PENSTOCK_BOTH constexpr uint32_t completion_generation(Completion word) {
    return static_cast<uint32_t>(word & kGenerationMax);
}
PENSTOCK_BOTH constexpr uint32_t completion_error(Completion word) {
    return static_cast<uint32_t>((word >> 17) & 0x7fff);
}
PENSTOCK_BOTH constexpr uint32_t completion_bytes(Completion word) {
    return static_cast<uint32_t>(word >> 32);
}

}  // namespace penstock
