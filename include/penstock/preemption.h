// Blocks that leave the GPU while they wait: how kernels say it, what it cost, and how it is tuned.
//
// `penstock preempt kernel.cu -o out.cu` makes a second form of each kernel with points (`#pragma
// preempt`, device/preemption.cuh), and lists it with PENSTOCK_PREEMPTIBLE. launch() then uses that
// form; programs change nothing. A launch is complete when its last block is, also if blocks left
// and came back. Source: seed 001 (GPUpIO).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

#include "penstock/abi/preemption.h"
#include "penstock/device.h"
#include "penstock/kernel.h"
#include "penstock/status.h"

namespace penstock {

namespace preemption {

// The arguments of a preemptible kernel: those of the launch, and what the library adds.
struct Arguments {
    std::shared_ptr<void> given;
    Launch launch;
};

}  // namespace preemption

// The preemptible form of one kernel. PENSTOCK_PREEMPTIBLE makes it; it lives as long as the
// program.
struct PreemptibleEntry {
    const void* function = nullptr;     // the kernel as the program names it
    const void* preemptible = nullptr;  // its other form, which has an entry of its own
    void (*invoke)(const void* arguments) = nullptr;  // runs it for one lane; preemption::Arguments
    size_t parameter_count = 0;                       // of `function`
    PreemptionFrame frame;
    PreemptibleEntry* next = nullptr;
};
// Enters a preemptible form, or finds the one of a kernel (null: it has none). Any thread.
void register_preemptible(PreemptibleEntry* entry);
const PreemptibleEntry* find_preemptible(const void* function);

// How the preemptible kernels of a device run.
struct PreemptionOptions {
    bool enabled = true;  // false: launch() uses the kernels as the program wrote them
    PreemptionPolicy policy = PreemptionPolicy::kAdaptive;
    // Bytes of device memory for saved blocks, over all launches in flight. A launch that finds too
    // little saves fewer blocks at once; the others spin. Read at the first preemptible launch.
    size_t memory_size = size_t{64} << 20;
    // What a block spends to leave and come back, in ns. A block spins for a wait that is shorter.
    uint64_t switch_ns = 20'000;
    // Whether blocks that come back start before those of other streams, and whether one launch
    // takes up all that are ready. Without both it is the policy of seed 001.
    bool first = true, batches = true;
    // A worker goes on with the next block that is ready.
    bool keeps_popping = true;
    // For studies. Time that each launch of workers takes on the host, in us.
    double dispatch_delay_us = 0;
    // For tests. Share of points at which blocks leave though they need not, 0 to 1.
    double forced_share = 0;
    uint64_t forced_seed = 0;
};
// Sets the options for later launches. Any thread. Errors: EINVAL: a share outside of 0 to 1.
Status set_preemption(const Device& device, const PreemptionOptions& options);

// Counters of all preemptible launches of a device that have ended.
struct PreemptionStatistics {
    uint64_t launches = 0;
    uint64_t blocks = 0;
    uint64_t left = 0;       // how often blocks left
    uint64_t spun = 0;       // how often they waited in their place
    uint64_t full = 0;       // how often there was no memory to leave
    uint64_t restarts = 0;   // launches of workers
    uint64_t resume_ns = 0;  // sum, from the moment that a block is ready until it runs
    uint64_t resume_ns_max = 0;
};
PreemptionStatistics preemption_statistics(const Device& device);

namespace preemption {

// Calls `kPreemptible` for one lane with the arguments of a launch of the other form.
template <auto kPreemptible, class... Parameters>
void invoke(const void* bytes) {
    const auto* arguments = static_cast<const Arguments*>(bytes);
    const auto* pack = static_cast<const kernel_arguments::Pack<Parameters...>*>(
        arguments->given.get());
    std::apply([&](const auto&... values) { kPreemptible(values..., arguments->launch); },
               pack->values);
}

// Makes the entry of a kernel and its preemptible form.
template <auto kKernel, auto kPreemptible, class... Parameters>
PreemptibleEntry make_entry(void (*)(Parameters...), PreemptionFrame frame) {
    return {reinterpret_cast<const void*>(kKernel),
            reinterpret_cast<const void*>(kPreemptible),
            &invoke<kPreemptible, Parameters...>,
            sizeof...(Parameters),
            frame,
            nullptr};
}

}  // namespace preemption
}  // namespace penstock

#define PENSTOCK_UNPACK_(...) __VA_ARGS__
#define PENSTOCK_KERNEL_EXPANDED_(...) PENSTOCK_KERNEL(__VA_ARGS__)

// Lists the preemptible form of a kernel: PENSTOCK_PREEMPTIBLE((kernel<float>),
// (kernel__preemptible<float>), (PreemptionFrame{...})). `penstock preempt` writes it.
#ifdef __NVCC__
#define PENSTOCK_PREEMPTIBLE(kernel, form, frame) PENSTOCK_KERNEL_EXPANDED_(PENSTOCK_UNPACK_ form)
#else
#define PENSTOCK_PREEMPTIBLE(kernel, form, frame)                                           \
    PENSTOCK_KERNEL_EXPANDED_(PENSTOCK_UNPACK_ form)                                        \
    static ::penstock::preemption::Registration PENSTOCK_KERNEL_JOIN(penstock_preemptible_, \
                                                                     __COUNTER__){          \
        ::penstock::preemption::make_entry<PENSTOCK_UNPACK_ kernel, PENSTOCK_UNPACK_ form>( \
            PENSTOCK_UNPACK_ kernel, PENSTOCK_UNPACK_ frame)};
namespace penstock::preemption {
struct Registration {
    PreemptibleEntry entry;
    explicit Registration(const PreemptibleEntry& given) : entry(given) {
        register_preemptible(&entry);
    }
};
}  // namespace penstock::preemption
#endif
