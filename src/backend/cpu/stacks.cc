#include "backend/cpu/stacks.h"

#include <sys/mman.h>

namespace penstock::backend::cpu {
namespace {

constexpr size_t kGuardSize = 4096;
constexpr uint64_t kCanary = 0x70656e73746f636b;  // "penstock"
constexpr size_t kCanaryWords = 8;                // one cache line
constexpr size_t kStagger = 5 * 64;  // bytes: odd in cache lines, so that all sets are reached

}  // namespace

StackPool::~StackPool() {
    for (char* slab : slabs_) {
        if (slab != nullptr) munmap(slab, kSlabStacks * kPitch);
    }
}

PENSTOCK_UNINSTRUMENTED Stack* StackPool::take() {
    if (free_ == nullptr && !grow()) return nullptr;
    Stack* stack = free_;
    free_ = stack->next;
    return stack;
}

PENSTOCK_UNINSTRUMENTED void StackPool::give_back(Stack* stack) {
    stack->next = free_;
    free_ = stack;
}

PENSTOCK_UNINSTRUMENTED bool StackPool::intact(const Stack* stack) {
    const auto* words = reinterpret_cast<const uint64_t*>(stack->low);
    uint64_t difference = 0;
    for (size_t i = 0; i < kCanaryWords; ++i) difference |= words[i] ^ kCanary;
    return difference == 0;
}

PENSTOCK_UNINSTRUMENTED bool StackPool::grow() {
    if (stack_count_ == kLanesMax) return false;
    void* mapping = mmap(nullptr, kSlabStacks * kPitch, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return false;
    char* slab = static_cast<char*>(mapping);
    slabs_[stack_count_ / kSlabStacks] = slab;
    bool guarded = stack_count_ == 0;
    for (unsigned i = 0; i < kSlabStacks; ++i) {
        char* slot = slab + i * kPitch;
        if (guarded) mprotect(slot, kGuardSize, PROT_NONE);
        Stack& stack = stacks_[stack_count_ + i];
        stack.low = slot + kGuardSize;
        stack.top = slot + kPitch - ((stack_count_ + i) * kStagger) % 4096;
        auto* words = reinterpret_cast<uint64_t*>(stack.low);
        for (size_t word = 0; word < kCanaryWords; ++word) words[word] = kCanary;
    }
    // In this order the lanes that start first get neighbouring stacks.
    for (unsigned i = kSlabStacks; i-- > 0;) give_back(&stacks_[stack_count_ + i]);
    stack_count_ += kSlabStacks;
    return true;
}

}  // namespace penstock::backend::cpu
