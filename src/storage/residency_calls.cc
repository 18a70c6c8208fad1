// The kernel's residency probes: cachestat(2), mincore(2) on a mapping that lasts for one call, and
// statfs(2).
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "storage/residency.h"
#include "storage/system_calls.h"

namespace penstock::storage {

namespace {

class KernelCalls final : public ResidencyCalls {
public:
    int cachestat(int descriptor, const extent::Extent& range, CacheCounts* out) override {
        const system::CachestatRange asked{range.offset, range.size};
        system::Cachestat told{};
        if (system::cachestat(descriptor, &asked, &told) != 0) return errno;
        *out = {.cached = told.cached, .dirty = told.dirty, .writeback = told.writeback};
        return 0;
    }

    // The mapping is shared, because FUSE drops its cached pages when a file is mapped privately.
    // No page of it is touched, so nothing is read and nothing is kept in the cache.
    int mincore(int descriptor, uint64_t offset, std::span<unsigned char> pages) override {
        const size_t size = pages.size() * static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void* mapping = system::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor,
                                     static_cast<off_t>(offset));
        if (mapping == MAP_FAILED) return errno;
        const int error = system::mincore(mapping, size, pages.data()) == 0 ? 0 : errno;
        system::munmap(mapping, size);
        return error;
    }

    int file_system(int descriptor, uint64_t* magic) override {
        struct statfs told {};
        if (system::fstatfs(descriptor, &told) != 0) return errno;
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
