#include "file/cache_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "file/available_memory.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;

constexpr size_t kHugePage = 2 << 20;
constexpr int kMadvCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers lack

// Maps a part of a file at a multiple of kHugePage, as its huge pages need. Null: errno says why.
std::byte* map_aligned(int file, off_t offset, size_t size) {
    void* room = system::mmap(nullptr, size + kHugePage, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(room);
    auto* const end = begin + size + kHugePage;
    const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
    std::byte* const wanted = begin + before;
    void* mapped = system::mmap(wanted, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                                offset);
    if (mapped == MAP_FAILED) {
        const int error = errno;
        system::munmap(room, size + kHugePage);
        errno = error;
        return nullptr;
    }
    if (before > 0) system::munmap(begin, before);
    if (end != wanted + size)
        system::munmap(wanted + size, static_cast<size_t>(end - (wanted + size)));
    return wanted;
}

// Puts new memory on huge pages where the kernel gives them: storage reads straight into them four
// times as fast. The kernel makes one of a range that has a page.
void take_huge_pages(int file, off_t offset, std::byte* memory, size_t size) {
    for (size_t at = 0; at + kHugePage <= size; at += kHugePage) {
        if (system::fallocate(file, 0, offset + static_cast<off_t>(at), 1) != 0) return;
        if (madvise(memory + at, kHugePage, kMadvCollapse) != 0) return;
    }
}

}  // namespace

HostArena::~HostArena() {
    for (std::byte* slab : slabs_)
        if (slab != nullptr) system::munmap(slab, slab_size_);
    if (file_ >= 0) system::close(file_);
}

Status HostArena::reserve(uint32_t slab, size_t size) {
    slab_size_ = size;
    if (file_ < 0) file_ = system::memfd_create("penstock-chunks", MFD_CLOEXEC);
    if (file_ < 0 || system::ftruncate(file_, static_cast<off_t>((slab + 1) * size)) != 0)
        return {ENOMEM, "file cache", "its memory cannot be made"};
    slabs_.resize(slab + 1);
    return {};
}

Result<std::byte*> HostArena::take(uint32_t slab) {
    const auto offset = static_cast<off_t>(slab * slab_size_);
    if (slabs_[slab] == nullptr) slabs_[slab] = map_aligned(file_, offset, slab_size_);
    if (slabs_[slab] == nullptr) return Status{errno, "file cache", "its memory cannot be mapped"};
    take_huge_pages(file_, offset, slabs_[slab], slab_size_);
    // All pages now: later there might be none, and a touch would end the process.
    if (system::fallocate(file_, 0, offset, static_cast<off_t>(slab_size_)) == 0)
        return slabs_[slab];
    give_back(slab);
    return Status{ENOMEM, "file cache", "the host has not so much memory"};
}

void HostArena::give_back(uint32_t slab) {
    (void)system::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            static_cast<off_t>(slab * slab_size_), static_cast<off_t>(slab_size_));
}

CacheMemory::CacheMemory(const std::vector<Device>& devices, size_t slab_size)
    : slab_size_(slab_size) {
    for (const Device& device : devices)
        devices_.push_back({device, device.host_addressable(), device.name(), {}});
}

CacheMemory::~CacheMemory() {
    for (uint32_t slab = 0; slab < slabs_.size(); ++slab)
        if (!host_addressable(device_of(slab))) give_back(slab);
}

Result<std::byte*> CacheMemory::allocate(uint32_t slab, uint32_t device) {
    if (host_addressable(device)) return arena_.take(slab);
    auto allocated = devices_[device].device.allocate(slab_size_);
    if (!allocated.ok()) return allocated.status();
    return static_cast<std::byte*>(allocated.value());
}

Status CacheMemory::add_slab(uint32_t device) {
    slabs_.push_back({device});
    if (!host_addressable(device)) return {};
    return arena_.reserve(static_cast<uint32_t>(slabs_.size() - 1), slab_size_);
}

void CacheMemory::give_back(uint32_t slab) {
    std::byte* const memory = std::exchange(slabs_[slab].memory, nullptr);
    if (memory == nullptr) return;
    if (host_addressable(device_of(slab))) {
        arena_.give_back(slab);
    } else {
        devices_[device_of(slab)].device.free(memory);
    }
}

Status CacheMemory::take(uint32_t slab) {
    auto allocated = allocate(slab, device_of(slab));
    if (!allocated.ok()) return allocated.status();
    slabs_[slab].memory = allocated.value();
    return {};
}

uint32_t CacheMemory::group_of(uint32_t slab) const {
    if (!host_addressable(device_of(slab))) return device_of(slab);
    uint32_t first = 0;
    while (!host_addressable(first)) ++first;
    return first;
}

bool CacheMemory::share_memory(uint32_t a, uint32_t b) const {
    const OneDevice &one = devices_[a], &other = devices_[b];
    return one.host_addressable ? other.host_addressable
                                : !other.host_addressable && one.name == other.name;
}

uint64_t CacheMemory::free_memory(uint32_t device) const {
    return host_addressable(device) ? available_memory() : devices_[device].device.free_memory();
}

// Streams are made as calls overlap. What is made then belongs to the driver, not to the device's
// memory of chunks.
Result<Stream> CacheMemory::take_stream(OneDevice& device) {
    {
        const std::lock_guard lock(mutex_);
        if (!device.idle.empty()) {
            Stream stream = std::move(device.idle.back());
            device.idle.pop_back();
            return stream;
        }
    }
    return Stream::create(device.device);
}

void CacheMemory::keep_stream(OneDevice& device, Stream stream) {
    const std::lock_guard lock(mutex_);
    device.idle.push_back(std::move(stream));
}

template <class Work>
Status CacheMemory::on_stream(OneDevice& device, Work work) {
    auto stream = take_stream(device);
    if (!stream.ok()) return stream.status();
    Status status = work(stream.value());
    if (status.ok()) status = stream.value().synchronize();
    if (status.ok()) keep_stream(device, std::move(stream.value()));
    return status;
}

Status CacheMemory::copy_all(std::span<const Copy> copies, bool to_host, uint32_t* failed) {
    struct Begun {
        uint32_t slab = 0;
        Stream stream;
    };
    std::vector<Begun> begun;  // one of each device
    Status status;
    for (size_t i = 0, next = 0; i < copies.size() && status.ok(); i = next) {
        const Copy& copy = copies[i];
        size_t size = copy.size;
        for (next = i + 1;
             next < copies.size() && copies[next].slab == copy.slab &&
             copies[next].memory == copy.memory + size && copies[next].host == copy.host + size;
             ++next)
            size += copies[next].size;
        std::byte* const to = to_host ? copy.host : copy.memory;
        const std::byte* const from = to_host ? copy.memory : copy.host;
        const uint32_t device = device_of(copy.slab);
        if (host_addressable(device)) {
            std::memcpy(to, from, size);
            continue;
        }
        *failed = copy.slab;
        auto at = std::ranges::find(begun, device,
                                    [&](const Begun& one) { return device_of(one.slab); });
        if (at == begun.end()) {
            auto stream = take_stream(devices_[device]);
            status = stream.status();
            if (!status.ok()) break;
            begun.push_back({copy.slab, std::move(stream.value())});
            at = std::prev(begun.end());
        }
        status = at->stream.copy(to, from, size);
    }
    for (Begun& one : begun) {
        if (const Status ended = one.stream.synchronize(); ended.ok()) {
            keep_stream(devices_[device_of(one.slab)], std::move(one.stream));
        } else if (status.ok()) {
            status = ended;
            *failed = one.slab;
        }
    }
    return status;
}

Status CacheMemory::copy(uint32_t slab, void* to, const void* from, size_t size) {
    if (host_addressable(device_of(slab))) {
        std::memcpy(to, from, size);
        return {};
    }
    return on_stream(devices_[device_of(slab)],
                     [&](Stream& stream) { return stream.copy(to, from, size); });
}

Status CacheMemory::zero(uint32_t slab, void* to, size_t size) {
    if (size == 0) return {};
    if (host_addressable(device_of(slab))) {
        std::memset(to, 0, size);
        return {};
    }
    return on_stream(devices_[device_of(slab)],
                     [&](Stream& stream) { return stream.fill(to, 0, size); });
}

Status CacheMemory::probe(uint32_t slab) {
    std::byte byte{};
    return copy(slab, &byte, slabs_[slab].memory, 1);
}

}  // namespace penstock::file
