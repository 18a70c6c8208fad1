// The memory of a file cache: slabs of one or several devices, and copies between them and host
// memory. Any thread may copy at once with others; slabs are added at create only.
#pragma once

#include <mutex>
#include <vector>

#include "penstock/device.h"

namespace penstock::file {

class CacheMemory {
public:
    CacheMemory() = default;
    CacheMemory(const CacheMemory&) = delete;
    CacheMemory& operator=(const CacheMemory&) = delete;
    ~CacheMemory();

    // Allocates one slab of a device, all of equal size. Its number is the count of those before.
    // Memory that the host can address is taken from one file of memory, slab after slab.
    Status add_slab(const Device& device, size_t size);
    // Returns the descriptor of that file; -1: no slab lies in it.
    [[nodiscard]] int arena() const { return arena_; }
    [[nodiscard]] std::byte* slab(uint32_t number) const { return slabs_[number].memory; }
    [[nodiscard]] size_t slab_count() const { return slabs_.size(); }

    // Copies between a slab and host memory, and waits for the end.
    Status copy(uint32_t slab, void* to, const void* from, size_t size);
    Status zero(uint32_t slab, void* to, size_t size);

private:
    struct Slab {
        Device device;
        std::byte* memory = nullptr;
        size_t streams = 0;  // which of streams_
    };
    // Idle streams of one device that the host cannot address.
    struct Streams {
        std::string device;
        std::vector<Stream> idle;
    };
    template <class Work>
    Status on_stream(const Slab& slab, Work work);

    Result<std::byte*> add_to_arena(const Device& device, size_t size);

    int arena_ = -1;
    size_t slab_size_ = 0;
    std::vector<Slab> slabs_;
    std::mutex mutex_;  // of the idle streams
    std::vector<Streams> streams_;
};

}  // namespace penstock::file
