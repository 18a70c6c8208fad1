#include "file/cache_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/system_calls.h"

namespace penstock::file {

namespace system = storage::system;

HostArena::~HostArena() {
    for (std::byte* slab : slabs_) system::munmap(slab, slab_size_);
    if (file_ >= 0) system::close(file_);
}

Result<std::byte*> HostArena::add_slab(size_t size) {
    if (file_ < 0) file_ = system::memfd_create("penstock-chunks", MFD_CLOEXEC);
    const auto offset = static_cast<off_t>(slabs_.size() * size);
    // All pages now: later there might be none, and a touch would end the process.
    if (file_ < 0 || system::fallocate(file_, 0, offset, static_cast<off_t>(size)) != 0)
        return Status{ENOMEM, "file cache", "the host has not so much memory"};
    void* mapped = system::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, offset);
    if (mapped == MAP_FAILED) return Status{errno, "file cache", "its memory cannot be mapped"};
    slab_size_ = size;
    slabs_.push_back(static_cast<std::byte*>(mapped));
    return slabs_.back();
}

CacheMemory::~CacheMemory() {
    for (const Slab& slab : slabs_)
        if (!slab.device.host_addressable()) slab.device.free(slab.memory);
}

Status CacheMemory::add_slab(const Device& device, size_t size) {
    std::byte* memory = nullptr;
    if (device.host_addressable()) {
        auto added = arena_.add_slab(size);
        if (!added.ok()) return added.status();
        memory = added.value();
    } else {
        auto allocated = device.allocate(size);
        if (!allocated.ok()) return allocated.status();
        memory = static_cast<std::byte*>(allocated.value());
    }
    const std::string name = device.name();
    auto streams = std::ranges::find(streams_, name, &Streams::device);
    if (streams == streams_.end()) streams = streams_.insert(streams_.end(), {name, {}});
    slabs_.push_back({device, memory, static_cast<size_t>(streams - streams_.begin())});
    return {};
}

template <class Work>
Status CacheMemory::on_stream(const Slab& slab, Work work) {
    Stream stream;
    {
        const std::lock_guard lock(mutex_);
        std::vector<Stream>& idle = streams_[slab.streams].idle;
        if (!idle.empty()) {
            stream = std::move(idle.back());
            idle.pop_back();
        }
    }
    if (stream.device().port() == nullptr) {
        auto made = Stream::create(slab.device);
        if (!made.ok()) return made.status();
        stream = std::move(made.value());
    }
    Status status = work(stream);
    if (status.ok()) status = stream.synchronize();
    if (!status.ok()) return status;
    const std::lock_guard lock(mutex_);
    streams_[slab.streams].idle.push_back(std::move(stream));
    return {};
}

Status CacheMemory::copy(uint32_t slab, void* to, const void* from, size_t size) {
    if (slabs_[slab].device.host_addressable()) {
        std::memcpy(to, from, size);
        return {};
    }
    return on_stream(slabs_[slab], [&](Stream& stream) { return stream.copy(to, from, size); });
}

Status CacheMemory::zero(uint32_t slab, void* to, size_t size) {
    if (size == 0) return {};
    if (slabs_[slab].device.host_addressable()) {
        std::memset(to, 0, size);
        return {};
    }
    return on_stream(slabs_[slab], [&](Stream& stream) { return stream.fill(to, 0, size); });
}

}  // namespace penstock::file
