// How the wrappers of libc's functions are written. Each calls the function that would have been
// called without this library, and returns its result and its errno.
//
// A wrapper has its name as an assembler label: libc's headers declare the names with exception
// specifications and ellipses that a definition would have to repeat. Functions with an ellipsis
// are defined, and called, without: the ABIs of x86-64 and of 64-bit Arm pass such arguments alike.
#pragma once

#include "next.h"

#define WRAP(result, name, parameters)                                                      \
    extern "C" [[gnu::visibility("default")]] result wrap_##name parameters __asm__(#name); \
    result wrap_##name parameters

// Wraps a call that moves bytes. `recorded` makes it, by `libc`.
#define SERVED(name, parameters, recorded) \
    WRAP(ssize_t, name, parameters) {      \
        const Next* libc = next();         \
        return recorded;                   \
    }
