// Connections to the service of a file cache, and the memory that it shares (abi/chunk_table.h,
// abi/cache_protocol.h). Nothing here takes a lock. Every wait for the service has a limit.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "penstock/abi/cache_protocol.h"
#include "penstock/abi/chunk_table.h"

namespace penstock::preload {

struct Shared {
    char* begin = nullptr;
    size_t size = 0;
};

// What one service shares. It stays mapped after the service has ended.
struct CacheMapping {
    uint32_t number = 0;
    Shared shared[3];  // the table, the arena, the marks
    chunk_table::Reader reader;
    char* arena = nullptr;            // written only where chunks are granted
    std::atomic<uint32_t> writer{0};  // the number of this program in grants
};

// Sets the path of the service's socket, and whether this program writes to cached files. Returns
// false if the path is too long.
bool set_cache_socket(const char* path, size_t size, bool writes);
// Returns what the service shares; connects if necessary. Null: there is no service, or another
// thread connects just now.
const CacheMapping* current_cache();
const CacheMapping* cache_by_number(uint32_t number);
// Returns the number of the last error of a write-back; 0: this program is not connected.
uint64_t last_error_number();
// Asks the service of `cache`, with a descriptor if it is not -1. Waits where many threads ask at
// once. Returns false if there is no answer within some seconds, or the service has ended.
bool ask_cache(const CacheMapping& cache, cache_protocol::CacheRequest request, int descriptor,
               cache_protocol::CacheReply* reply);
// Tells the service something that has no answer. Where it is too busy to hear it, it is not told,
// unless the caller `waits`.
void tell_cache(const CacheMapping& cache, const cache_protocol::CacheRequest& request,
                bool waits = false);
// Returns the number of this program in grants; 0: the service does not answer.
uint32_t writer_number(const CacheMapping& cache);
// In the child of a fork: its parent has the same connections.
void forget_connections();
// Closes the connections, and unmaps what services share, for good. No thread copies into the arena
// then; copies out of it may be under way, and count for nothing.
void end_connections();

}  // namespace penstock::preload
