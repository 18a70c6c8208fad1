#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "cached_files.h"
#include "next.h"
#include "start.h"

namespace penstock::preload {
namespace {

constexpr size_t kSegmentSize = 1 << 20;  // what is mapped at once
constexpr size_t kSegmentsMax = 1 << 16;  // 64 GiB
constexpr char kHeader[] = "penstock-trace 1\n";

char trace_path[4096];
std::atomic<uint64_t>* cursor;  // in FILE.cursor
std::atomic<char*> segments[kSegmentsMax];
__thread unsigned thread_number;

struct stat told_to;  // standard error, as it was at the begin

// strerror() may load translations: it allocates, and takes locks.
const char* text_of(int error) {
    switch (error) {
        case ENOSPC:
            return "No space left on device";
        case EFBIG:
            return "File too large";
        case EDQUOT:
            return "Disk quota exceeded";
        default:
            return "its file cannot be mapped";
    }
}

// Stops the recording of this process, and says why, once. Says nothing if the program has put
// another file in the place of standard error.
void stop(const char* why) {
    struct stat now;
    if (!recording.exchange(false) || fstat(2, &now) != 0 || now.st_dev != told_to.st_dev ||
        now.st_ino != told_to.st_ino)
        return;
    const iovec parts[] = {{const_cast<char*>("penstock: "), 10},
                           {trace_path, strlen(trace_path)},
                           {const_cast<char*>(": the trace ends here: "), 23},
                           {const_cast<char*>(why), strlen(why)},
                           {const_cast<char*>("\n"), 1}};
    kernel::call(SYS_writev, 2, parts, 5);
}

// Maps the segment with the given number, and reserves its space on the disk.
char* map_segment(size_t number) {
    const int fd = kernel::openat(AT_FDCWD, trace_path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return nullptr;
    void* made = MAP_FAILED;
    rlimit limit;  // beyond it the kernel would send a signal
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < (number + 1) * kSegmentSize) {
        errno = EFBIG;
    } else if (kernel::call(SYS_fallocate, fd, 0, number * kSegmentSize, kSegmentSize) == 0) {
        made = mmap(nullptr, kSegmentSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    static_cast<off_t>(number * kSegmentSize));
    }
    const int error = errno;
    kernel::close(fd);
    errno = error;
    if (made == MAP_FAILED) return nullptr;
    char* first = nullptr;
    if (segments[number].compare_exchange_strong(first, static_cast<char*>(made))) {
        return static_cast<char*>(made);
    }
    munmap(made, kSegmentSize);
    return first;
}

char* segment(size_t number) {
    char* found = segments[number].load(std::memory_order_acquire);
    return found != nullptr ? found : map_segment(number);
}

// Writes a number and a space; returns the end.
char* write_number(uint64_t value, char* out) {
    char digits[20];
    int count = 0;
    do {
        digits[count++] = static_cast<char>('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0) *out++ = digits[--count];
    *out++ = ' ';
    return out;
}

// Copies `size` bytes to a place, in as many segments as they touch.
bool place(uint64_t at, const char* text, size_t size) {
    while (size > 0) {
        const size_t number = at / kSegmentSize;
        const size_t offset = at % kSegmentSize;
        const size_t part = size < kSegmentSize - offset ? size : kSegmentSize - offset;
        char* begin = number < kSegmentsMax ? segment(number) : nullptr;
        if (begin == nullptr) return false;
        memcpy(begin + offset, text, part);
        text += part;
        at += part;
        size -= part;
    }
    return true;
}

}  // namespace

int begin_trace(const char* path) {
    fstat(2, &told_to);
    const size_t size = strlen(path);
    char cursor_path[sizeof trace_path + 8];
    if (size + 1 > sizeof trace_path) return ENAMETOOLONG;
    memcpy(trace_path, path, size + 1);
    memcpy(cursor_path, path, size);
    memcpy(cursor_path + size, ".cursor", 8);
    int fd = kernel::openat(AT_FDCWD, cursor_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    const int file = kernel::openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
        const int error = errno;
        kernel::close(fd);
        return error;
    }
    kernel::close(file);
    void* made = MAP_FAILED;
    if (kernel::call(SYS_fallocate, fd, 0, 0, sizeof *cursor) == 0) {
        made = mmap(nullptr, sizeof *cursor, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    const int error = made == MAP_FAILED ? errno : 0;
    kernel::close(fd);
    if (error != 0) return error;
    cursor = static_cast<std::atomic<uint64_t>*>(made);
    uint64_t none = 0;
    constexpr size_t kHeaderSize = sizeof kHeader - 1;
    if (cursor->compare_exchange_strong(none, kHeaderSize)) {
        char* begin = segment(0);
        if (begin == nullptr) return errno;
        memcpy(begin, kHeader, kHeaderSize);
    }
    recording.store(true, std::memory_order_release);
    return 0;
}

void forget_thread() { thread_number = 0; }

void record(char operation, const FileName& file, uint64_t offset, uint64_t size) {
    const int error = errno;
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned thread = thread_number;
    if (thread == 0 || !has_started()) {  // a fork before the start goes unnoticed
        thread = static_cast<unsigned>(kernel::call(SYS_gettid));
        if (!is_child_of_vfork()) thread_number = thread;  // the parent has the same variable
    }
    char before[64], after[48];
    char* end = write_number(
        static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec),
        before);
    end = write_number(thread, end);
    *end++ = operation;
    *end++ = ' ';
    const auto head = static_cast<size_t>(end - before);
    after[0] = ' ';
    end = write_number(size, write_number(offset, after + 1));
    end[-1] = '\n';
    const auto tail = static_cast<size_t>(end - after);
    const uint64_t at = cursor->fetch_add(head + file.size + tail, std::memory_order_relaxed);
    if (!place(at, before, head) || !place(at + head, file.text, file.size) ||
        !place(at + head + file.size, after, tail)) {
        stop(text_of(errno));
    }
    errno = error;
}

ssize_t record_at_position(char operation, int fd, ssize_t moved) {
    if (moved <= 0 || !traces()) return moved;
    const FileName* file = file_of(fd);
    if (file == nullptr) return moved;
    const int error = errno;
    off_t end = owned_position(fd);
    if (end < 0) end = kernel::call(SYS_lseek, fd, 0, SEEK_CUR);
    errno = error;
    if (end >= moved)
        record(operation, *file, static_cast<uint64_t>(end - moved), static_cast<uint64_t>(moved));
    return moved;
}

}  // namespace penstock::preload
