#include "cached_streams.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <new>

#include "cached_writes.h"
#include "descriptors.h"
#include "device_memory.h"
#include "next.h"
#include "trace.h"

namespace penstock::preload {

struct Stream {
    FILE* file = nullptr;
    std::atomic<FILE*> donor{nullptr};  // set: the stream is ordinary
    int fd = -1;
    bool has_sought = false;  // the last call was a seek
    bool has_bytes = false;   // the program has read bytes: the stream has no wide characters
    size_t block_size = 0;    // bytes of an ordinary stream's buffer
};

namespace {

constexpr size_t kModeMax = 4;  // libc looks at more characters; modes have fewer

// The functions of an ordinary stream. libc's FILE is followed by the address of such a table.
// freopen(3) sets it so, too.
std::atomic<const void*> ordinary_functions{nullptr};

// libc locks a stream that has this flag in each call. Ordinary streams have it when the program
// makes its first thread, or later; streams of fopencookie() always, since other functions than
// those here may make threads.
constexpr int kNeedsLock = 1 << 7;
std::atomic<FILE*> witness{nullptr};  // an ordinary stream without a descriptor

// libc sets the flags of each new stream, and has no such flag. It uses _old_offset only for
// programs of the last century, on 32 bits.
constexpr int kHasStream = 1 << 22;

// libc's flags of a stream whose buffer is the program's, and of one that reads characters which
// the program has pushed back.
constexpr int kUserBuffer = 1, kPushedBack = 0x100;

enum Layout : int { kNotChecked, kAsExpected, kOther };
std::atomic<int> layout{kNotChecked};

const void*& functions_of(FILE* file) { return *reinterpret_cast<const void**>(file + 1); }

Stream* stream_of(const FILE* file) {
    if (file == nullptr || (file->_flags2 & kHasStream) == 0) return nullptr;
    auto* stream = reinterpret_cast<Stream*>(file->_old_offset);
    return stream->file == file ? stream : nullptr;
}

// libc gives a stream of fopencookie() a buffer of BUFSIZ bytes. That of an ordinary stream is
// often shorter, so this one reads ahead farther than the program may expect. Returns whether the
// buffer was too long.
bool shorten_buffer(const Stream& stream) {
    FILE* file = stream.file;
    char* base = file->_IO_buf_base;
    if ((file->_flags & (kUserBuffer | kPushedBack)) != 0 || base == nullptr ||
        file->_IO_buf_end != base + BUFSIZ || stream.block_size >= BUFSIZ ||
        file->_IO_read_end > base + stream.block_size)
        return false;
    file->_IO_buf_end = base + stream.block_size;
    return true;
}

ssize_t read_stream(void* cookie, char* to, size_t size) {
    auto* stream = static_cast<Stream*>(cookie);
    // What follows a seek may be libc's own wish to fill its buffer.
    if (!stream->has_sought) stream->has_bytes = true;
    stream->has_sought = false;
    if (to == stream->file->_IO_buf_base && shorten_buffer(*stream)) size = stream->block_size;
    ssize_t got = read_cached(stream->fd, to, size, -1);
    if (got == kNotCached) {
        flush_cached(stream->fd);
        const KernelMoves moves(stream->fd);
        got = next()->read(stream->fd, to, size);
    }
    return record_at_position('r', stream->fd, got);
}

off_t seek(int fd, off_t offset, int whence) {
    const off_t position = seek_cached(fd, offset, whence);
    if (position != kNotCached) return position;
    const KernelMoves moves(fd);
    return next()->lseek(fd, offset, whence);
}

int seek_stream(void* cookie, off64_t* offset, int whence) {
    auto* stream = static_cast<Stream*>(cookie);
    stream->has_sought = true;
    shorten_buffer(*stream);
    const off_t position = seek(stream->fd, *offset, whence);
    if (position < 0) return -1;
    *offset = position;
    return 0;
}

int close_stream(void* cookie) {
    auto* stream = static_cast<Stream*>(cookie);
    const int fd = stream->fd;
    stream->file->_flags2 &= ~kHasStream;
    free(stream);
    release_device_file(fd);
    give_positions_in_child();
    forget(fd);
    return kernel::close(fd);
}

// Returns the size of the buffer that libc gives an ordinary stream.
size_t block_size_of(int fd) {
    struct stat status;
    const bool known = kernel::fstat(fd, &status) == 0 && status.st_blksize > 0;
    return known && status.st_blksize < BUFSIZ ? static_cast<size_t>(status.st_blksize) : BUFSIZ;
}

// Makes an ordinary stream without a descriptor. Returns null if memory is short.
FILE* make_donor(int fd) {
    FILE* donor = next()->fdopen(fd, "r");
    if (donor == nullptr) {  // the program has closed the descriptor
        donor = next()->fopen("/", "re");
        if (donor == nullptr) return nullptr;
        kernel::close(donor->_fileno);
    }
    donor->_fileno = -1;  // as libc marks a stream that is closed
    return donor;
}

void free_donor(FILE* donor) {
    const int error = errno;
    next()->fclose(donor);
    errno = error;
}

// Returns whether libc's FILE is laid out as make_ordinary() needs it: this is glibc's since 2.1.
bool has_expected_layout(FILE* served) {
    FILE* donor = make_donor(served->_fileno);
    if (donor == nullptr) return false;
    const void* functions = functions_of(donor);
    const char* wide = reinterpret_cast<const char*>(donor->_wide_data);
    const char* begin = reinterpret_cast<const char*>(donor);
    constexpr ptrdiff_t kFarthest = 1024;  // bytes; it follows the FILE in the same allocation
    Dl_info table, libc, other;
    const bool expected = dladdr(reinterpret_cast<void*>(&fopencookie), &libc) != 0 &&
                          dladdr(functions, &table) != 0 &&
                          dladdr(functions_of(served), &other) != 0 &&
                          table.dli_fbase == libc.dli_fbase && other.dli_fbase == libc.dli_fbase &&
                          functions != functions_of(served) && wide > begin &&
                          wide < begin + kFarthest;
    FILE* none = nullptr;
    if (expected) ordinary_functions.store(functions);
    if (!expected || !witness.compare_exchange_strong(none, donor)) free_donor(donor);
    layout.store(expected ? kAsExpected : kOther);
    return expected;
}

// At the end of a file, libc's fread() asks the kernel again if it is to read as much as the buffer
// holds. A stream of fopencookie() does not.
void expect_more(const Stream& stream) {
    const int error = errno;
    flush_cached(stream.fd);
    const off_t position = seek(stream.fd, 0, SEEK_CUR);
    char byte;
    if (position < 0 || kernel::pread(stream.fd, &byte, 1, position) != 0)
        internal::make_ordinary(stream.file);
    errno = error;
}

// Reads what is in the buffer, and then as many whole buffers as the cache has. Returns the bytes
// read. The rest, the end of the file and errors are libc's fread() to tell. Makes no call that is
// a cancellation point: the caller may hold the stream's lock.
size_t read_past_buffer(Stream& stream, char* to, size_t size) {
    FILE* file = stream.file;
    shorten_buffer(stream);
    const auto buffered = static_cast<size_t>(file->_IO_read_end - file->_IO_read_ptr);
    if ((file->_flags & kPushedBack) != 0 || buffered >= size) return 0;
    size_t done = next()->fread_unlocked(to, 1, buffered, file);
    const size_t block = file->_IO_buf_base == nullptr
                             ? stream.block_size
                             : static_cast<size_t>(file->_IO_buf_end - file->_IO_buf_base);
    while (size - done >= block) {
        const size_t wanted = size - done - (size - done) % block;
        const ssize_t got = read_cached(stream.fd, to + done, wanted, -1);
        if (got <= 0) break;
        record_at_position('r', stream.fd, got);
        // The bytes before the position are no longer those in the buffer.
        file->_IO_read_base = file->_IO_read_ptr = file->_IO_read_end = file->_IO_buf_base;
        file->_offset = -1;
        stream.has_sought = false;
        stream.has_bytes = true;
        done += static_cast<size_t>(got);
        if (static_cast<size_t>(got) < wanted) break;
    }
    return done;
}

// Returns a served stream for a descriptor that only reads; null: an ordinary one must be made.
FILE* make_stream(int fd) {
    if (!may_serve_stream(fd)) return nullptr;
    void* memory = malloc(sizeof(Stream));
    if (memory == nullptr) return nullptr;
    auto* stream = new (memory) Stream;
    stream->fd = fd;
    stream->block_size = block_size_of(fd);
    FILE* file = fopencookie(stream, "r", {read_stream, nullptr, seek_stream, close_stream});
    if (file == nullptr) {
        free(stream);
        return nullptr;
    }
    file->_fileno = fd;
    stream->file = file;
    if (layout.load() != kAsExpected && !has_expected_layout(file)) {
        file->_fileno = -1;  // its descriptor stays open
        next()->fclose(file);
        free(stream);
        return nullptr;
    }
    file->_old_offset = reinterpret_cast<intptr_t>(stream);
    file->_flags2 |= kHasStream;
    if ((witness.load()->_flags2 & kNeedsLock) == 0) file->_flags2 &= ~kNeedsLock;
    return file;
}

// Returns whether a stream that is opened so reads bytes, and libc's own way to do so is not asked
// for.
bool reads_bytes(const char* mode) {
    if (mode == nullptr || *mode != 'r' || layout.load() == kOther) return false;
    const size_t size = strnlen(mode, kModeMax + 1);
    return size <= kModeMax && strspn(mode + 1, "be") == size - 1;
}

}  // namespace

bool internal::may_serve(const char* path, const char* mode) {
    if (path == nullptr || !reads_bytes(mode)) return false;
    // Devices may make a difference between fopen() and what open_stream() does.
    for (const char* devices : {"/dev/", "/proc/", "/sys/"})
        if (strncmp(path, devices, strlen(devices)) == 0 && !is_cached_folder(devices))
            return false;
    return !is_child_of_vfork();
}

FILE* open_stream(const char* path, const char* mode, bool* served) {
    const int closes = strchr(mode, 'e') == nullptr ? 0 : O_CLOEXEC;
    const int fd = next()->open(path, O_RDONLY | closes, 0);
    *served = false;
    if (fd < 0) return nullptr;
    forget(fd);
    cached_opened(fd);
    const int before = errno;
    FILE* file = make_stream(fd);
    errno = before;
    *served = file != nullptr;
    if (file != nullptr) return file;
    file = next()->fdopen(fd, mode);
    if (file != nullptr) return file;
    const int error = errno;
    forget(fd);
    kernel::close(fd);
    errno = error;
    return nullptr;
}

FILE* served_stream(int fd, const char* mode) {
    if (!internal::caching.load(std::memory_order_relaxed) || !reads_bytes(mode) ||
        is_child_of_vfork())
        return nullptr;
    const int error = errno;
    const int flags = kernel::fcntl(fd, F_GETFL, nullptr);
    const bool reads = flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
    FILE* file = reads ? make_stream(fd) : nullptr;
    errno = error;
    return file;
}

bool is_served_stream(const FILE* file) {
    if (!internal::caching.load(std::memory_order_relaxed)) return false;
    const Stream* stream = stream_of(file);
    return stream != nullptr && stream->donor.load() == nullptr;
}

Stream* forget_stream(FILE* file) {
    if (!internal::caching.load(std::memory_order_relaxed)) return nullptr;
    Stream* stream = stream_of(file);
    if (stream != nullptr) file->_flags2 &= ~kHasStream;
    return stream;
}

void free_stream(Stream* stream) {
    if (stream == nullptr) return;
    free_donor(stream->donor.load());
    free(stream);
}

bool internal::make_ordinary(FILE* file) {
    Stream* stream = stream_of(file);
    if (stream == nullptr || stream->donor.load() != nullptr) return true;
    const int error = errno;
    flockfile(file);
    FILE* donor = stream->donor.load() == nullptr ? make_donor(stream->fd) : nullptr;
    if (donor != nullptr) {
        pass_cached(stream->fd, true);  // its own reads are not wrapped
        leave_to_stdio(stream->fd);
        shorten_buffer(*stream);
        file->_wide_data = donor->_wide_data;
        file->_offset = -1;  // libc asks for it
        file->_mode = stream->has_bytes ? -1 : 0;
        functions_of(file) = ordinary_functions.load();
        stream->donor.store(donor);
    }
    const bool done = stream->donor.load() != nullptr;
    funlockfile(file);
    errno = error;
    return done;
}

size_t internal::read_long(FILE* file, void* to, size_t size, size_t count, bool locks) {
    constexpr auto kByLibc = static_cast<size_t>(kNotCached);
    Stream* stream = stream_of(file);
    size_t bytes = 0;
    if (stream == nullptr || stream->donor.load() != nullptr ||
        __builtin_mul_overflow(size, count, &bytes))
        return kByLibc;
    if (feof_unlocked(file)) [[unlikely]] {
        expect_more(*stream);
        return kByLibc;
    }
    if (bytes < stream->block_size) return kByLibc;
    if (locks) flockfile(file);
    auto* at = static_cast<char*>(to);
    size_t done = read_past_buffer(*stream, at, bytes);
    if (done < bytes) {
        // A thread that is cancelled in a call of the kernel would keep the lock.
        int before = PTHREAD_CANCEL_ENABLE;
        if (locks) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        done += next()->fread_unlocked(at + done, 1, bytes - done, file);
        if (locks) pthread_setcancelstate(before, nullptr);
    }
    if (locks) funlockfile(file);
    return done / size;
}

bool internal::knows_orientation(FILE* file, int wanted, int* found) {
    Stream* stream = stream_of(file);
    if (stream == nullptr || stream->donor.load() != nullptr) return false;
    if (wanted < 0) stream->has_bytes = true;
    if (wanted > 0 && !stream->has_bytes && make_ordinary(file)) return false;
    *found = stream->has_bytes ? -1 : 0;
    return true;
}

}  // namespace penstock::preload
