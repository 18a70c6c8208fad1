// Going from one stack to another: a dozen instructions on x86-64, Boost.Context's fcontext
// elsewhere.
//
// Ours leaves by `ret`, so that a switch looks like a call and a return to the processor, which
// predicts returns; fcontext leaves by a jump, after which it predicts every `ret` of the lane
// wrong. The floating-point control words are not switched: a kernel that changes them changes them
// for its block.
#pragma once

#if !defined(__x86_64__)
#define PENSTOCK_FCONTEXT 1
#elif !defined(PENSTOCK_FCONTEXT)
#define PENSTOCK_FCONTEXT 0  // may be defined to 1, to compare
#endif

namespace penstock::backend::cpu {

// Stores where the caller stops in `*from` and goes on where `to` stopped; returns when somebody
// goes on there. Callers must not be instrumented (sanitizer_fibers.h).
__attribute__((visibility("hidden"))) void switch_stack(void** from, void* to);

// What to switch to in order to run first_frame() on the stack [bottom, top).
void* new_stack(char* bottom, char* top);

// The first function on every new stack; in lanes.cc.
[[noreturn]] void first_frame();

}  // namespace penstock::backend::cpu
