// libc's streams read and write by inner calls that no wrapper sees. They reach them by a table of
// functions that all streams of a kind share: one for bytes, one for wide characters. Here the
// entries of both tables that read and write are replaced by functions that call libc's and record.
// So each system call of a stream is recorded as the kernel saw it, whatever made the stream fill
// or flush its buffer: fgets(), getc_unlocked() as a macro, printf(), exit().
//
// libc checks that a stream's table is one of its own, and not what is in it.
#include "trace_streams.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "next.h"
#include "trace.h"

namespace penstock::preload {
namespace {

using ReadStream = ssize_t (*)(FILE*, void*, ssize_t);
using WriteStream = ssize_t (*)(FILE*, const void*, ssize_t);

constexpr size_t kEntries = 21;  // of a table, in every glibc since 2.1

ReadStream libc_read;
WriteStream libc_write;

ssize_t read_stream(FILE* file, void* to, ssize_t size) {
    return record_at_position('r', file->_fileno, libc_read(file, to, size));
}

ssize_t write_stream(FILE* file, const void* from, ssize_t size) {
    return record_at_position('w', file->_fileno, libc_write(file, from, size));
}

// Copies a pointer to memory that may be read-only, as libc's tables are, by the kernel. Returns
// false where it is.
bool copy_by_kernel(const void** to, const void* value, const int (&ends)[2]) {
    return kernel::write(ends[1], &value, sizeof value) == sizeof value &&
           kernel::read(ends[0], static_cast<void*>(to), sizeof value) == sizeof value;
}

// Sets an entry of a table. The protection of its page is afterwards as it was before.
bool set_entry(const void** entry, const void* value) {
    int ends[2];
    if (kernel::call(SYS_pipe2, ends, 0) != 0) return false;
    const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    auto* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry) &
                                               ~(page_size - 1));
    bool set = copy_by_kernel(entry, value, ends);
    if (!set && errno == EFAULT && mprotect(page, page_size, PROT_READ | PROT_WRITE) == 0) {
        *entry = value;
        set = mprotect(page, page_size, PROT_READ) == 0;
    }
    kernel::close(ends[0]);
    kernel::close(ends[1]);
    return set;
}

const void** find_entry(const void** table, const void* function) {
    for (size_t i = 0; i < kEntries; ++i)
        if (table[i] == function) return &table[i];
    return nullptr;
}

}  // namespace

const char* begin_tracing_streams() {
    constexpr const char* kUnknown = "this libc has other streams than those known";
    libc_read = reinterpret_cast<ReadStream>(dlsym(RTLD_NEXT, "_IO_file_read"));
    libc_write = reinterpret_cast<WriteStream>(dlsym(RTLD_NEXT, "_IO_file_write"));
    if (libc_read == nullptr || libc_write == nullptr) return kUnknown;
    for (const char* name : {"_IO_file_jumps", "_IO_wfile_jumps"}) {
        auto** const table = static_cast<const void**>(dlsym(RTLD_NEXT, name));
        if (table == nullptr) return kUnknown;
        const void** const read = find_entry(table, reinterpret_cast<const void*>(libc_read));
        const void** const write = find_entry(table, reinterpret_cast<const void*>(libc_write));
        if (read == nullptr || write == nullptr) return kUnknown;
        if (!set_entry(read, reinterpret_cast<const void*>(&read_stream)) ||
            !set_entry(write, reinterpret_cast<const void*>(&write_stream)))
            return strerror(errno);
    }
    return nullptr;
}

}  // namespace penstock::preload
