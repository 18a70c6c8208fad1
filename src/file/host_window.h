// Host memory that holds copies of chunks which the host cannot address, for other processes to
// read. The cache has the truth: a copy may be dropped at any time. The lock of the cache protects
// all calls.
#pragma once

#include <memory>

#include "chunk_cache/chunk_cache.h"
#include "file/cache_memory.h"

namespace penstock::file {

class HostWindow {
public:
    // The memory is pinned for copies of `device`, where the system allows that. Errors: ENOMEM.
    static Result<std::unique_ptr<HostWindow>> create(const Device& device, uint32_t chunk_size,
                                                      uint32_t slab_chunks, uint32_t slabs);
    ~HostWindow();
    HostWindow(const HostWindow&) = delete;
    HostWindow& operator=(const HostWindow&) = delete;

    // Files have the same numbers as in the cache.
    void add_file(chunk_cache::FileId file);
    void remove_file(chunk_cache::FileId file);
    void drop(chunk_cache::FileId file, uint64_t first, uint64_t last) {
        chunks_.drop(file, first, last);
    }
    // Returns whether a copy of a chunk is under way.
    [[nodiscard]] bool is_coming(chunk_cache::FileId file, uint64_t number) {
        return chunks_.holds(file, number) &&
               chunks_.chunk(chunks_.find(file, number)).state == chunk_cache::State::kFilling;
    }
    [[nodiscard]] chunk_cache::ChunkCache& chunks() { return chunks_; }
    [[nodiscard]] std::byte* address(chunk_cache::ChunkId id) const {
        return arena_.slab(id / slab_chunks_) + uint64_t{id % slab_chunks_} * chunk_size_;
    }
    [[nodiscard]] int arena() const { return arena_.descriptor(); }
    [[nodiscard]] uint64_t size() const { return chunks_.statistics().chunks * chunk_size_; }

private:
    HostWindow(Device device, uint32_t chunk_size, uint32_t slab_chunks);

    const Device device_;
    const uint32_t chunk_size_, slab_chunks_;
    uint32_t pinned_ = 0;  // slabs
    HostArena arena_;
    chunk_cache::ChunkCache chunks_;
};

}  // namespace penstock::file
