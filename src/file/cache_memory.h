// The memory of a file cache: slabs of one or several devices, and copies between them and host
// memory. Any thread may copy at once with others; slabs are added at create only.
#pragma once

#include <mutex>
#include <vector>

#include "penstock/device.h"

namespace penstock::file {

// Host memory in one file of memory, slab after slab of equal size, which other processes can map.
class HostArena {
public:
    HostArena() = default;
    HostArena(const HostArena&) = delete;
    HostArena& operator=(const HostArena&) = delete;
    ~HostArena();

    // Takes memory for all pages of one more slab. Errors: ENOMEM.
    Result<std::byte*> add_slab(size_t size);
    [[nodiscard]] std::byte* slab(uint32_t number) const { return slabs_[number]; }
    [[nodiscard]] size_t size() const { return slabs_.size() * slab_size_; }
    [[nodiscard]] int descriptor() const { return file_; }  // -1: there is no slab

private:
    int file_ = -1;
    size_t slab_size_ = 0;
    std::vector<std::byte*> slabs_;
};

class CacheMemory {
public:
    CacheMemory() = default;
    CacheMemory(const CacheMemory&) = delete;
    CacheMemory& operator=(const CacheMemory&) = delete;
    ~CacheMemory();

    // Allocates one slab of a device, all of equal size. Its number is the count of those before.
    // Memory that the host can address lies in an arena.
    Status add_slab(const Device& device, size_t size);
    [[nodiscard]] int arena() const { return arena_.descriptor(); }
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

    HostArena arena_;
    std::vector<Slab> slabs_;
    std::mutex mutex_;  // of the idle streams
    std::vector<Streams> streams_;
};

}  // namespace penstock::file
