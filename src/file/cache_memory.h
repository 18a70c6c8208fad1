// The memory of a file cache: slabs of one or several devices, and copies between them and host
// memory. Any thread may copy at once with others. Slabs are added at create only; each may be
// given back to its device, and be taken again, while no chunk of it is used.
#pragma once

#include <mutex>
#include <span>
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

    // Makes the file long enough for a slab. Errors: ENOMEM.
    Status reserve(uint32_t slab, size_t size);
    // Takes memory for all pages of a slab, also of one that was given back: its mapping is kept.
    // Errors: ENOMEM.
    Result<std::byte*> take(uint32_t slab);
    // Frees the pages of a slab. Other processes that still read there find zeros.
    void give_back(uint32_t slab);
    [[nodiscard]] std::byte* slab(uint32_t number) const { return slabs_[number]; }
    [[nodiscard]] int descriptor() const { return file_; }  // -1: there is no slab

private:
    int file_ = -1;
    size_t slab_size_ = 0;
    std::vector<std::byte*> slabs_;  // null: never taken
};

class CacheMemory {
public:
    CacheMemory(const std::vector<Device>& devices, size_t slab_size);
    CacheMemory(const CacheMemory&) = delete;
    CacheMemory& operator=(const CacheMemory&) = delete;
    ~CacheMemory();

    // Adds one more slab of a device, without memory: take() allocates that. Its number is
    // the count of those before. Memory that the host can address lies in an arena, at the place
    // that its number tells. Errors: ENOMEM.
    Status add_slab(uint32_t device);
    // Frees the memory of a slab.
    void give_back(uint32_t slab);
    // Allocates the memory of a slab that has none. Errors: ENOMEM.
    Status take(uint32_t slab);
    [[nodiscard]] int arena() const { return arena_.descriptor(); }
    [[nodiscard]] std::byte* slab(uint32_t number) const { return slabs_[number].memory; }
    [[nodiscard]] size_t slab_count() const { return slabs_.size(); }  // with those given back
    [[nodiscard]] uint32_t device_of(uint32_t slab) const { return slabs_[slab].device; }
    [[nodiscard]] bool host_addressable(uint32_t device) const {
        return devices_[device].host_addressable;
    }
    // Returns the first device whose Files move the bytes of this slab too.
    [[nodiscard]] uint32_t group_of(uint32_t slab) const;
    // Returns whether two devices have one memory, whose free bytes both of them tell.
    [[nodiscard]] bool share_memory(uint32_t a, uint32_t b) const;
    // Returns how many bytes of a device are free for any program. Of memory that the host can
    // address it is what the operating system has available.
    [[nodiscard]] uint64_t free_memory(uint32_t device) const;

    // A copy between a slab and host memory.
    struct Copy {
        uint32_t slab = 0;
        std::byte* memory = nullptr;  // in the slab
        std::byte* host = nullptr;
        size_t size = 0;
    };
    // Does all copies, to host memory or from there, and waits for the end. Devices copy at the
    // same time; what follows one another in both memories is copied as one. After an error,
    // `failed` is a slab of the device that failed, and any of the bytes may have been copied.
    Status copy_all(std::span<const Copy> copies, bool to_host, uint32_t* failed);
    Status copy(uint32_t slab, void* to, const void* from, size_t size);
    Status zero(uint32_t slab, void* to, size_t size);
    // Copies one byte of a slab. An error means that the device is lost.
    Status probe(uint32_t slab);

private:
    struct Slab {
        uint32_t device = 0;
        std::byte* memory = nullptr;  // null: it was not taken yet, or given back
    };
    struct OneDevice {
        Device device;
        bool host_addressable = false;
        std::string name;
        std::vector<Stream> idle;  // streams that no call uses
    };
    Result<std::byte*> allocate(uint32_t slab, uint32_t device);
    Result<Stream> take_stream(OneDevice& device);
    void keep_stream(OneDevice& device, Stream stream);
    template <class Work>
    Status on_stream(OneDevice& device, Work work);

    const size_t slab_size_;
    HostArena arena_;
    std::vector<Slab> slabs_;
    std::mutex mutex_;  // of the idle streams
    std::vector<OneDevice> devices_;
};

}  // namespace penstock::file
