// Blocks that wait at a gate, and what opens it: for the time from ready to running.
#pragma once

#include <cstdint>

#include "penstock/device.h"
#include "penstock/status.h"

namespace penstock::workloads {

// Launches `blocks` blocks of `threads` GPU threads that wait until `*gate == value`, then add one
// to `*passed`. Both are device memory.
Status launch_waiters(Stream& stream, unsigned blocks, unsigned threads, const uint64_t* gate,
                      uint64_t value, unsigned long long* passed);
// Stores `value` in `*gate`.
Status open_gate(Stream& stream, uint64_t* gate, uint64_t value);
// Launches `blocks` blocks of 256 GPU threads that compute `rounds` rounds each and store a result
// in `out`, a float for each block.
Status keep_busy(Stream& stream, unsigned blocks, unsigned rounds, float* out);

}  // namespace penstock::workloads
