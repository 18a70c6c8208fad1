#include "descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "cached_files.h"
#include "next.h"
#include "observer.h"

namespace penstock::preload {
namespace {

constexpr size_t kNamesMax = 1 << 16;    // distinct file names; files beyond are not traced
constexpr size_t kArenaSize = 64 << 20;  // bytes for their text, reserved and not yet used

constexpr size_t kScratchSize = 4 * PATH_MAX;  // a path, and the same with each byte escaped

const FileName no_file;
std::atomic<const FileName*> entries[kDescriptorsMax];
std::atomic<const FileName*> names[kNamesMax];  // a hash table with linear probing
std::atomic<char*> arena;
std::atomic<size_t> arena_used;
std::atomic<pid_t> process;  // the process that the entries belong to

// Allocates memory that is never freed. Returns null when the arena is full.
void* allocate(size_t size) {
    char* begin = arena.load(std::memory_order_acquire);
    if (begin == nullptr) {
        void* made = mmap(nullptr, kArenaSize, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED) return nullptr;
        if (arena.compare_exchange_strong(begin, static_cast<char*>(made))) {
            begin = static_cast<char*>(made);
        } else {
            munmap(made, kArenaSize);
        }
    }
    size = (size + 15) / 16 * 16;
    const size_t at = arena_used.fetch_add(size, std::memory_order_relaxed);
    return at + size <= kArenaSize ? begin + at : nullptr;
}

// Returns the FileName of a text, and makes it if there is none. Returns null at the limits.
const FileName* intern(const char* text, size_t size) {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ static_cast<unsigned char>(text[i])) * 1099511628211u;
    }
    FileName* made = nullptr;
    for (size_t probe = 0; probe < kNamesMax; ++probe) {
        std::atomic<const FileName*>& slot = names[(hash + probe) % kNamesMax];
        const FileName* found = slot.load(std::memory_order_acquire);
        if (found == nullptr) {
            if (made == nullptr) {
                void* memory = allocate(sizeof(FileName) + size);
                if (memory == nullptr) return nullptr;
                made = static_cast<FileName*>(memory);
                char* copy = reinterpret_cast<char*>(made + 1);
                memcpy(copy, text, size);
                made->text = copy;
                made->size = size;
            }
            if (slot.compare_exchange_strong(found, made)) return made;
        }
        if (found->size == size && memcmp(found->text, text, size) == 0) return found;
    }
    return nullptr;
}

// Writes a byte in the form of a trace, where some bytes are %XX. Returns the bytes written.
size_t escape(unsigned char byte, char* out) {
    if (byte > ' ' && byte != '%' && byte != 0x7f) {
        out[0] = static_cast<char>(byte);
        return 1;
    }
    constexpr char kDigits[] = "0123456789ABCDEF";
    out[0] = '%';
    out[1] = kDigits[byte / 16];
    out[2] = kDigits[byte % 16];
    return 3;
}

const FileName* identify(int fd) {
    struct stat status;
    if (kernel::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return &no_file;
    char link[sizeof "/proc/self/fd/" + 10] = "/proc/self/fd/";
    char digits[10];
    int count = 0;
    for (int rest = fd; count == 0 || rest > 0; rest /= 10) {
        digits[count++] = static_cast<char>('0' + rest % 10);
    }
    char* end = link + sizeof "/proc/self/fd/" - 1;
    while (count > 0) *end++ = digits[--count];
    // The paths do not fit the stack of every signal handler.
    void* scratch = mmap(nullptr, kScratchSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                         -1, 0);
    if (scratch == MAP_FAILED) return &no_file;
    char* path = static_cast<char*>(scratch);
    char* escaped = path + PATH_MAX;
    const ssize_t size = readlink(link, path, PATH_MAX);
    size_t used = 0;
    for (ssize_t i = 0; i < size; ++i) {
        used += escape(static_cast<unsigned char>(path[i]), escaped + used);
    }
    const FileName* name = used == 0 ? nullptr : intern(escaped, used);
    munmap(scratch, kScratchSize);
    return name == nullptr ? &no_file : name;
}

}  // namespace

void begin_descriptors() { process.store(getpid(), std::memory_order_relaxed); }

bool is_child_of_vfork() { return getpid() != process.load(std::memory_order_relaxed); }

const FileName* file_of(int fd) {
    if (fd < 0 || fd >= kDescriptorsMax) return nullptr;
    const FileName* found = entries[fd].load(std::memory_order_acquire);
    if (found == nullptr) {
        const int error = errno;
        found = identify(fd);
        errno = error;
        if (!is_child_of_vfork()) entries[fd].store(found, std::memory_order_release);
    }
    return found == &no_file ? nullptr : found;
}

void forget(int fd) {
    // A child of vfork has descriptors of its own, but the memory of its parent. What it drops here
    // the parent finds again; what the parent's reads have taught must stay.
    if (!is_child_of_vfork()) {
        observe_meaning(fd);
        forget_cached(fd);
    } else {
        distrust_cached(fd);
    }
    if (fd >= 0 && fd < kDescriptorsMax) entries[fd].store(nullptr, std::memory_order_relaxed);
}

void forget_range(unsigned first, unsigned last) {
    const bool own = !is_child_of_vfork();
    for (unsigned fd = first; fd <= last && fd < kDescriptorsMax; ++fd) {
        if (own) {
            observe_meaning(static_cast<int>(fd));
            forget_cached(static_cast<int>(fd));
        } else {
            distrust_cached(static_cast<int>(fd));
        }
        entries[fd].store(nullptr, std::memory_order_relaxed);
    }
}

}  // namespace penstock::preload
