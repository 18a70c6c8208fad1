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

// first_frame() finds the stack as after a call with a return address of 0, which ends backtraces.
// `top` must be aligned to 16.
PENSTOCK_UNINSTRUMENTED void* new_stack(char* /*bottom*/, char* top) {
    auto* word = reinterpret_cast<uintptr_t*>(top);
    *--word = 0;  // the return address; at entry the stack pointer is 8 mod 16
    *--word = reinterpret_cast<uintptr_t>(&first_frame);
    return word;
}

#endif

}  // namespace penstock::backend::cpu
