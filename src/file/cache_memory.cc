#include "file/cache_memory.h"

#include <algorithm>
#include <cstring>

namespace penstock::file {

CacheMemory::~CacheMemory() {
    for (const Slab& slab : slabs_) slab.device.free(slab.memory);
}

Status CacheMemory::add_slab(const Device& device, size_t size) {
    auto memory = device.allocate(size);
    if (!memory.ok()) return memory.status();
    const std::string name = device.name();
    auto streams = std::ranges::find(streams_, name, &Streams::device);
    if (streams == streams_.end()) streams = streams_.insert(streams_.end(), {name, {}});
    slabs_.push_back({device, static_cast<std::byte*>(memory.value()),
                      static_cast<size_t>(streams - streams_.begin())});
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
