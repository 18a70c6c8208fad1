// Connections to the service of a file cache, and the memory that it shares (abi/chunk_table.h,
// abi/cache_protocol.h). Nothing here takes a lock. Every wait for the service has a limit.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "penstock/abi/cache_protocol.h"
#include "penstock/abi/chunk_table.h"

namespace penstock::preload {

// What one service shares. It stays mapped after the service has ended.
struct CacheMapping {
    uint32_t number = 0;
    chunk_table::Reader reader;
    const char* arena = nullptr;
};

// Sets the path of the service's socket. Returns false if it is too long.
bool set_cache_socket(const char* path, size_t size);
// Returns what the service shares; connects if necessary. Null: there is no service, or another
// thread connects just now.
const CacheMapping* current_cache();
const CacheMapping* cache_by_number(uint32_t number);
// Asks the service of `cache`, with a descriptor if it is not -1. Returns false if there is no
// answer within some seconds, or the service has ended.
bool ask_cache(const CacheMapping& cache, cache_protocol::CacheRequest request, int descriptor,
               cache_protocol::CacheReply* reply);
// In the child of a fork: its parent has the same connections.
void forget_connections();

}  // namespace penstock::preload
