// PENSTOCK_CHECK tests an invariant whose violation would give wrong bytes, so it is active in each
// build.
//
// On failure it prints one line and aborts. Errors that a user or a disk can cause must return a
// Status instead. Any thread.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace penstock::base {

[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const char* text) {
    std::fprintf(stderr, "penstock: %s:%d: %s (%s does not hold)\n", file, line, text, condition);
    std::fflush(stderr);
    std::abort();
}

}  // namespace penstock::base

// `text` is a string literal that names the invariant.
#define PENSTOCK_CHECK(condition, text)                                           \
    do {                                                                          \
        if (!(condition)) [[unlikely]]                                            \
            ::penstock::base::check_failed(__FILE__, __LINE__, #condition, text); \
    } while (false)
