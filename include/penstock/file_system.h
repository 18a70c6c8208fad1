// The GPU file system seen from the host: create it, open files for kernels, read its counters.
//
// Kernels get `device_handle()` and descriptors and call gread and its kin (device/file.cuh). One
// FileSystem owns one page cache on one device. Functions may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "penstock/abi/file_system.h"
#include "penstock/device.h"
#include "penstock/device/handle.h"
#include "penstock/file_statistics.h"
#include "penstock/options.h"
#include "penstock/queue_load.h"
#include "penstock/service_log.h"
#include "penstock/status.h"

namespace penstock {

namespace file {
class System;
}

// Memory that readahead has for itself, in bytes. Constant after creation, but for `windows_size`.
struct ReadaheadMemory {
    // Frames of the cache that all windows together may hold: a quarter at most; 0: no readahead.
    uint64_t windows_size_max = 0;
    uint64_t windows_size = 0;  // that they hold now
    // Beside the cache: streams, windows, ring and counters of each block that can be resident; of
    // each warp, as calls may be a warp's.
    uint64_t tables_size = 0;
};

// What the file system has done since it was created. Counted relaxed: a moment's picture.
struct FileSystemStatistics {
    uint64_t requests = 0;         // pages asked of the host
    uint64_t demanded_pages = 0;   // of those: by reads, or ahead of launches; the rest by windows
    uint64_t reads = 0;            // storage operations they became
    uint64_t bytes_read = 0;       // from storage
    uint64_t control_calls = 0;    // gopen and gclose
    uint64_t storage_time_ns = 0;  // time in storage calls, over all threads
    uint64_t serving_time_ns = 0;  // the rest of the time that workers or helpers spent on requests
    uint64_t failed_pages = 0;     // pages that could not be read
    uint64_t writes = 0;           // storage operations that pages were written back by
    uint64_t bytes_written = 0;    // by them
    uint64_t failed_writes = 0;    // pages that could not be written back, each time
    FileStatistics pages;          // over all files
    uint64_t cache_size = 0;       // bytes of frames
    ReadaheadMemory readahead;
    uint64_t open_descriptors = 0;
    uint64_t views = 0;    // mapped now; 0 where the host cannot address device memory
    unsigned workers = 0;  // worker threads; 0: blocks help themselves
};

// What kernels left behind, put right by FileSystem::reclaim().
struct Leftovers {
    uint64_t descriptors = 0;  // opened with gopen and never closed
    uint64_t views = 0;        // mapped and never unmapped
    uint64_t reads = 0;        // and writes, begun with gread_async or gwrite_async and never
                               // waited for; such a write has written nothing
    int write_error = 0;       // errno: what they have written could not be written back
};

class FileSystem {
public:
    // Takes all memory that reading needs and starts the threads that serve.
    //   device   where the page cache lies
    //   options  page size, cache size, storage, who serves; see options.h
    // Any thread. EINVAL: a page size that is no power of two from 4 KiB to 4 MiB, a cache with
    // fewer frames than the device has permits, more workers than 16, the static map with helping,
    // a log of more than 2^22 events,
    // a prefetch size (Readahead::kStatic) that is no multiple of the page, or more than 63 pages,
    // 1 MiB (but for one page) or, with one page more, a quarter of the cache; ENOMEM: the cache
    // does not fit; ENOSYS, EPERM: the storage asked for is not to be had here.
    [[nodiscard]] static Result<FileSystem> create(const Device& device,
                                                   const FileSystemOptions& options = {});

    FileSystem() = default;
    // Writes back what is dirty, as close() does. Waits for no other kernel: synchronize the
    // streams whose kernels use it first. Errors go unseen: close or sync what was written.
    ~FileSystem();
    FileSystem(FileSystem&&) noexcept;
    FileSystem& operator=(FileSystem&&) noexcept;

    // Opens a regular file for kernels; as gopen, with no kernel, and the same `flags`
    // (abi/file_system.h; their numbers are those of open(2)). The descriptor is counted: every
    // open wants its close. Any thread; waits for the file system. Errors: those of open(2);
    // EISDIR, ESPIPE, ENOTSUP for what is no regular file; EFBIG: more pages than the page table
    // has room for; ENFILE: 4,096 files are known and all in use; EBUSY: to be truncated, or
    // written once, and open already. Cost: an open, a stat.
    [[nodiscard]] Result<Descriptor> open(const std::string& path, int flags = kOpenReadOnly);
    // Gives a descriptor back; pages stay cached. The last one that may write has the file written
    // back by a kernel of the library's own, which it waits for: not while kernels fill the device
    // and wait for the caller. EBADF; what could not be written back, as gclose.
    Status close(Descriptor descriptor);
    // Makes what kernels have written to a file so far last; as gfsync, and waits as close() does.
    Status sync(Descriptor descriptor);
    // Size in bytes as of the open, or shorter if a read found it so. Of a file that kernels write:
    // with what they have written so far where the host can address the device's memory, else as of
    // the last open or close. EBADF.
    [[nodiscard]] Result<uint64_t> size(Descriptor descriptor) const;

    // What kernels are given, by value. Valid as long as this object.
    [[nodiscard]] DeviceFileSystem device_handle() const;
    // Any thread; on a GPU waits for copies from the device.
    [[nodiscard]] FileSystemStatistics statistics() const;
    // Of an open file. Any thread; on a GPU waits for a copy from the device. EBADF.
    [[nodiscard]] Result<FileStatistics> file_statistics(Descriptor descriptor) const;
    [[nodiscard]] QueueLoad queue_load() const;
    // What was served since the file system was created, or since the last call; empty unless
    // FileSystemOptions::log_events asked for it. Any thread; on a GPU waits for a copy from the
    // device.
    [[nodiscard]] ServiceLog take_log();
    // The storage that serves it: "posix", "uring", "throttle (100 us, 2000 MB/s) over posix".
    [[nodiscard]] std::string storage() const;

    // Writes back what kernels have written and left open, gives up what cannot be written of it,
    // closes it, drops the views they left mapped and the calls they left begun; says how many.
    // What was stored through such a view and not synced may be lost. Waits for their requests.
    // EBUSY while a kernel runs on the device, or if the requests are not served within 10 s. Where
    // the host cannot address the device's memory a small kernel does it.
    [[nodiscard]] Result<Leftovers> reclaim();

    // Why waits end with an error since then ("worker 2 stopped while it held requests"); empty:
    // they do not.
    [[nodiscard]] std::string abort_cause() const;
    // Ends every wait of every kernel with -errno of `cause`, from now on. For programs that are
    // told to stop. Never blocks.
    void abort(Status cause);

    [[nodiscard]] const std::shared_ptr<file::System>& system() const { return system_; }

private:
    explicit FileSystem(std::shared_ptr<file::System> system);
    friend class file::System;
    std::shared_ptr<file::System> system_;
};

}  // namespace penstock
