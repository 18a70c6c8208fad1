// Switches from one stack to another: a dozen instructions on x86-64, Boost.Context's fcontext
// elsewhere.
//
// This code keeps calls and returns paired on each stack, so that the processor predicts returns.
// fcontext is called and leaves by a jump, after which each `ret` of the lane is mispredicted. The
// floating-point control words are not switched: a kernel that changes them changes them for its
// block.
#pragma once

#include "backend/cpu/sanitizer_fibers.h"

#if !defined(__x86_64__)
#define PENSTOCK_FCONTEXT 1
#elif !defined(PENSTOCK_FCONTEXT)
#define PENSTOCK_FCONTEXT 0  // may be defined to 1, to compare
#endif

namespace penstock::backend::cpu {

// Stores the caller's position in `*from` and continues where `to` stopped. Returns when a later
// switch continues at that position. Callers must not be instrumented (sanitizer_fibers.h).
#if PENSTOCK_FCONTEXT
void switch_stack(void** from, void* to);
#else
// Inline, so that the compiler saves only the registers that its caller needs, and fewer cache
// lines of each lane's stack are touched. It pushes below the stack pointer, so it needs
// -mno-red-zone (cmake/PenstockFlags.cmake). A new stack looks the same: new_stack().
PENSTOCK_UNINSTRUMENTED __attribute__((always_inline)) inline void switch_stack(void** from,
                                                                                void* to) {
    asm volatile(
        "pushq %%rbp\n\t"
        "leaq 1f(%%rip), %%rax\n\t"
        "pushq %%rax\n\t"
        "movq %%rsp, (%%rdi)\n\t"
        "movq %%rsi, %%rsp\n\t"
        "popq %%rax\n\t"
        "jmpq *%%rax\n\t"
        "1:\n\t"
        "popq %%rbp"
        : "+D"(from), "+S"(to)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
          "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
          "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}
#endif

// Returns the context that runs first_frame() on the stack [bottom, top).
void* new_stack(char* bottom, char* top);

// The first function on each new stack; in lanes.cc.
[[noreturn]] void first_frame();

}  // namespace penstock::backend::cpu
