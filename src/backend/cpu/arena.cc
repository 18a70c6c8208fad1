#include "backend/cpu/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace penstock::backend::cpu {
namespace {

constexpr size_t kPageSize = 4096;
constexpr size_t kHugePageSize = 2 << 20;

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// Returns `size` zeroed bytes, aligned to `alignment`, or null if there is no memory. The kernel
// provides the memory when it is touched.
char* map_aligned(size_t size, size_t alignment) {
    size_t slack = alignment > kPageSize ? alignment : 0;
    void* mapping = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    char* start = static_cast<char*>(mapping);
    char* aligned = start + (round_up(reinterpret_cast<uintptr_t>(start), alignment) -
                             reinterpret_cast<uintptr_t>(start));
    if (aligned > start) munmap(start, static_cast<size_t>(aligned - start));
    size_t behind = slack - static_cast<size_t>(aligned - start);
    if (behind > 0) munmap(aligned + size, behind);
    if (alignment >= kHugePageSize) madvise(aligned, size, MADV_HUGEPAGE);
    return aligned;
}

// Touching one byte of a huge page provides all of it.
bool gets_huge_pages(char* base) {
    *static_cast<volatile char*>(base) = 0;
    unsigned char resident[kHugePageSize / kPageSize];
    if (mincore(base, kHugePageSize, resident) != 0) return false;
    for (unsigned char page : resident) {
        if ((page & 1) == 0) return false;
    }
    return true;
}

}  // namespace

Result<std::shared_ptr<Arena>> Arena::open(size_t size) {
    size = round_up(size, kHugePageSize);
    char* base = map_aligned(size, kHugePageSize);
    if (base == nullptr) return Status(ENOMEM, "mmap", "no address space for device memory");
    return std::shared_ptr<Arena>(new Arena(base, size));
}

Arena::Arena(char* base, size_t size)
    : base_(base), size_(size), huge_pages_(gets_huge_pages(base)) {
    free_ranges_[0] = size;
}

Arena::~Arena() {
    for (const auto& [address, size] : pinned_) munmap(address, size);
    munmap(base_, size_);
}

Status Arena::allocate(size_t size, Memory memory, void** out) {
    if (size == 0) return {EINVAL, "allocate", "the size is 0"};
    if (memory == Memory::kPinned) return allocate_pinned(size, out);
    size_t alignment = size >= kHugePageSize ? kHugePageSize : kPageSize;
    if (size > size_) return {ENOMEM, "allocate", "more than the device has"};
    size = round_up(size, kPageSize);
    std::lock_guard lock(mutex_);
    for (auto range = free_ranges_.begin(); range != free_ranges_.end(); ++range) {
        auto [start, length] = *range;
        size_t offset = round_up(start, alignment);
        if (offset + size > start + length) continue;
        free_ranges_.erase(range);
        if (offset > start) free_ranges_[start] = offset - start;
        size_t behind = start + length - (offset + size);
        if (behind > 0) free_ranges_[offset + size] = behind;
        used_[offset] = size;
        *out = base_ + offset;
        return {};
    }
    return {ENOMEM, "allocate", "device memory is full"};
}

Status Arena::allocate_pinned(size_t size, void** out) {
    size_t alignment = size >= kHugePageSize ? kHugePageSize : kPageSize;
    size = round_up(size, kPageSize);
    char* address = map_aligned(size, alignment);
    if (address == nullptr) return {ENOMEM, "mmap", "no pinned memory"};
    std::lock_guard lock(mutex_);
    pinned_[address] = size;
    *out = address;
    return {};
}

void Arena::free(void* pointer) {
    if (pointer == nullptr) return;
    char* address = static_cast<char*>(pointer);
    std::lock_guard lock(mutex_);
    if (auto pinned = pinned_.find(address); pinned != pinned_.end()) {
        munmap(address, pinned->second);
        pinned_.erase(pinned);
        return;
    }
    auto used = address >= base_ && address < base_ + size_
                    ? used_.find(static_cast<size_t>(address - base_))
                    : used_.end();
    if (used == used_.end()) {
        std::fprintf(stderr, "penstock: free of %p, which is no allocation of this device\n",
                     pointer);
        std::abort();
    }
    auto [offset, size] = *used;
    used_.erase(used);
    free_device(offset, size);
}

// Zeroes the range and joins it with its free neighbours. Whole huge pages go back to the kernel.
void Arena::free_device(size_t offset, size_t size) {
    size_t huge_start = round_up(offset, kHugePageSize);
    size_t huge_end = (offset + size) / kHugePageSize * kHugePageSize;
    if (huge_end > huge_start &&
        madvise(base_ + huge_start, huge_end - huge_start, MADV_DONTNEED) == 0) {
        std::memset(base_ + offset, 0, huge_start - offset);
        std::memset(base_ + huge_end, 0, offset + size - huge_end);
    } else {
        std::memset(base_ + offset, 0, size);
    }
    auto next = free_ranges_.lower_bound(offset);
    if (next != free_ranges_.end() && next->first == offset + size) {
        size += next->second;
        next = free_ranges_.erase(next);
    }
    if (next != free_ranges_.begin()) {
        auto before = std::prev(next);
        if (before->first + before->second == offset) {
            before->second += size;
            return;
        }
    }
    free_ranges_[offset] = size;
}

size_t Arena::free_size() const {
    std::lock_guard lock(mutex_);
    size_t total = 0;
    for (const auto& [offset, size] : free_ranges_) total += size;
    return total;
}

}  // namespace penstock::backend::cpu
