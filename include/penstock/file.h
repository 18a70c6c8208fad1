// Host reads and writes: they move bytes between files and host or device memory. Each byte range
// takes its cheapest route, and a report says which.
//
// Any thread may use a File, several threads at once included, and any thread may close it. Calls
// in flight end as if the file were still open. Destroying a File, assigning to it and moving from
// it must not overlap with another call on it. Source: seed 003 (SPIN), in user space.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "penstock/device.h"
#include "penstock/options.h"
#include "penstock/report.h"
#include "penstock/residency.h"
#include "penstock/status.h"

namespace penstock {

namespace file {
class OpenFile;
}
namespace transfer {
class Job;
}

// The offset of each write, and of each piece, to a file opened with O_APPEND.
inline constexpr uint64_t kAtEnd = UINT64_MAX;

// One piece of a vectored read: `size` bytes of the file at `offset` go to the memory at `to`.
struct ReadPiece {
    void* to = nullptr;
    uint64_t size = 0;
    uint64_t offset = 0;
};

// One piece of a vectored write: `size` bytes of memory at `from` go to the file at `offset`.
struct WritePiece {
    const void* from = nullptr;
    uint64_t size = 0;
    uint64_t offset = 0;
};

// A read or write in flight. A Future is a handle: all its copies stand for the same operation, and
// any thread may use it. The memory and the object that owns it must stay alive until done() or
// until cancel() returns true. The bytes of a write must not change until then. The File may be
// closed earlier. In the child process of a fork, an operation of the parent makes no progress and
// is never done.
class Future {
public:
    Future() = default;  // stands for no operation: only assign to it

    // Returns whether the operation has ended, with or without an error.
    [[nodiscard]] bool done() const;
    // Waits until the operation is done, at most `limit`. The thread sleeps, but it may spin for
    // the first 1.5 ms in which only copies to a device are missing. Errors: ETIMEDOUT when the
    // operation is not done yet and continues; ECHILD when it belongs to the parent process.
    [[nodiscard]] Status wait(std::chrono::nanoseconds limit = std::chrono::hours(24)) const;
    // Waits at most `limit` and returns the bytes moved. A read that reaches the end of the file
    // returns fewer bytes than asked. Errors: ETIMEDOUT and ECHILD as wait(); ECANCELED; else the
    // error of storage for the first extent that failed: all other extents have arrived, and
    // report() names the failed one.
    [[nodiscard]] Result<uint64_t> result(
        std::chrono::nanoseconds limit = std::chrono::hours(24)) const;
    // Cancels the operation if no part of it has begun. Returns true if none has begun: then none
    // ever will. Returns false if the operation runs or is done.
    bool cancel() const;
    // Stops the operation: parts that have not begun never will. The operation is done, with
    // ECANCELED, when the parts in flight have ended.
    void stop() const;
    // Registers `callback`, which is called once when the operation is done, on the thread that
    // ends it. If the operation is done already, the call happens here, before the return. Several
    // callbacks are called in the order of registration. A callback must not block; it may start
    // other operations.
    void on_done(std::function<void()> callback) const;
    // Returns the report of the operation. Requires done(). The reference stays valid as long as
    // one Future of this operation exists.
    [[nodiscard]] const Report& report() const;

    explicit Future(std::shared_ptr<transfer::Job> job);

private:
    [[nodiscard]] bool is_of_parent() const;

    std::shared_ptr<transfer::Job> job_;
    uint64_t process_ = 0;  // number of the process that began the operation
};

// An open file of the host, or a closed one. Copies of a File share the open file.
class File {
public:
    // Opens a regular file, for reading unless options.open_flags say more.
    //   path     a path, as for open(2)
    //   device   the device whose memory reads and writes may use; none: host memory only
    //   options  open flags, defaults of the reads and writes, storage and threads
    // Any thread; blocks. Errors: those of open(2), EROFS and EEXIST among them; EISDIR for a
    // directory; ESPIPE for a pipe or socket; ENOTSUP for a device file; ENOSYS or EPERM when this
    // system does not offer the storage asked for; EINVAL for unknown open flags, and for invalid
    // options, PENSTOCK_THREADS, PENSTOCK_ROUTE, PENSTOCK_STRICT or PENSTOCK_EXPLAIN. Cost: an open
    // and a stat. The first open with a given device and options also starts threads and allocates
    // their memory.
    [[nodiscard]] static Result<File> open(const std::string& path, const Device& device = {},
                                           const FileOptions& options = {});
    // Takes over a descriptor that the caller has opened, with the access that it was opened for.
    //   descriptor  of a regular file, without O_DIRECT and O_NONBLOCK. The last copy of the File
    //               closes it. On an error it stays the caller's
    //   device      as for open()
    //   options     as for open(); open_flags is not used
    // Any thread; blocks. path() returns the descriptor's name in /proc/self/fd. With O_APPEND the
    // file appends, and writes leave the descriptor's position alone where this user may open the
    // file again. Errors: as open(); EBADF when the descriptor is not open for reading or writing;
    // EINVAL when it has one of these flags: they are not cleared, because duplicates of the
    // descriptor share them. Cost: as open(), without open(2).
    [[nodiscard]] static Result<File> adopt(int descriptor, const Device& device = {},
                                            const FileOptions& options = {});
    File() = default;  // a closed file
    // Makes a second File of the same open file. Closing one of them does not close the other.
    File(const File& other);
    File(File&& other) noexcept;
    File& operator=(File other) noexcept;
    ~File() = default;

    // Reads `size` bytes at `offset` of the file into `to`.
    //   to      host or device memory, any alignment; page-aligned memory on huge pages is fastest
    //   report  null, or receives the report of the read
    // Blocks. The calling thread does a part of the work, so a small read costs little more than a
    // system call. Returns the bytes read, fewer than `size` only at the end of the file. The rest
    // of the memory keeps its contents, with one exception: if another program truncates the file
    // during the read, the kernel may write zeros there, when bytes bypass the OS page cache.
    // Errors: EBADF when the file is closed or was opened for writing only; EINVAL when the range
    // ends beyond 2^63; EFAULT when `to` is null and `size` is not 0; EOPNOTSUPP when
    // ReadOptions::strict forbids a fallback; else the error of storage. Any other invalid address
    // is not reported: it has the effect that it has in memcpy.
    [[nodiscard]] Result<uint64_t> read(void* to, uint64_t size, uint64_t offset,
                                        Report* report = nullptr) const;
    [[nodiscard]] Result<uint64_t> read(void* to, uint64_t size, uint64_t offset,
                                        const ReadOptions& options, Report* report = nullptr) const;
    // Starts a read and returns without waiting. The call itself returns EBADF, EINVAL and EFAULT;
    // the Future returns all other errors.
    [[nodiscard]] Result<Future> pread(void* to, uint64_t size, uint64_t offset) const;
    [[nodiscard]] Result<Future> pread(void* to, uint64_t size, uint64_t offset,
                                       const ReadOptions& options) const;
    // Starts the read of several pieces as one operation. `pieces` is copied. The result of the
    // Future is the sum of the bytes read over all pieces; where it is less than asked, it does not
    // tell which pieces are short. readv() does the same and waits.
    [[nodiscard]] Result<Future> preadv(std::span<const ReadPiece> pieces,
                                        const ReadOptions& options) const;
    [[nodiscard]] Result<uint64_t> readv(std::span<const ReadPiece> pieces,
                                         const ReadOptions& options,
                                         Report* report = nullptr) const;

    // Other names of pread() and preadv(), for programs in which those stand for blocking calls.
    [[nodiscard]] Result<Future> read_async(void* to, uint64_t size, uint64_t offset) const {
        return this->pread(to, size, offset);
    }
    [[nodiscard]] Result<Future> read_async(void* to, uint64_t size, uint64_t offset,
                                            const ReadOptions& options) const {
        return this->pread(to, size, offset, options);
    }
    [[nodiscard]] Result<Future> read_async(std::span<const ReadPiece> pieces,
                                            const ReadOptions& options) const {
        return this->preadv(pieces, options);
    }
    // Tells the OS that a range will be read soon, as posix_fadvise(POSIX_FADV_WILLNEED) does.
    //   offset, size   in bytes; the range is cut at the end of the file
    // Any thread. Does not wait for the bytes, only for room in the queue of the disk. On return
    // the OS has begun to read the missing bytes into its page cache, but it may drop them before
    // they are used. Errors: EBADF when the file is closed or was opened for writing only; the
    // error of fstat(2). Cost: a system call for each 128 KiB. For hundreds of MiB the wait takes
    // most of the time of a read.
    Status prefetch(uint64_t offset = 0, uint64_t size = UINT64_MAX) const;

    // Writes `size` bytes from `from` to the file at `offset`. A write beyond the end of the file
    // makes the file longer, with zeros between.
    //   from    host or device memory, any alignment; nothing may write to it during the call, and
    //           what kernels wrote to it must be complete
    //   report  null, or receives the report of the write
    // Blocks until the OS has the bytes. By default they are in its page cache then, and every
    // reader of the file sees them on any route; fsync() makes them durable. With kBypass or
    // kDirect whole pages bypass the page cache, and only a partial page at the head or the tail
    // goes through it. Concurrent writes that overlap may mix. Returns `size`. Errors: EBADF when
    // the file is closed or was not opened for writing; EINVAL when the range ends beyond 2^63;
    // EFAULT when `from` is null; EFBIG beyond RLIMIT_FSIZE (without a signal) or the limit of the
    // file system; EOPNOTSUPP when WriteOptions::strict forbids a fallback; else the error of
    // storage (ENOSPC, EDQUOT, EIO ...). After an error of storage the report says where: all bytes
    // before that offset are written, and bytes after it may be. Cost: one system call below 256
    // KiB. Several threads share a longer write, as they share a read. Bytes from a GPU pass
    // through pinned memory.
    //
    // With O_APPEND each write goes to the end that the file has then, as write(2) does, and
    // `offset` must be kAtEnd; EINVAL otherwise. The report says where it went. Writes of one File
    // run one at a time, as they were called, and so do asynchronous ones. Up to 2 GiB - 4 KiB and
    // 1024 pieces lie together in the file, whatever other processes append. Such writes go through
    // the page cache (kUnaligned where the options ask for direct). Bytes of a GPU pass through
    // host memory of that size.
    [[nodiscard]] Result<uint64_t> write(const void* from, uint64_t size, uint64_t offset,
                                         Report* report = nullptr) const;
    [[nodiscard]] Result<uint64_t> write(const void* from, uint64_t size, uint64_t offset,
                                         const WriteOptions& options,
                                         Report* report = nullptr) const;
    // Starts a write and returns without waiting. The call itself returns EBADF, EINVAL and EFAULT;
    // the Future returns all other errors.
    [[nodiscard]] Result<Future> pwrite(const void* from, uint64_t size, uint64_t offset) const;
    [[nodiscard]] Result<Future> pwrite(const void* from, uint64_t size, uint64_t offset,
                                        const WriteOptions& options) const;
    // Starts the write of several pieces as one operation. `pieces` is copied. The result of the
    // Future is the sum of the bytes over all pieces. writev() does the same and waits.
    [[nodiscard]] Result<Future> pwritev(std::span<const WritePiece> pieces,
                                         const WriteOptions& options) const;
    [[nodiscard]] Result<uint64_t> writev(std::span<const WritePiece> pieces,
                                          const WriteOptions& options,
                                          Report* report = nullptr) const;

    // Other names of pwrite() and pwritev().
    [[nodiscard]] Result<Future> write_async(const void* from, uint64_t size,
                                             uint64_t offset) const {
        return this->pwrite(from, size, offset);
    }
    [[nodiscard]] Result<Future> write_async(const void* from, uint64_t size, uint64_t offset,
                                             const WriteOptions& options) const {
        return this->pwrite(from, size, offset, options);
    }
    [[nodiscard]] Result<Future> write_async(std::span<const WritePiece> pieces,
                                             const WriteOptions& options) const {
        return this->pwritev(pieces, options);
    }

    // Makes completed writes of the file durable: those of this File and of every other program.
    // Writes in flight may be included or not. With `data_only` it works as fdatasync(2): of the
    // metadata only that which is needed to read the bytes is synced. Blocks. Whether the name of a
    // new file is durable is up to the file system. Errors: EBADF when the file is closed; EIO,
    // ENOSPC or EDQUOT when bytes may be lost, which is reported once.
    Status fsync(bool data_only = false) const;
    // Truncates the file to `size` bytes, or extends it to `size` bytes with zeros. Writes in
    // flight may make it longer again. Errors: EBADF when the file is closed or was not opened for
    // writing; EINVAL beyond 2^63; EFBIG as for write(); else the error of storage (ENOSPC ...).
    Status truncate(uint64_t size) const;

    // Returns the current size in bytes. Errors: EBADF when the file is closed.
    [[nodiscard]] Result<uint64_t> size() const;
    // Returns what the OS page cache holds of this open file, whatever file has its name now. Works
    // as penstock::residency(), but opens nothing: some file systems drop the cached pages of a
    // file when it is opened. Errors: EBADF when the file is closed; ECANCELED; EINVAL.
    [[nodiscard]] Result<ResidencyReport> residency(const ResidencyOptions& options = {}) const;
    [[nodiscard]] std::string path() const;  // empty when the file is closed
    [[nodiscard]] bool closed() const {
        return (uses_.load(std::memory_order_relaxed) & kClosed) != 0;
    }
    // Closes the file. Reads and writes in flight go on; later calls return EBADF. Syncs nothing.
    void close();
    // Returns the options in use, or the defaults if the file is closed.
    [[nodiscard]] FileOptions options() const;

private:
    class Use;  // counts one call that uses `open_`
    explicit File(std::shared_ptr<file::OpenFile> open);
    void release() const;

    static constexpr uint64_t kClosed = 1, kReleased = 2, kUse = 4;
    // The sum of kUse for each call in flight that uses `open_`, with kClosed and kReleased. The
    // last such call of a closed file, or close() where there is none, releases `open_`.
    mutable std::atomic<uint64_t> uses_{kClosed | kReleased};
    mutable std::shared_ptr<file::OpenFile> open_;
};

}  // namespace penstock
