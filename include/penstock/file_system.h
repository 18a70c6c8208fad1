// The GPU file system as the host sees it: create it, open files for kernels, read its counters.
//
// Kernels receive device_handle() and descriptors, and call gread and the other device functions
// (device/file.cuh). One FileSystem owns one page cache on one device. Any thread may call any
// function.
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

// Memory that readahead reserves, in bytes. Only `windows_size` changes after creation.
struct ReadaheadMemory {
    // Frames of the cache that all windows together may hold, at most a quarter; 0: no readahead.
    uint64_t windows_size_max = 0;
    uint64_t windows_size = 0;  // frames that they hold now
    // Memory beside the cache: streams, windows, ring and counters of each block that can be
    // resident, and of each warp, because a warp can make a call alone.
    uint64_t tables_size = 0;
};

// What the file system has done since it was created. The counters are relaxed atomics: together
// they show no single moment exactly.
struct FileSystemStatistics {
    uint64_t requests = 0;         // pages requested from the host
    uint64_t demanded_pages = 0;   // requests by reads or ahead of launches; windows made the rest
    uint64_t reads = 0;            // storage reads that served these requests
    uint64_t bytes_read = 0;       // from storage
    uint64_t control_calls = 0;    // gopen and gclose
    uint64_t storage_time_ns = 0;  // time in storage calls, summed over all threads
    uint64_t serving_time_ns = 0;  // other time that workers or helpers spent on requests
    uint64_t failed_pages = 0;     // pages that could not be read
    uint64_t writes = 0;           // storage writes that wrote pages back
    uint64_t bytes_written = 0;    // by these writes
    uint64_t failed_writes = 0;    // failed attempts to write a page back
    FileStatistics pages;          // sum over all files
    uint64_t cache_size = 0;       // bytes of frames
    ReadaheadMemory readahead;
    uint64_t open_descriptors = 0;
    uint64_t views = 0;    // mapped now; 0 where the host cannot address device memory
    unsigned workers = 0;  // worker threads; 0: waiting blocks serve requests
};

// What kernels left open or unfinished, and FileSystem::reclaim() cleaned up.
struct Leftovers {
    uint64_t descriptors = 0;  // opened with gopen and never closed
    uint64_t views = 0;        // mapped and never unmapped
    uint64_t reads = 0;        // calls of gread_async and gwrite_async without a gwait; such a
                               // write has written nothing
    int write_error = 0;       // errno of a failed write-back of what the kernels wrote; 0: none
};

// A file system for kernels on one device, with its page cache. It can be moved, not copied.
class FileSystem {
public:
    // Creates a file system: allocates all memory that reading needs and starts the worker threads.
    //   device   the device whose memory holds the page cache
    //   options  page size, cache size, storage, workers; see options.h
    // Any thread. Errors:
    //   EINVAL  The page size is no power of two from 4 KiB to 4 MiB. The cache has fewer frames
    //           than the device has permits. There are more than 16 workers, the static map
    //           together with helping, or a log of more than 2^22 events. The prefetch size
    //           (Readahead::kStatic) is no multiple of the page size, more than 63 pages, or more
    //           than 1 MiB (one page may be larger); or together with one page it is more than a
    //           quarter of the cache.
    //   ENOMEM  The cache does not fit into device memory.
    //   ENOSYS, EPERM  This system does not offer the storage asked for.
    [[nodiscard]] static Result<FileSystem> create(const Device& device,
                                                   const FileSystemOptions& options = {});

    FileSystem() = default;
    // Writes dirty pages back, as close() does, but waits for no kernel of the program:
    // synchronize the streams whose kernels use the file system first. Errors are lost here: close
    // or sync the written files before.
    ~FileSystem();
    FileSystem(FileSystem&&) noexcept;
    FileSystem& operator=(FileSystem&&) noexcept;

    // Opens a regular file for kernels, as gopen does, but without a kernel. It takes the same
    // `flags` (abi/file_system.h), whose numbers are those of open(2). The descriptor is counted:
    // every open needs its close. Any thread; blocks on the file system. Errors: those of open(2);
    // EISDIR for a directory; ESPIPE for a pipe or socket; ENOTSUP for a device file; EFBIG when
    // the file has more pages than the page table has room for; ENFILE when 4,096 files are known
    // and all are in use; EBUSY when `flags` ask to truncate the file, or to write it once, and it
    // is open already. Cost: an open and a stat.
    [[nodiscard]] Result<Descriptor> open(const std::string& path, int flags = kOpenReadOnly);
    // Gives a descriptor back; its pages stay cached. For the last descriptor that may write, a
    // kernel of the library writes the file back, and the call waits for that kernel: do not call
    // while kernels fill the device and wait for the caller. Errors: EBADF; a failed write-back, as
    // gclose returns it.
    Status close(Descriptor descriptor);
    // Makes durable what kernels have written to a file so far, as gfsync does. Blocks as close().
    Status sync(Descriptor descriptor);
    // Returns the size in bytes as of the open, or less if a read found the file shorter. For a
    // file that kernels write, the size includes what they have written so far, if the host can
    // address device memory; otherwise it is the size as of the last open or close. Errors: EBADF.
    [[nodiscard]] Result<uint64_t> size(Descriptor descriptor) const;

    // Returns the handle that is passed to kernels by value. It is valid as long as this object.
    [[nodiscard]] DeviceFileSystem device_handle() const;
    // Returns the counters. Any thread; on a GPU the call waits for copies from the device.
    [[nodiscard]] FileSystemStatistics statistics() const;
    // Returns the counters of an open file. Any thread; on a GPU the call waits for a copy from the
    // device. Errors: EBADF.
    [[nodiscard]] Result<FileStatistics> file_statistics(Descriptor descriptor) const;
    // Returns the load of the request queue. Any thread.
    [[nodiscard]] QueueLoad queue_load() const;
    // Returns the log of all that the host served since the file system was created, or since the
    // last call. It is empty unless FileSystemOptions::log_events asked for a log. Any thread; on a
    // GPU the call waits for a copy from the device.
    [[nodiscard]] ServiceLog take_log();
    // Returns the storage in use: "posix", "uring", "throttle (100 us, 2000 MB/s) over posix".
    [[nodiscard]] std::string storage() const;

    // Cleans up after kernels and returns how much they left. Writes back files that were written
    // and left open, discards what cannot be written, and closes them. Drops the views that were
    // left mapped and the asynchronous calls that were never waited for. What was stored through
    // such a view and not synced may be lost. Waits for the requests of these calls. Errors: EBUSY
    // while a kernel runs on the device, or when the requests are not served within 10 s. Where the
    // host cannot address device memory, a small kernel does this work.
    [[nodiscard]] Result<Leftovers> reclaim();

    // Returns why all waits end with an error by now ("worker 2 stopped while it held requests").
    // Empty when they do not.
    [[nodiscard]] std::string abort_cause() const;
    // Ends every wait of every kernel, from now on, with -errno of `cause`. For programs that must
    // stop. Never blocks.
    void abort(Status cause);

    [[nodiscard]] const std::shared_ptr<file::System>& system() const { return system_; }

private:
    explicit FileSystem(std::shared_ptr<file::System> system);
    friend class file::System;
    std::shared_ptr<file::System> system_;
};

}  // namespace penstock
