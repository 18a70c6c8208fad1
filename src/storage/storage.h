// PORT to the bytes of files: opens files, submits reads and writes, and reaps their completions.
// Each kind of storage has its own pair of files.
//
// No other room touches files. This one knows no pages and no frames, and all memory is plain host
// memory. Any thread may use a Storage or a File. One thread at a time may use a Queue, so queues
// need no locks and each worker makes its own.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "penstock/route.h"
#include "penstock/status.h"

namespace penstock::storage {

enum class Kind : uint8_t {
    kAuto,      // cached routes as kPosix; direct ones as kUring if the kernel allows it
    kPosix,     // preadv and pwritev on the thread that submits
    kUring,     // io_uring, one ring a queue
    kRam,       // named byte arrays held in memory, for tests and studies
    kThrottle,  // another kind, slowed to stated figures
};

// Tells whether a name still stands for the bytes that were read. If any field differs, the bytes
// may have changed.
struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t generation = 0;  // of the inode number; 0 if the file system does not report it
    uint64_t size = 0;        // bytes
    int64_t mtime_ns = 0;     // since 1970, in the file system's granularity (often a 4 ms tick)
    int64_t ctime_ns = 0;

    friend bool operator==(const Identity&, const Identity&) = default;
    // Returns whether this is the same file. Its bytes may have changed.
    [[nodiscard]] bool same_file(const Identity& other) const {
        return device == other.device && inode == other.inode && generation == other.generation;
    }
};

// Looks at the file behind a descriptor as it is now. Errors: those of statx(2).
Status identify(int descriptor, Identity* out);
// Returns whether the file was modified within the last two ticks of the file system's clock. A
// change within the same tick does not change the times, so such a file is not trusted at the next
// open.
[[nodiscard]] bool is_racy(const Identity& identity);

// The alignment, in bytes, that direct I/O requires of file offsets and lengths, and of memory
// addresses. Both are 0 if direct I/O is not offered. A file that requires more than these limits
// counts as offering none, because staging has no room for it.
inline constexpr uint32_t kOffsetAlignmentMax = 64 << 10, kMemoryAlignmentMax = 4096;
struct DirectAlignment {
    uint32_t offset = 0;
    uint32_t memory = 0;
};

// What the open file allows. The kernel may have granted more than the caller asked for.
struct Rights {
    bool read = true;
    bool write = false;
    bool append = false;  // every write goes to the end that the file has then
};

// An open regular file. It is closed with the last reference.
class File {
public:
    virtual ~File() = default;
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    // Describes the file at the open; stat() describes it now.
    [[nodiscard]] const Identity& identity() const { return identity_; }
    [[nodiscard]] uint64_t size() const { return identity_.size; }
    [[nodiscard]] DirectAlignment direct_alignment() const { return direct_alignment_; }
    // Returns -1 if there is no descriptor (kRam).
    [[nodiscard]] int descriptor() const { return descriptor_; }
    [[nodiscard]] Rights rights() const { return rights_; }
    // Returns the descriptor for I/O that bypasses the OS page cache. The first successful call
    // opens it, and all callers share it. Returns -errno on failure: EOPNOTSUPP if there is none,
    // else the error of open(2).
    [[nodiscard]] virtual int direct_descriptor() const { return -EOPNOTSUPP; }

    // Returns whether the kernel refused RWF_DONTCACHE for this file. Such a call leaves nothing in
    // the OS page cache. A queue finds out by trying.
    [[nodiscard]] bool drop_refused() const {
        return drop_refused_.load(std::memory_order_relaxed);
    }
    void refuse_drop() { drop_refused_.store(true, std::memory_order_relaxed); }

    // Hints that these bytes are about to be read through the OS page cache. The kernel may begin
    // to fetch the missing ones. Does not wait for them.
    virtual void announce(uint64_t /*offset*/, uint64_t /*size*/) const {}
    // Hints whether the kernel should read ahead of reads through the OS page cache. It does by
    // default. The hint holds for this open file until the next one; readahead that has begun
    // continues.
    virtual void read_ahead(bool /*ahead*/) const {}

    // Prepares for a write. Each queue calls it before each write to the file. It may wait for
    // direct writes that another process has left in flight.
    virtual void begin_write() {}

    // Begins an append of a file with a descriptor: returns the descriptor, whose position is where
    // the last append ended. No other append of this File begins before end_append().
    virtual int begin_append() { return descriptor(); }
    virtual void end_append() {}

    // Describes the open file as it is now, even if its name is gone or stands for another file.
    virtual Status stat(Identity* out) const = 0;

    // Brings to disk what completed writes have left in memory. With `data_only` it brings only
    // what is needed to read the bytes again, else all metadata too. Blocks. Whether the name of a
    // new file survives a crash depends on the file system. EIO, ENOSPC, EDQUOT: some bytes may be
    // lost. Each loss is reported once.
    virtual Status sync(bool data_only);
    // Shortens the file, or extends it with zeros. EBADF: not open for writing. EFBIG, EINVAL: the
    // file system allows no such size. Other errors are those of ftruncate(2), such as ENOSPC.
    virtual Status truncate(uint64_t size);

protected:
    File(const Identity& identity, DirectAlignment direct_alignment, int descriptor,
         Rights rights = {})
        : identity_(identity),
          direct_alignment_(direct_alignment),
          descriptor_(descriptor),
          rights_(rights) {}

private:
    const Identity identity_;
    const DirectAlignment direct_alignment_;
    const int descriptor_;
    const Rights rights_;
    std::atomic<bool> drop_refused_{false};
};

// Stands for a descriptor that stays the caller's, for hints and questions about the OS page cache
// only; no queue takes it. If the descriptor gets another meaning, hints go to the wrong file.
// EBADF: it cannot be read; EINVAL: opened with O_DIRECT; else the errors of an open.
[[nodiscard]] Result<std::shared_ptr<File>> borrow(int descriptor);

// Moves the bytes [offset, offset + sum of lengths) of `file`. A read scatters them over `pieces`
// in order; a write gathers them from there. The file, the array and the memory that it points to
// must stay until the completion has been reaped. More bytes may have been moved than the
// completion counts. A write beyond the end of the file extends it, with zeros in the gap.
//
// Writes of a file that appends go to its end, in the order in which queues take them. Only kCached
// is possible. Up to 2 GiB - 4 KiB and 1024 pieces are one system call, so their bytes lie together
// whatever other processes append.
struct Operation {
    File* file = nullptr;           // opened by the Storage that made the queue
    uint64_t offset = 0;            // not used by an append
    std::span<const iovec> pieces;  // any number, any alignment, lengths may be 0
    uint64_t cookie = 0;            // copied into the completion
    // kDirect: the offset, lengths and addresses must have direct_alignment(). A read's length may
    // reach beyond the end of the file. An error such as EINVAL or EOPNOTSUPP in the completion
    // means that direct I/O is not possible. A direct write drops its range from the OS page cache.
    Route route = Route::kCached;
    bool drop = false;  // kCached: bytes that were not in the OS page cache need not stay in it
    // With `drop`: fails with EOPNOTSUPP and moves nothing if the kernel refuses RWF_DONTCACHE.
    bool must_drop = false;
    bool write = false;  // the pieces are sources and are only read
};

struct Completion {
    uint64_t cookie = 0;
    // Bytes that are valid, from the start. If there are fewer than requested, the file ended or
    // `error` is set.
    uint64_t bytes = 0;
    // 0, or the errno that ended the operation after `bytes`: EIO, EINVAL, EFAULT and others.
    // EBADF: the file is not open for this. Writes also give ENOSPC and EDQUOT. They give EFBIG,
    // and raise no signal, beyond RLIMIT_FSIZE or the largest size of the file system.
    int error = 0;
    // Of an append: where its first byte went; the end of the file if an error left no byte.
    uint64_t offset = 0;
};

inline constexpr uint32_t kQueueDepthMax = 4096;

// A queue of operations for one thread at a time. The destructor waits until the kernel has stopped
// reading and writing the caller's memory.
class Queue {
public:
    virtual ~Queue() = default;
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    // Takes operations from the front while there is room, and returns how many it took. Each one
    // completes exactly once, in any order, and reports every error in its completion. May block as
    // long as the operations take (kPosix does its work here). The queue itself continues
    // interrupted and short calls. Operations that overlap run in any order.
    [[nodiscard]] virtual size_t submit(std::span<const Operation> operations) = 0;

    // Stores at most out.size() completions and returns how many. With `wait`, blocks until there
    // is at least one, unless nothing is outstanding.
    [[nodiscard]] virtual size_t reap(std::span<Completion> out, bool wait) = 0;

    // Submits one operation and waits for its completion. Requires that nothing is outstanding.
    [[nodiscard]] virtual Completion submit_and_reap(const Operation& operation);

    // Returns the count of operations taken and not yet reaped. It is at most depth().
    [[nodiscard]] virtual size_t outstanding() const = 0;
    [[nodiscard]] uint32_t depth() const { return depth_; }

protected:
    explicit Queue(uint32_t depth) : depth_(depth) {}

private:
    const uint32_t depth_;
};

class Storage {
public:
    virtual ~Storage() = default;

    [[nodiscard]] virtual Kind kind() const = 0;
    // Returns one line for reports: "posix", "throttle (100 us, 2000 MB/s) over posix".
    [[nodiscard]] virtual std::string description() const = 0;

    // Opens a regular file. `flags` are those of open(2): O_RDONLY, O_WRONLY or O_RDWR with O_CREAT
    // (mode 0666), O_EXCL, O_TRUNC and O_APPEND. EINVAL: other flags, O_EXCL without O_CREAT, or
    // O_TRUNC or O_APPEND without writing. O_WRONLY also opens for reading if this user may read,
    // because a partial write may have to fetch bytes. Never blocks on a FIFO and never opens a
    // device. EISDIR: a directory; ESPIPE: a FIFO or socket; ENOTSUP: a device. Other errors are
    // those of open(2), such as EROFS.
    [[nodiscard]] virtual Result<std::shared_ptr<File>> open(const std::string& path,
                                                             int flags) = 0;

    // Takes over an open descriptor of a regular file, with the access that it was opened for, and
    // closes it with the file. On an error the descriptor stays the caller's. Errors: EBADF when it
    // is not open for reading or writing; EINVAL when it has O_DIRECT or O_NONBLOCK;
    // EOPNOTSUPP when this storage has no descriptors; those of open() for another kind of file.
    [[nodiscard]] virtual Result<std::shared_ptr<File>> adopt(int descriptor);

    // Removes the name; open files stay valid. Fails with the errors of unlink(2), or EOPNOTSUPP.
    virtual Status unlink(const std::string& path);

    // Makes a queue and takes all memory that it will use. EINVAL: `depth` is not from 1 to
    // kQueueDepthMax.
    [[nodiscard]] virtual Result<std::unique_ptr<Queue>> make_queue(uint32_t depth) = 0;

protected:
    static Status check_depth(uint32_t depth);
};

// Checks that Storage::open takes `flags`, else returns EINVAL.
[[nodiscard]] Status check_open_flags(int flags);

struct ThrottleOptions {
    double latency_us = 0;     // of each operation; operations in flight overlap
    double bandwidth_mbs = 0;  // 10^6 bytes/s of reads and writes over all queues; 0: no cap
};

// Returns EINVAL for figures that no disk has: NaN, infinite, negative, a latency above an hour, or
// a bandwidth below a byte per second.
[[nodiscard]] Status check(const ThrottleOptions& options);

struct Options {
    Kind kind = Kind::kAuto;
    ThrottleOptions throttle = {};  // for kThrottle
    Kind under = Kind::kPosix;      // the kind that kThrottle slows
};

// Makes the storage. If the kernel refuses kUring, fails with ENOSYS, EPERM or another errno and
// the reason. It never falls back to another kind.
[[nodiscard]] Result<std::shared_ptr<Storage>> make_storage(const Options& options);

// Returns "auto", "posix", "uring", "ram" or "throttle".
[[nodiscard]] const char* name(Kind kind);

}  // namespace penstock::storage
