// The kernel's residency probes: cachestat(2), which glibc does not name yet, mincore(2) on a
// mapping that lives as long as the call, statfs(2).
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>

#include "storage/residency.h"

namespace penstock::storage {

namespace {

// The same number on every architecture; headers older than Linux 6.5 lack it.
constexpr long kCachestat = 451;

// As linux/mman.h of Linux 6.5 has them.
struct CachestatRange {
    uint64_t offset, size;  // of 0 bytes: to the end of the file
};
struct Cachestat {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;  // pages
};

class KernelCalls final : public ResidencyCalls {
public:
    int cachestat(int descriptor, const extent::Extent& range, CacheCounts* out) override {
        CachestatRange asked{range.offset, range.size};
        Cachestat told{};
        if (syscall(kCachestat, descriptor, &asked, &told, 0) != 0) return errno;
        *out = {.cached = told.cached, .dirty = told.dirty, .writeback = told.writeback};
        return 0;
    }

    // Shared, because FUSE drops what it has cached when a file is mapped privately. No page of it
    // is ever touched, so nothing is read and nothing is held in the cache.
    int mincore(int descriptor, uint64_t offset, std::span<unsigned char> pages) override {
        const size_t size = pages.size() * static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void* mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor,
                             static_cast<off_t>(offset));
        if (mapping == MAP_FAILED) return errno;
        const int error = ::mincore(mapping, size, pages.data()) == 0 ? 0 : errno;
        munmap(mapping, size);
        return error;
    }

    int file_system(int descriptor, uint64_t* magic) override {
        struct statfs told {};
        if (fstatfs(descriptor, &told) != 0) return errno;
        *magic = static_cast<uint64_t>(told.f_type);
        return 0;
    }
};

}  // namespace

ResidencyCalls& kernel_residency_calls() {
    static KernelCalls calls;
    return calls;
}

}  // namespace penstock::storage
