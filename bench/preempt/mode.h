// How blocks wait in a run of the preempt benchmark. This is the one place where a mode is chosen.
//
// One thread.
#pragma once

#include <cstdint>

#include "penstock/device.h"

namespace penstock::bench {

enum class WaitMode : uint8_t {
    kSpin,        // the kernels as they are written: a block keeps its place while it waits
    kNever,       // the kernels that `penstock preempt` wrote, with no point taken
    kAdaptive,    // this library's: a block leaves for long waits while others want its place
    kAlways,      // a block leaves at every wait, and comes back first
    kSeedPolicy,  // seed 001: it leaves at every wait, and comes back last, a launch for each block
    kForced,      // for checkpoints: a block leaves at every point, also where it need not wait
    kSplitKernels,  // no preemption: kernels that announce the reads go first, those that read last
    kMorePlaces,    // no preemption: kPlacesFactor times as many blocks are resident
    kBackoff,       // no preemption: a block looks for its bytes and sleeps, longer each time
    kPersistent,    // no preemption: one block that stays takes the tasks of all I/O kernels from a
                    // queue, and reads ahead
};
inline constexpr unsigned kPlacesFactor = 4;  // places for each core, of kMorePlaces

[[nodiscard]] const char* name(WaitMode mode);

// Whether this build has the mode: some need kernels that `penstock preempt` has seen.
[[nodiscard]] bool has_mode(WaitMode mode);

// Prepares `device` for launches in `mode`; nothing runs on it meanwhile. Each launch of workers
// takes `dispatch_delay_us` longer. Ends the program where the device refuses.
void choose_mode(const Device& device, WaitMode mode, double dispatch_delay_us = 0);

}  // namespace penstock::bench
