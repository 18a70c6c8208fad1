#include "backend/cpu/resident.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace penstock::backend::cpu {
namespace {

constexpr size_t kSharedAlignment = 1024;

language::Index3 index_of(const Dimensions& dimensions) {
    return {dimensions.x, dimensions.y, dimensions.z};
}

}  // namespace

Resident::Resident(unsigned permit, const HelpSlots* helps)
    : lanes_(new LaneState[kLanesMax]),
      dynamic_shared_(static_cast<char*>(::operator new (kDynamicSharedMax + kSharedAlignment,
                                                         std::align_val_t{kSharedAlignment}))),
      helps_(helps) {
    block_.permit = permit;
    block_.lanes = lanes_.get();
    block_.stacks = &stacks_;
}

Resident::~Resident() {
    for (unsigned rank = 0; rank < kLanesMax; ++rank) sanitizer::end(lanes_[rank]);
    sanitizer::allow(dynamic_shared_, kDynamicSharedMax + kSharedAlignment);
    ::operator delete (dynamic_shared_, std::align_val_t{kSharedAlignment});
}

bool Resident::run_block(const LaunchRequest& request, const KernelEntry& kernel,
                         language::Index3 index) {
    size_t shared_size = request.shape.dynamic_shared_size;
    block_.block_index = index;
    block_.block_dimensions = index_of(request.shape.block);
    block_.grid_dimensions = index_of(request.shape.grid);
    block_.lane_count = static_cast<unsigned>(request.shape.block.count());
    block_.dynamic_shared = dynamic_shared_;
    block_.dynamic_shared_size = shared_size;
    block_.invoke = request.invoke;
    block_.arguments = request.arguments.get();
    block_.kernel_key = kernel.key;
    sanitizer::allow(dynamic_shared_, kDynamicSharedMax + kSharedAlignment);
    std::memset(dynamic_shared_, kPoison, shared_size);
    sanitizer::forbid(dynamic_shared_ + shared_size,
                      kDynamicSharedMax + kSharedAlignment - shared_size);
    poison_shared(layout_of(kernel.function));
    reset_block(block_);
    for (;;) {
        switch (run_lanes(block_)) {
            case Command::kHelp:
                block_.helped = help_caller_.help(*helps_, block_.permit, true);
                break;
            case Command::kStart:
                block_.helped = help_caller_.help(*helps_, block_.permit, false);
                break;
            case Command::kDone:
                return true;
            case Command::kStopped:
                abandon_lanes(block_);
                return false;
        }
    }
}

const SharedLayout& Resident::layout_of(const void* function) {
    if (function != layout_function_) {
        layout_ = &shared_layout(function);
        layout_function_ = function;
    }
    return *layout_;
}

// Announces the Help that it will call, then checks that it is still in its slot. Either this
// thread sees the empty slot, or the thread that emptied it sees `helping_` (partner:
// Scheduler::remove_help).
bool HelpCaller::help(const HelpSlots& helps, unsigned permit, bool waits) {
    bool helped = false;
    for (const auto& slot : helps) {
        const Help* help = slot.load(std::memory_order_acquire);
        if (help == nullptr) continue;
        helping_.store(help, std::memory_order_seq_cst);
        if (slot.load(std::memory_order_seq_cst) == help)
            helped |= help->step(help->context, permit, waits);
        helping_.store(nullptr, std::memory_order_release);
    }
    return helped;
}

}  // namespace penstock::backend::cpu
