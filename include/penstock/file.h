// Host reads and writes: bytes between files and host or device memory, each range by its cheapest
// route, and a report that says which.
//
// A File may be used by any thread, also by several at once, and closed by any: calls that are
// under way end as if it were open. Only its destruction, and assigning to it or moving from it,
// must not meet another call. Source: seed 003 (SPIN), in user space.
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

// One piece of a vectored read.
struct ReadPiece {
    void* to = nullptr;
    uint64_t size = 0;
    uint64_t offset = 0;
};

// One piece of a vectored write.
struct WritePiece {
    const void* from = nullptr;
    uint64_t size = 0;
    uint64_t offset = 0;
};

// A read or write under way. A handle: copies stand for the same one. Any thread. The memory and
// whatever owns it must stay, and what is written must not change, until done() or a cancel() that
// returned true; the File may be closed earlier. In the child of a fork nobody works on what was
// under way: it is never done there.
class Future {
public:
    Future() = default;  // of nothing: only assign to it

    [[nodiscard]] bool done() const;
    // Waits at most `limit`, asleep but for the first 1.5 ms in which only copies to a device
    // are missing. ETIMEDOUT: not done yet; it goes on. ECHILD: it is a parent's.
    [[nodiscard]] Status wait(std::chrono::nanoseconds limit = std::chrono::hours(24)) const;
    // Bytes that arrived from the start, fewer at the end of a file that is read; waits at most
    // `limit`.
    // Errors: ETIMEDOUT; ECHILD; ECANCELED; else what storage said of the first extent that failed:
    // the others have arrived, and report() names it.
    [[nodiscard]] Result<uint64_t> result(
        std::chrono::nanoseconds limit = std::chrono::hours(24)) const;
    // True: nothing of it had begun and nothing ever will. False: it runs, or it is done.
    bool cancel() const;
    // What has not begun of it never will; it is done, with ECANCELED, when the rest is over.
    void stop() const;
    // Calls `callback` once when it is done, on the thread that ends it, or here and now
    // when it is; of several in the order given. It must not block, and may start others.
    void on_done(std::function<void()> callback) const;
    // Only when done(); stays valid as long as a handle does.
    [[nodiscard]] const Report& report() const;

    explicit Future(std::shared_ptr<transfer::Job> job);

private:
    [[nodiscard]] bool is_of_parent() const;

    std::shared_ptr<transfer::Job> job_;
    uint64_t process_ = 0;  // that began it
};

class File {
public:
    // Opens a regular file, for reading unless options.open_flags say more.
    //   path     as open(2)
    //   device   between whose memory and the file bytes may move too; none: host memory only
    //   options  how it is opened, defaults of its reads and writes, and what serves them
    // Any thread. Errors: those of open(2), EROFS and EEXIST among them; EINVAL: other flags;
    // EISDIR, ESPIPE, ENOTSUP for what is no regular file;
    // ENOSYS, EPERM: the storage asked for is not to be had here; EINVAL: options, or
    // PENSTOCK_THREADS, PENSTOCK_ROUTE or PENSTOCK_STRICT, that make no sense. Cost: an open, a
    // stat; the first of a device and options starts threads and takes their memory.
    [[nodiscard]] static Result<File> open(const std::string& path, const Device& device = {},
                                           const FileOptions& options = {});
    File() = default;  // closed
    // The copy is a File of its own, of the same open file: closing one does not close the other.
    File(const File& other);
    File(File&& other) noexcept;
    File& operator=(File other) noexcept;
    ~File() = default;

    // Reads `size` bytes from `offset` on.
    //   to      host or device memory of any alignment; page-aligned memory on huge pages is
    //           fastest
    //   report  null, or gets what became of it
    // Blocks; the calling thread does its part, so that small reads cost a system call and little
    // else. Returns bytes, fewer only at the end of the file; the memory behind them stays as it
    // is, unless another program cuts the file during the read: then the kernel may have written
    // zeros there, where bytes come past the OS page cache. Errors: EBADF closed, or opened for
    // writing only; EINVAL a range that ends beyond 2^63; EFAULT null, with bytes asked for: other
    // memory that is not there is no error but what memcpy makes of it; EOPNOTSUPP strict; what
    // storage said.
    [[nodiscard]] Result<uint64_t> read(void* to, uint64_t size, uint64_t offset,
                                        Report* report = nullptr) const;
    [[nodiscard]] Result<uint64_t> read(void* to, uint64_t size, uint64_t offset,
                                        const ReadOptions& options, Report* report = nullptr) const;
    // The same without waiting: EBADF, EINVAL, EFAULT at once, else by the Future.
    [[nodiscard]] Result<Future> pread(void* to, uint64_t size, uint64_t offset) const;
    [[nodiscard]] Result<Future> pread(void* to, uint64_t size, uint64_t offset,
                                       const ReadOptions& options) const;
    // Many pieces, one future; `pieces` is copied. Its result is the sum over the pieces of what
    // arrived.
    [[nodiscard]] Result<Future> preadv(std::span<const ReadPiece> pieces,
                                        const ReadOptions& options) const;
    [[nodiscard]] Result<uint64_t> readv(std::span<const ReadPiece> pieces,
                                         const ReadOptions& options,
                                         Report* report = nullptr) const;

    // Writes `size` bytes from `offset` on; beyond the end of the file it grows, with zeros
    // between.
    //   from    host or device memory of any alignment, to which nothing may be written meanwhile;
    //           what kernels wrote there must be complete
    //   report  null, or gets what became of it
    // Blocks until the OS has the bytes: by default they are in its page cache, and every reader of
    // the file has them from then on, whatever route it takes; fsync() makes them last. With
    // kBypass or kDirect whole pages go past the cache, and only a head and tail that fill none go
    // through it. Writes that overlap and are under way at once may mix. Returns `size`. Errors:
    // EBADF closed, or not opened for writing; EINVAL a range that ends beyond 2^63; EFAULT null;
    // EFBIG beyond RLIMIT_FSIZE (no signal comes) or what the file system holds; ENOSPC,
    // EDQUOT, EIO ...: then report says where, what lies before is written, and part of what lies
    // behind may be. EOPNOTSUPP strict. Cost: below 256 KiB a system call; longer ones are shared
    // out over threads as reads are, and from a GPU pass through pinned memory.
    [[nodiscard]] Result<uint64_t> write(const void* from, uint64_t size, uint64_t offset,
                                         Report* report = nullptr) const;
    [[nodiscard]] Result<uint64_t> write(const void* from, uint64_t size, uint64_t offset,
                                         const WriteOptions& options,
                                         Report* report = nullptr) const;
    // The same without waiting: EBADF, EINVAL, EFAULT at once, else by the Future.
    [[nodiscard]] Result<Future> pwrite(const void* from, uint64_t size, uint64_t offset) const;
    [[nodiscard]] Result<Future> pwrite(const void* from, uint64_t size, uint64_t offset,
                                        const WriteOptions& options) const;
    // Many pieces, one future; `pieces` is copied. Its result is the sum over the pieces.
    [[nodiscard]] Result<Future> pwritev(std::span<const WritePiece> pieces,
                                         const WriteOptions& options) const;
    [[nodiscard]] Result<uint64_t> writev(std::span<const WritePiece> pieces,
                                          const WriteOptions& options,
                                          Report* report = nullptr) const;

    // Returns when all writes of the file that are done, of this File and of everybody else,
    // outlast the machine's power; those under way may or may not. With `data_only` as
    // fdatasync(2): of what tells of the file only what it takes to read the bytes. Blocks. That
    // the name of a new file lasts is up to the file system. EBADF; EIO, ENOSPC, EDQUOT: bytes may
    // be lost, which is told once.
    Status fsync(bool data_only = false) const;
    // Cuts the file off, or makes it longer with zeros. Writes under way may make it longer again.
    // EBADF closed, or not opened for writing; EINVAL beyond 2^63; EFBIG as write(); ENOSPC ...
    Status truncate(uint64_t size) const;

    // Bytes, now. EBADF.
    [[nodiscard]] Result<uint64_t> size() const;
    // What the OS page cache holds of it: residency() of an open file, whatever has its name now.
    // Opens nothing, so that no file system drops what is cached. EBADF; ECANCELED; EINVAL.
    [[nodiscard]] Result<ResidencyReport> residency(const ResidencyOptions& options = {}) const;
    [[nodiscard]] std::string path() const;  // empty when closed
    [[nodiscard]] bool closed() const {
        return (uses_.load(std::memory_order_relaxed) & kClosed) != 0;
    }
    // Reads and writes under way go on; later ones get EBADF. Syncs nothing.
    void close();
    [[nodiscard]] FileOptions options() const;

private:
    class Use;  // one call
    explicit File(std::shared_ptr<file::OpenFile> open);
    void release() const;

    static constexpr uint64_t kClosed = 1, kReleased = 2, kUse = 4;
    // kUse for each call that uses `open_`, and whether it is closed: the last of both takes
    // `open_` away.
    mutable std::atomic<uint64_t> uses_{kClosed | kReleased};
    mutable std::shared_ptr<file::OpenFile> open_;
};

}  // namespace penstock
