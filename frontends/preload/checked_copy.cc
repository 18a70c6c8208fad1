#include "checked_copy.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "next.h"

namespace penstock::preload {
namespace {

constexpr size_t kPage = 4096;    // where pages are longer, some are tested twice
constexpr size_t kMask = 8;       // bytes of the kernel's signal mask
constexpr size_t kProbedMax = 4;  // pages; for more one call that tests all is quicker
constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // of Linux 5.14; older headers lack them

char* page_of(char* at) {
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(at) & ~(kPage - 1));
}

// The kernel writes bytes to an address, and changes nothing else: the mask of blocked signals, or
// the pending signals, of which it tells as few bytes as it is asked for.
bool kernel_writes(char* at, size_t size) {
    if (at == nullptr) return false;  // it would write nothing
    if (size >= kMask) return kernel::call(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, at, kMask) == 0;
    return kernel::call(SYS_rt_sigpending, at, size) == 0;
}

// The kernel reads bytes from an address: a mask, which it refuses to use in an unknown way.
bool kernel_reads(const char* at) {
    constexpr int kUnknownUse = -1;
    return kernel::call(SYS_rt_sigprocmask, kUnknownUse, at, nullptr, kMask) != 0 &&
           errno == EINVAL;
}

// Tests each page by bytes of it. One call tests two pages, by bytes on both sides of their
// boundary.
bool probe(char* begin, size_t size, bool writes) {
    char* const end = begin + size;
    const size_t room = size < kMask ? size : kMask;
    for (char* page = page_of(begin); page < end; page += 2 * kPage) {
        char* at = page + kPage < end ? page + kPage - kMask / 2 : page;
        // Only what is to be written may be written. The rest of a page may be read.
        if (writes && at < begin) at = begin;
        if (writes && at > end - room) at = end - room;
        if (!(writes ? kernel_writes(at, room) : kernel_reads(at))) return false;
    }
    return true;
}

bool may_use(char* begin, size_t size, bool writes) {
    if (reinterpret_cast<uintptr_t>(begin) > UINTPTR_MAX - size - kPage) return false;
    char* const first = page_of(begin);
    const size_t pages = static_cast<size_t>(page_of(begin + size - 1) - first) / kPage + 1;
    if (pages <= kProbedMax) return probe(begin, size, writes);
    const int advice = writes ? kPopulateWrite : kPopulateRead;
    if (kernel::call(SYS_madvise, first, pages * kPage, advice) == 0) return true;
    // Older kernels cannot, and none can for the memory of a device.
    return errno == EINVAL && probe(begin, size, writes);
}

}  // namespace

bool copy_checked(char* to, const char* from, size_t size, const char* theirs) {
    const int error = errno;
    const bool may = size == 0 || may_use(const_cast<char*>(theirs), size, theirs == to);
    errno = error;
    if (may) memcpy(to, from, size);
    return may;
}

}  // namespace penstock::preload
