// The programs that both protocols are checked with: production templates, small numbers, data
// races as errors.
//
// One file for each protocol builds them. `nightly` adds forms that take minutes.
#pragma once

#include <vector>

#include "memory_model/program.h"

namespace penstock::memory_model {

// Request queue (device/request_queue.cuh, src/request_queue/ring.h).
struct RingForm {
    int shift = 1;                          // slots = 1 << shift
    std::vector<std::vector<int>> batches;  // of each producer: how many requests it has in flight
                                            // at once
    int consumers = 2;
    int drain_max = 1;  // requests that a consumer takes at once
    int share = 1;
    bool deferrals = false;
};
Program ring_program(const RingForm& form);
std::vector<Program> ring_programs(bool nightly);

// Page cache: page entries, frames, leaves (include/penstock/device/page_cache.cuh and below).
std::vector<Program> cache_programs(bool nightly);

// Control ports (device/control_port.cuh, src/service/control_calls.cc).
std::vector<Program> control_port_programs(bool nightly);

// Blocks that leave and come back (device/preemption_queue.cuh, src/preemption/preemption.cc).
std::vector<Program> preemption_programs(bool nightly);

// Windows of readahead (include/penstock/device/readahead.cuh).
std::vector<Program> window_programs(bool nightly);
// Likewise, each with a mistake that must be found.
std::vector<Program> window_canaries();

// Windows on files that are written (include/penstock/device/write_sequence.cuh), and the same with
// mistakes.
std::vector<Program> written_window_programs(bool nightly);
std::vector<Program> written_window_canaries();

// Dirty pages (include/penstock/device/dirty_page.cuh), and the same with mistakes.
std::vector<Program> write_programs(bool nightly);
std::vector<Program> write_canaries();

std::vector<Program> all_programs(bool nightly);

}  // namespace penstock::memory_model
