// A place on the device: an OS thread with a permit, its lanes and stacks, and the block that it
// runs.
//
// The thread runs blocks one after another, each to its end. scheduler.h has what the scheduler's
// lock guards. The members here are written only by the thread itself, except for the atomics.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/lanes.h"
#include "backend/cpu/shared_memory.h"
#include "penstock/kernel.h"

namespace penstock::backend::cpu {

inline constexpr size_t kDynamicSharedMax = 227 << 10;  // bytes; what CUDA gives a block on sm_90

// The Helps of waiting blocks. A Help stays until no resident is in it (Scheduler::remove_help).
using HelpSlots = std::array<std::atomic<const Help*>, kHelpsMax>;

// Calls the Helps from one thread.
class HelpCaller {
public:
    // Calls each Help once. Returns whether there was work.
    bool help(const HelpSlots& helps, unsigned permit, bool waits);
    // Returns the Help whose step the thread is in, or null. A step may take as long as the storage
    // does. Any thread.
    [[nodiscard]] const Help* helping() const { return helping_.load(std::memory_order_seq_cst); }

private:
    std::atomic<const Help*> helping_{nullptr};
};

class Resident {
public:
    Resident(unsigned permit, const HelpSlots* helps);
    Resident(const Resident&) = delete;
    Resident& operator=(const Resident&) = delete;
    ~Resident();

    // Runs block `index` of the launch to its end, on the resident's thread. Returns false if it
    // was stopped; block() says why.
    bool run_block(const LaunchRequest& request, const KernelEntry& kernel, language::Index3 index);

    [[nodiscard]] unsigned permit() const { return block_.permit; }
    [[nodiscard]] BlockState& block() { return block_; }
    [[nodiscard]] const BlockState& block() const { return block_; }
    [[nodiscard]] const Help* helping() const { return help_caller_.helping(); }

private:
    const SharedLayout& layout_of(const void* function);

    BlockState block_;
    std::unique_ptr<LaneState[]> lanes_;
    StackPool stacks_;
    char* dynamic_shared_ = nullptr;
    const void* layout_function_ = nullptr;  // the function whose layout was looked up last
    const SharedLayout* layout_ = nullptr;
    const HelpSlots* helps_;
    HelpCaller help_caller_;
};

}  // namespace penstock::backend::cpu
