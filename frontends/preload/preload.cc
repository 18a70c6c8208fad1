// Begins what the environment asks for, in each program that loads this library.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <atomic>

#include "cache_connections.h"
#include "cached_files.h"
#include "cached_writes.h"
#include "descriptors.h"
#include "environment.h"
#include "feeder.h"
#include "next.h"
#include "observer.h"
#include "raw_calls.h"
#include "service_library.h"
#include "start.h"
#include "trace.h"
#include "trace_streams.h"

extern char** environ;

// Tells libpenstock that it is a guest in this program, whose environment it must not change.
extern "C" [[gnu::visibility("default")]] const int penstock_preloaded = 1;

// AddressSanitizer's shared run-time asks for options here. It would end a program in which another
// library is loaded before it, as this one is. It need not come first: a wrapper here goes on to
// its function of the same name, and this library has no allocator.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
    return "verify_asan_link_order=0";
}

namespace penstock::preload {
namespace {

int trace_error = 0;  // why there is no trace

bool is_set(const char* name) {
    const char* text = setting(name);
    return text != nullptr && *text == '1';
}

// Runs before the constructors of the program. Libraries that the program is linked with may be
// initialized earlier, and may call any wrapper.
[[gnu::constructor(101)]] void start() {
    next();
    begin();
    if (is_child_of_vfork()) begin_child();  // a constructor has forked before
    // The child of a fork has the descriptors, with one position for both.
    pthread_atfork([] { give_all_positions(); }, nullptr, begin_child);
    internal::started.store(true);
    if (internal::caching.load(std::memory_order_relaxed)) begin_watching();
    feed_mappings();
    if (trace_error != 0)
        fprintf(stderr, "penstock: %s: cannot be traced to: %s\n", setting("PENSTOCK_TRACE"),
                strerror(trace_error));
    const char* const why = traces() ? begin_tracing_streams() : nullptr;
    if (why != nullptr)
        fprintf(stderr, "penstock: %s: has nothing of stdio: %s\n", setting("PENSTOCK_TRACE"), why);
}

}  // namespace

void begin() {
    static std::atomic<bool> begun{false};
    if (environ == nullptr || begun.exchange(true)) return;
    const int error = errno;
    begin_descriptors();
    keep_settings();
    if (is_set("PENSTOCK_FEED")) {
        begin_feeding();
        begin_observing();
    }
    if (const char* cache = setting("PENSTOCK_CACHE"); cache != nullptr) {
        if (is_set("PENSTOCK_WRITE_BACK")) begin_writing_back();
        begin_caching(cache);
    }
    const char* path = setting("PENSTOCK_TRACE");
    if (path != nullptr && *path != '\0') trace_error = begin_trace(path);
    errno = error;
}

void begin_child() {
    begin_descriptors();
    forget_loading();
    forget_feeds();
    forget_observations();
    if (internal::caching.load(std::memory_order_relaxed)) forget_connections();
    forget_thread();
    watch_thread();
}

}  // namespace penstock::preload
