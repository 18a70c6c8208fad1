// Begins what the environment asks for, in each program that loads this library.
#include <stdio.h>
#include <stdlib.h>

#include <atomic>

#include "cached_files.h"
#include "cached_writes.h"
#include "descriptors.h"
#include "environment.h"
#include "feeder.h"
#include "next.h"
#include "observer.h"
#include "service_library.h"
#include "trace.h"

extern char** environ;

// Tells libpenstock that it is a guest in this program, whose environment it must not change.
extern "C" [[gnu::visibility("default")]] const int penstock_preloaded = 1;

namespace penstock::preload {
namespace {

// Runs before the constructors of the program. Libraries that the program is linked with may be
// initialized earlier, and may call any wrapper.
[[gnu::constructor(101)]] void start() {
    next();
    begin();
}

}  // namespace

void begin() {
    static std::atomic<bool> begun{false};
    if (environ == nullptr || begun.exchange(true)) return;
    begin_descriptors();
    begin_service();
    keep_settings();
    const char* feed = getenv("PENSTOCK_FEED");
    if (feed != nullptr && *feed == '1') {
        begin_feeding();
        begin_observing();
    }
    const char* cache = getenv("PENSTOCK_CACHE");
    const char* write_back = getenv("PENSTOCK_WRITE_BACK");
    if (cache != nullptr && write_back != nullptr && *write_back == '1') begin_writing_back();
    if (cache != nullptr) begin_caching(cache);
    const char* path = getenv("PENSTOCK_TRACE");
    if (path == nullptr || *path == '\0') return;
    const char* why = begin_trace(path);
    if (why != nullptr) fprintf(stderr, "penstock: %s: cannot be traced to: %s\n", path, why);
}

}  // namespace penstock::preload
