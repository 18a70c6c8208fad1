// Completes the environments of programs that this program starts, so that they load this library.
#pragma once

#include <stddef.h>

namespace penstock::preload {

// Returns the value of a variable of the environment; null: it is not set. A program may have a
// getenv() of its own, which allocates.
const char* setting(const char* name);
// Keeps the settings with which this library was loaded. Call it once, at start. Allocates nothing.
void keep_settings();
// Returns how many pointers and bytes of text completed() may need for `environment`.
struct Room {
    size_t pointers = 0, bytes = 0;
};
Room room_for(char* const* environment);
// Returns `environment` where it has the settings; else a copy of its pointers in `pointers`, with
// the settings added. What `environment` says of other preloaded libraries stays. Changes nothing
// in place, and allocates nothing: a child of vfork may call it.
char* const* completed(char* const* environment, char** pointers, char* text);

}  // namespace penstock::preload
