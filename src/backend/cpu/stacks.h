// The stacks of one OS thread's lanes. They are taken and given back without locks, mapped 32 at a
// time, and kept forever.
//
// One thread uses a pool. Each 32 stacks lie in one mapping, at a pitch that is no power of two and
// with their tops staggered by a few cache lines. So the same frame of many lanes does not fall
// into one cache set. The first 32 stacks have guard pages. The others would cost two mappings each
// of the process's 65,530, so they have a canary instead, which is checked when a lane ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/sanitizer_fibers.h"

namespace penstock::backend::cpu {

inline constexpr unsigned kLanesMax = 1024;  // CUDA's limit of threads in a block
inline constexpr size_t kStackSize = kAddressSanitizer || kThreadSanitizer ? 256 << 10 : 64 << 10;

struct Stack {
    char* low = nullptr;  // lowest usable byte
    char* top = nullptr;  // where the first frame begins
    Stack* next = nullptr;
};

class StackPool {
public:
    StackPool() = default;
    StackPool(const StackPool&) = delete;
    StackPool& operator=(const StackPool&) = delete;
    ~StackPool();

    Stack* take();  // null: no memory, or kLanesMax are in use
    void give_back(Stack* stack);

    // Returns false if the stack has overflowed. It may then have destroyed its neighbour.
    [[nodiscard]] static bool intact(const Stack* stack);

private:
    bool grow();

    static constexpr unsigned kSlabStacks = 32;
    static constexpr size_t kPitch = kStackSize + 4096;
    Stack stacks_[kLanesMax];
    char* slabs_[kLanesMax / kSlabStacks] = {};
    unsigned stack_count_ = 0;
    Stack* free_ = nullptr;
};

}  // namespace penstock::backend::cpu
