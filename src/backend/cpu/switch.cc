#include "backend/cpu/switch.h"

#include <cstddef>
#include <cstdint>

#include "backend/cpu/sanitizer_fibers.h"

#if PENSTOCK_FCONTEXT
#include <boost/context/detail/fcontext.hpp>
#endif

namespace penstock::backend::cpu {

#if PENSTOCK_FCONTEXT

namespace context = boost::context::detail;

namespace {

PENSTOCK_UNINSTRUMENTED void start(context::transfer_t transfer) {
    *static_cast<void**>(transfer.data) = transfer.fctx;
    first_frame();
}

}  // namespace

PENSTOCK_UNINSTRUMENTED void switch_stack(void** from, void* to) {
    context::transfer_t transfer = context::jump_fcontext(to, from);
    *static_cast<void**>(transfer.data) = transfer.fctx;
}

PENSTOCK_UNINSTRUMENTED void* new_stack(char* bottom, char* top) {
    return context::make_fcontext(top, static_cast<size_t>(top - bottom), start);
}

#else

namespace {

constexpr size_t kSavedRegisters = 6;  // those that a function must preserve (System V ABI)

}  // namespace

// from in %rdi, to in %rsi.
__attribute__((naked)) PENSTOCK_UNINSTRUMENTED void switch_stack(void** /*from*/, void* /*to*/) {
    asm("pushq %rbp\n\t"
        "pushq %rbx\n\t"
        "pushq %r12\n\t"
        "pushq %r13\n\t"
        "pushq %r14\n\t"
        "pushq %r15\n\t"
        "movq %rsp, (%rdi)\n\t"
        "movq %rsi, %rsp\n\t"
        "popq %r15\n\t"
        "popq %r14\n\t"
        "popq %r13\n\t"
        "popq %r12\n\t"
        "popq %rbx\n\t"
        "popq %rbp\n\t"
        "ret");
}

// Looks as if first_frame's caller had been switched away from just before the call: registers of
// 0, the address to go to, and a return address of 0, which ends backtraces. `top` is aligned to
// 16.
PENSTOCK_UNINSTRUMENTED void* new_stack(char* /*bottom*/, char* top) {
    auto* word = reinterpret_cast<uintptr_t*>(top);
    *--word = 0;  // the return address; at entry the stack pointer is 8 mod 16
    *--word = reinterpret_cast<uintptr_t>(&first_frame);
    for (size_t i = 0; i < kSavedRegisters; ++i) *--word = 0;
    return word;
}

#endif

}  // namespace penstock::backend::cpu
