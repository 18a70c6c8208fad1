// Loads libpenstock-preload-service.so, which lies beside this library.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace penstock::preload {

// The functions of service/service.h.
struct Service {
    ssize_t (*move)(int fd, void* memory, size_t size, off_t offset, bool write);
    uint64_t (*observe)(int fd, unsigned meaning, off_t offset, size_t size);
    void (*expect)(const char* text, size_t size);
    void (*forget)(unsigned first, unsigned last);
};

// Returns whether the calling thread is probably in a handler of one of `signals` (bit 0: signal
// 1), because it has some of them blocked. What was interrupted may hold the locks of the loader
// and of the allocator. Threads that leave signals to others have nearly all of them blocked.
bool may_be_handler(uint64_t signals);
// The caller is the child of a fork.
void forget_loading();
// Returns the service, and loads it first if necessary. Returns null if that fails, and in the
// child of a fork that came while another thread was loading it: the loader's lists may be half
// made there. Any number of threads may call it at once.
const Service* load_service();
// Returns the service if it is loaded, else null. Cost: a load.
const Service* loaded_service();

}  // namespace penstock::preload
