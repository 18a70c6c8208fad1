// How much a test does: by day, by night, and where ThreadSanitizer follows each access.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace penstock::testing {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = kThreadSanitizer;
#endif

// PENSTOCK_NIGHTLY=1: the long forms.
inline bool nightly() { return std::getenv("PENSTOCK_NIGHTLY") != nullptr; }

// `few` under ThreadSanitizer, which makes accesses ten times as long, and looks for races: they
// show with few as with many.
constexpr uint64_t usually(uint64_t many, uint64_t few) { return kThreadSanitizer ? few : many; }

// The same; at night `at_night`.
inline uint64_t effort(uint64_t many, uint64_t few, uint64_t at_night) {
    return nightly() ? at_night : usually(many, few);
}

}  // namespace penstock::testing
