#include "backend/cuda/allocations.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/units.h"

namespace penstock::backend::cuda {
namespace {

constexpr size_t kHugePageSize = 2 * base::kMiB;
constexpr size_t kPageSize = 4 * base::kKiB;
constexpr size_t kDriverAlignment = 256;               // of cuMemAlloc, at least
constexpr size_t kZeroPartSize = 16 * base::kMiB;      // part that is worth its own thread
constexpr size_t kKeptSizeMax = 512 * base::kMiB;      // two file systems' memory on a large GPU
constexpr auto kZeroLimit = std::chrono::seconds(60);  // 140 GiB of device memory take less than 1

void* aligned(void* base, size_t alignment) {
    return reinterpret_cast<void*>(base::align_up(reinterpret_cast<uintptr_t>(base), alignment));
}

// One thread touches fresh memory at a few GB/s, so the tables of a large GPU would take 50 ms.
void zero_host(void* start, size_t size) {
    const size_t parts = std::clamp<size_t>(
        size / kZeroPartSize, 1, std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
    const size_t part = base::align_up(size / parts, kHugePageSize);
    std::vector<std::future<void>> others;
    auto* const at = static_cast<char*>(start);
    for (size_t begin = part; begin < size; begin += part) {
        const size_t count = std::min(part, size - begin);
        try {
            others.push_back(
                std::async(std::launch::async, [=] { std::memset(at + begin, 0, count); }));
        } catch (const std::system_error&) {  // no thread can be started
            std::memset(at + begin, 0, count);
        }
    }
    std::memset(at, 0, std::min(part, size));
}

}  // namespace

Allocations::~Allocations() {
    release_deferred(false);
    for (const auto& [pointer, piece] : pieces_) release(piece);
    for (const Piece& piece : kept_) unregister(piece);
}

void Allocations::leave() {
    std::lock_guard lock(mutex_);
    pieces_.clear();
    deferred_.clear();
    kept_.clear();
}

Status Allocations::allocate(size_t size, Memory memory, bool busy, void** out) {
    release_deferred(busy);
    if (size == 0) return {EINVAL, "allocate", "nothing to allocate"};
    if (size > SIZE_MAX - 2 * kHugePageSize) return {ENOMEM, "allocate", "no memory is that large"};
    const size_t alignment = size >= kHugePageSize ? kHugePageSize : kPageSize;
    size = base::align_up(size, kPageSize);
    Piece piece;
    Status status = memory == Memory::kPinned ? take_pinned(size, alignment, &piece)
                    : memory == Memory::kServed && can_.can_map
                        ? take_mapped(size, &piece)
                        : take_device(size, alignment, &piece);
    if (status.ok()) status = zero(piece);
    if (!status.ok()) {
        if (piece.base != nullptr) release(piece);
        return status;
    }
    *out = aligned(piece.base, alignment);
    std::lock_guard lock(mutex_);
    pieces_[*out] = piece;
    return {};
}

Status Allocations::take_device(size_t size, size_t alignment, Piece* out) {
    const Driver& driver = context_.driver();
    // The driver aligns large pieces to 2 MiB. The slack is for a piece that is not aligned.
    const size_t with_slack = size + alignment - kDriverAlignment;
    for (const size_t asked : {alignment == kHugePageSize ? size : with_slack, with_slack}) {
        DevicePointer pointer = 0;
        Status status = context_.call(driver.memory_allocate, &pointer, asked);
        if (!status.ok()) return status;
        *out = {reinterpret_cast<void*>(pointer), asked, Kind::kDevice};
        if (pointer % alignment == 0 || asked == with_slack) return {};
        release(*out);
        *out = {};
    }
    return {};
}

// The driver provides such memory in units of 2 MiB, at addresses aligned to that.
Status Allocations::take_mapped(size_t size, Piece* out) {
    const Driver& driver = context_.driver();
    const size_t asked = base::align_up(size, kHugePageSize);
    PhysicalProperties properties;
    properties.location.id = context_.device();
    PhysicalHandle physical = 0;
    Status status = context_.call(driver.physical_create, &physical, asked, &properties,
                                  uint64_t{0});
    if (!status.ok()) return status;
    DevicePointer start = 0;
    status = context_.call(driver.address_reserve, &start, asked, kHugePageSize, DevicePointer{0},
                           uint64_t{0});
    bool mapped = false;
    if (status.ok()) {
        status = context_.call(driver.map, start, asked, size_t{0}, physical, uint64_t{0});
        mapped = status.ok();
    }
    // From here on the mapping keeps the memory.
    static_cast<void>(context_.raw(driver.physical_release, physical));
    const AccessDescription access{.location = properties.location};
    if (status.ok()) status = context_.call(driver.set_access, start, asked, &access, size_t{1});
    if (status.ok()) {
        *out = {reinterpret_cast<void*>(start), asked, Kind::kMapped};
        return status;
    }
    if (mapped) static_cast<void>(context_.raw(driver.unmap, start, asked));
    if (start != 0) static_cast<void>(context_.raw(driver.address_free, start, asked));
    return status;
}

Status Allocations::take_pinned(size_t size, size_t alignment, Piece* out) {
    // Direct I/O into huge pages is twice as fast, and the driver's own pinned memory does not
    // guarantee them.
    if (alignment == kHugePageSize && can_.can_register && take_registered(size, out)) return {};
    // The driver puts small pieces side by side, at multiples of about 256 bytes.
    const size_t asked = size + alignment;
    void* base = nullptr;
    Status status = context_.call(context_.driver().host_allocate, &base, asked,
                                  kHostPortable | kHostDeviceMap);
    if (!status.ok()) return status;
    *out = {base, asked, Kind::kDriverPinned};
    DevicePointer seen = 0;
    status = context_.call(context_.driver().host_device_pointer, &seen, base, 0u);
    if (status.ok() && reinterpret_cast<void*>(seen) != base) {
        return {ENOTSUP, "cuMemHostAlloc", "GPU threads see pinned memory at another address"};
    }
    return status;
}

bool Allocations::take_kept(size_t asked, Piece* out) {
    {
        const std::lock_guard lock(mutex_);
        const auto found = std::find_if(kept_.begin(), kept_.end(),
                                        [&](const Piece& piece) { return piece.size == asked; });
        if (found == kept_.end()) return false;
        *out = *found;
        kept_.erase(found);
        kept_size_ -= asked;
    }
    zero_host(aligned(out->base, kHugePageSize), asked - kHugePageSize);
    return true;
}

bool Allocations::keep(const Piece& piece) {
    const std::lock_guard lock(mutex_);
    if (kept_size_ + piece.size > kKeptSizeMax) return false;
    kept_.push_back(piece);
    kept_size_ += piece.size;
    return true;
}

Status Allocations::pin(void* memory, size_t size) {
    return context_.call(context_.driver().host_register, memory, size,
                         kHostPortable | kHostDeviceMap);
}

void Allocations::unpin(void* memory) {
    static_cast<void>(context_.raw(context_.driver().host_unregister, memory));
}

void Allocations::unregister(const Piece& piece) {
    static_cast<void>(
        context_.raw(context_.driver().host_unregister, aligned(piece.base, kHugePageSize)));
    munmap(piece.base, piece.size);
}

// Returns false if registration is not possible; nothing is left behind then.
bool Allocations::take_registered(size_t size, Piece* out) {
    const size_t asked = base::align_up(size, kHugePageSize) + kHugePageSize;
    if (take_kept(asked, out)) return true;
    void* base = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return false;
    void* start = aligned(base, kHugePageSize);
    const size_t usable = base::align_up(size, kHugePageSize);
    // The kernel may refuse both (no such feature). Ordinary pages work too.
    static_cast<void>(madvise(start, usable, MADV_HUGEPAGE));
    static_cast<void>(
        madvise(base, asked, MADV_DONTFORK));  // a child's copy-on-write would move pinned pages
    zero_host(start, usable);
    const Driver& driver = context_.driver();
    if (context_.raw(driver.host_register, start, usable, kHostPortable | kHostDeviceMap) ==
        kSuccess) {
        DevicePointer seen = 0;
        if (context_.raw(driver.host_device_pointer, &seen, start, 0u) == kSuccess &&
            reinterpret_cast<void*>(seen) == start) {
            *out = {base, asked, Kind::kRegistered};
            return true;
        }
        static_cast<void>(context_.raw(driver.host_unregister, start));
    }
    munmap(base, asked);
    return false;
}

Status Allocations::zero(const Piece& piece) {
    if (piece.kind == Kind::kRegistered) return {};  // fresh from the OS
    if (piece.kind == Kind::kDriverPinned) {
        std::memset(piece.base, 0, piece.size);
        return {};
    }
    Status status = stream_.fill(piece.base, 0, piece.size);
    if (!status.ok()) return status;
    return stream_.synchronize(std::chrono::steady_clock::now() + kZeroLimit);
}

void Allocations::free(void* pointer, bool busy) {
    if (pointer != nullptr) {
        std::lock_guard lock(mutex_);
        const auto found = pieces_.find(pointer);
        PENSTOCK_CHECK(found != pieces_.end(), "memory freed that this device did not give");
        deferred_.push_back(found->second);
        pieces_.erase(found);
    }
    release_deferred(busy);
}

void Allocations::release_deferred(bool busy) {
    if (busy) return;
    std::vector<Piece> pieces;
    {
        std::lock_guard lock(mutex_);
        pieces.swap(deferred_);
    }
    for (const Piece& piece : pieces) release(piece);
}

// Fails only if the context is lost, and then the memory is lost too.
void Allocations::release(const Piece& piece) {
    const Driver& driver = context_.driver();
    switch (piece.kind) {
        case Kind::kDevice:
            static_cast<void>(
                context_.raw(driver.memory_free,
                             static_cast<DevicePointer>(reinterpret_cast<uintptr_t>(piece.base))));
            break;
        case Kind::kMapped: {
            const auto start = static_cast<DevicePointer>(reinterpret_cast<uintptr_t>(piece.base));
            static_cast<void>(context_.raw(driver.unmap, start, piece.size));
            static_cast<void>(context_.raw(driver.address_free, start, piece.size));
            break;
        }
        case Kind::kDriverPinned:
            static_cast<void>(context_.raw(driver.host_free, piece.base));
            break;
        case Kind::kRegistered:
            if (!keep(piece)) unregister(piece);
            break;
    }
}

bool Allocations::is_device_memory(const void* address) const {
    const std::lock_guard lock(mutex_);
    const auto behind = pieces_.upper_bound(const_cast<void*>(address));
    if (behind == pieces_.begin()) return false;
    const Piece& piece = std::prev(behind)->second;
    const auto* const begin = static_cast<const std::byte*>(piece.base);
    return (piece.kind == Kind::kDevice || piece.kind == Kind::kMapped) && address >= begin &&
           address < begin + piece.size;
}

size_t Allocations::free_memory() const {
    size_t free_size = 0, total_size = 0;
    const Status status = context_.call(context_.driver().memory_info, &free_size, &total_size);
    return status.ok() ? free_size : 0;
}

}  // namespace penstock::backend::cuda
