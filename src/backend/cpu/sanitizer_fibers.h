// Tells AddressSanitizer and ThreadSanitizer about fibers. No other file calls them. Does nothing
// without them.
//
// ASan must know on which stack the thread runs. TSan gets one fiber object per lane, and is told
// that a switch orders nothing (no-sync). So lanes that miss a barrier are reported as a race,
// although they share an OS thread. `release` and `acquire` at rendezvous, start and end report the
// order that does exist. Functions that switch must carry PENSTOCK_UNINSTRUMENTED: no instrumented
// code may run between the announcement and the jump, and the lists of lanes are not data on which
// kernels race.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#define PENSTOCK_HAS_FEATURE(x) __has_feature(x)
#else
#define PENSTOCK_HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || PENSTOCK_HAS_FEATURE(address_sanitizer)
#define PENSTOCK_ASAN 1
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define PENSTOCK_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || PENSTOCK_HAS_FEATURE(thread_sanitizer)
#define PENSTOCK_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define PENSTOCK_TSAN 0
#endif

#define PENSTOCK_UNINSTRUMENTED __attribute__((no_sanitize("thread"), no_sanitize("address")))

namespace penstock::backend::cpu {

inline constexpr bool kAddressSanitizer = PENSTOCK_ASAN;
inline constexpr bool kThreadSanitizer = PENSTOCK_TSAN;

// A stack that control can leave and return to: a lane's, or the OS thread's own.
struct Fiber {
    void* context = nullptr;  // where to continue, while control is elsewhere (switch.h)
#if PENSTOCK_ASAN
    void* fake_stack = nullptr;
    const void* stack_bottom = nullptr;  // lowest address
    size_t stack_size = 0;
#endif
#if PENSTOCK_TSAN
    void* tsan_fiber = nullptr;
#endif
};

namespace sanitizer {

// Must be called before the first switch to a lane that starts on the stack [bottom, bottom +
// size).
PENSTOCK_UNINSTRUMENTED inline void begin([[maybe_unused]] Fiber& fiber,
                                          [[maybe_unused]] const void* bottom,
                                          [[maybe_unused]] size_t size) {
#if PENSTOCK_ASAN
    fiber.fake_stack = nullptr;
    fiber.stack_bottom = bottom;
    fiber.stack_size = size;
#endif
}

// Must be called for each lane before its block starts, on the thread's own stack: TSan orders what
// the creator of a fiber did before what the fiber does.
PENSTOCK_UNINSTRUMENTED inline void prepare([[maybe_unused]] Fiber& fiber) {
#if PENSTOCK_TSAN
    if (fiber.tsan_fiber == nullptr) fiber.tsan_fiber = __tsan_create_fiber(0);
#endif
}

// Registers the OS thread's own stack. Must be called on that thread before lanes run on it.
PENSTOCK_UNINSTRUMENTED inline void begin_thread([[maybe_unused]] Fiber& fiber) {
#if PENSTOCK_ASAN
    if (fiber.stack_bottom == nullptr) {
        pthread_attr_t attributes;
        void* bottom = nullptr;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
        pthread_attr_getstack(&attributes, &bottom, &fiber.stack_size);
        fiber.stack_bottom = bottom;
        pthread_attr_destroy(&attributes);
    }
#endif
#if PENSTOCK_TSAN
    fiber.tsan_fiber = __tsan_get_current_fiber();
#endif
}

// Ends a lane that will not run again or was abandoned. Must be called on another fiber.
PENSTOCK_UNINSTRUMENTED inline void end([[maybe_unused]] Fiber& fiber) {
#if PENSTOCK_TSAN
    if (fiber.tsan_fiber != nullptr) __tsan_destroy_fiber(fiber.tsan_fiber);
    fiber.tsan_fiber = nullptr;
#endif
}

// Must be called directly before the jump. `ends`: control never returns to `from`.
PENSTOCK_UNINSTRUMENTED inline void leave([[maybe_unused]] Fiber& from, [[maybe_unused]] Fiber& to,
                                          [[maybe_unused]] bool ends) {
#if PENSTOCK_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack_bottom,
                                   to.stack_size);
#endif
#if PENSTOCK_TSAN
    __tsan_switch_to_fiber(to.tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
}

// Must be called directly after the jump, on its destination fiber.
PENSTOCK_UNINSTRUMENTED inline void arrive([[maybe_unused]] Fiber& self) {
#if PENSTOCK_ASAN
    __sanitizer_finish_switch_fiber(self.fake_stack, nullptr, nullptr);
#endif
}

// Everything before `release(x)` happens before everything after a later `acquire(x)`.
PENSTOCK_UNINSTRUMENTED inline void release([[maybe_unused]] void* object) {
#if PENSTOCK_TSAN
    __tsan_release(object);
#endif
}
PENSTOCK_UNINSTRUMENTED inline void acquire([[maybe_unused]] void* object) {
#if PENSTOCK_TSAN
    __tsan_acquire(object);
#endif
}

// Allow or forbid kernels to touch these bytes.
inline void allow([[maybe_unused]] const void* bytes, [[maybe_unused]] size_t size) {
#if PENSTOCK_ASAN
    __asan_unpoison_memory_region(bytes, size);
#endif
}
inline void forbid([[maybe_unused]] const void* bytes, [[maybe_unused]] size_t size) {
#if PENSTOCK_ASAN
    __asan_poison_memory_region(bytes, size);
#endif
}

}  // namespace sanitizer
}  // namespace penstock::backend::cpu
