// PORT to the bytes of files: open, submit reads and writes, reap completions. One pair of files
// for each kind.
//
// The only room that touches files. It knows no pages and no frames: all memory is plain host
// memory. A Storage and a File may be used by any thread; a Queue by one thread at a time, so
// queues need no locks and every worker makes its own.
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
    kAuto,      // what is cached as kPosix, what is direct as kUring where the kernel lets it
    kPosix,     // preadv and pwritev on the thread that submits
    kUring,     // io_uring, one ring a queue
    kRam,       // named byte arrays held in memory, for tests and studies
    kThrottle,  // another kind, slowed to stated figures
};

// Tells whether the bytes behind a name are still those that were read: any difference means they
// may not be.
struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t generation = 0;  // of the inode number; 0 where the file system does not tell
    uint64_t size = 0;        // bytes
    int64_t mtime_ns = 0;     // since 1970, to the file system's own grain (often a 4 ms tick)
    int64_t ctime_ns = 0;

    friend bool operator==(const Identity&, const Identity&) = default;
    // The same file, whatever became of its bytes.
    [[nodiscard]] bool same_file(const Identity& other) const {
        return device == other.device && inode == other.inode && generation == other.generation;
    }
};

// What direct I/O asks of offset and length, and of the address in memory. Both 0: not offered;
// more than these is taken for that: staging has no room for it.
inline constexpr uint32_t kOffsetAlignmentMax = 64 << 10, kMemoryAlignmentMax = 4096;
struct DirectAlignment {
    uint32_t offset = 0;
    uint32_t memory = 0;
};

// What the open file lets be done; more than was asked for where the kernel gave more.
struct Rights {
    bool read = true;
    bool write = false;
};

// An open regular file; closed when the last reference goes.
class File {
public:
    virtual ~File() = default;
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    // As of the open; stat() tells what is so now.
    [[nodiscard]] const Identity& identity() const { return identity_; }
    [[nodiscard]] uint64_t size() const { return identity_.size; }
    [[nodiscard]] DirectAlignment direct_alignment() const { return direct_alignment_; }
    // -1 where there is none (kRam).
    [[nodiscard]] int descriptor() const { return descriptor_; }
    [[nodiscard]] Rights rights() const { return rights_; }
    // For what bypasses the OS page cache: opened by the first call that can, shared by all.
    // -errno: EOPNOTSUPP where there is none, else what open(2) says.
    [[nodiscard]] virtual int direct_descriptor() const { return -EOPNOTSUPP; }

    // The kernel takes no calls here that leave nothing behind (RWF_DONTCACHE); found out by
    // trying.
    [[nodiscard]] bool drop_refused() const {
        return drop_refused_.load(std::memory_order_relaxed);
    }
    void refuse_drop() { drop_refused_.store(true, std::memory_order_relaxed); }

    // A hint: these bytes are about to be read through the OS page cache, which may begin to fetch
    // what it has not got. Waits for none of them.
    virtual void announce(uint64_t /*offset*/, uint64_t /*size*/) const {}
    // A hint: whether the kernel shall read ahead of what is read through the OS page cache, as it
    // does from the start. Of this open file, until the next such hint; what the kernel has begun
    // to read goes on.
    virtual void read_ahead(bool /*ahead*/) const {}

    // Before each write of its bytes, by the queue that makes it; may wait for direct writes that
    // another process has left behind.
    virtual void begin_write() {}

    // The open file as it is now, even when its name is gone or stands for another file.
    virtual Status stat(Identity* out) const = 0;

    // What writes that are complete have left in memory reaches the disk: all that tells of the
    // file too or, with `data_only`, only what it takes to read the bytes again. Blocks. That the
    // name of a file that was just created lasts is up to the file system. EIO, ENOSPC, EDQUOT:
    // some of it may be lost; each is told once.
    virtual Status sync(bool data_only);
    // Cuts off, or grows with zeros. EBADF: not open for writing; EFBIG, EINVAL: no file is so
    // long; ENOSPC ...
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

// Bytes [offset, offset + sum of lengths) of `file`, scattered over `pieces` in order or, to be
// written, gathered from them. The file, the array and what it points to must stay until the
// completion has been reaped; more than the bytes that the completion counts may have been read or
// written all the same. A write beyond the end of the file makes it longer, with zeros between.
struct Operation {
    File* file = nullptr;  // opened by the Storage that made the queue
    uint64_t offset = 0;
    std::span<const iovec> pieces;  // any number, any alignment, lengths may be 0
    uint64_t cookie = 0;            // handed back
    // kDirect: offset, lengths and addresses have direct_alignment(); lengths of reads may reach
    // beyond the end of the file. EINVAL, EOPNOTSUPP and the like in the completion: not to be had
    // that way. What the OS page cache held of a range that is written direct is dropped.
    Route route = Route::kCached;
    bool drop = false;  // kCached: what was not in the OS page cache need not stay there
    // With `drop`: nothing moves where the kernel takes no such calls; EOPNOTSUPP.
    bool must_drop = false;
    bool write = false;  // the pieces are sources, and are only read
};

struct Completion {
    uint64_t cookie = 0;
    // Good bytes from the start. Fewer than asked: the end of the file that is read, or `error`.
    uint64_t bytes = 0;
    // 0, or the errno that ended it after `bytes`: EIO, EINVAL, EFAULT ...; EBADF: the file is not
    // open for that; of writes ENOSPC, EDQUOT; EFBIG, and no signal: beyond RLIMIT_FSIZE or what
    // the file system can hold.
    int error = 0;
};

inline constexpr uint32_t kQueueDepthMax = 4096;

// One thread at a time. The destructor waits for what the kernel still reads and writes.
class Queue {
public:
    virtual ~Queue() = default;
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    // Takes operations from the front while there is room and returns how many; each of them
    // completes exactly once, in any order, and every error comes in its completion. May block for
    // as long as it all takes (kPosix does its work here). What is interrupted or short is
    // continued inside. Operations that overlap run in any order.
    [[nodiscard]] virtual size_t submit(std::span<const Operation> operations) = 0;

    // Stores at most out.size() completions and returns how many. With `wait` and something
    // outstanding it blocks until there is at least one.
    [[nodiscard]] virtual size_t reap(std::span<Completion> out, bool wait) = 0;

    // Submits one operation to a queue with nothing outstanding and waits for its completion.
    [[nodiscard]] virtual Completion submit_and_reap(const Operation& operation);

    // Taken and not yet reaped; at most depth().
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
    // One line for reports: "posix", "throttle (100 us, 2000 MB/s) over posix".
    [[nodiscard]] virtual std::string description() const = 0;

    // `flags` as open(2): O_RDONLY, O_WRONLY or O_RDWR with O_CREAT (mode 0666), O_EXCL, O_TRUNC;
    // others EINVAL, and O_EXCL without O_CREAT, O_TRUNC without writing. O_WRONLY lets the file be
    // read too where this user may: what is written in part may have to be fetched. Never blocks on
    // a FIFO, never opens a device. EISDIR, ESPIPE (FIFO, socket), ENOTSUP (device) for what is no
    // regular file; else what open(2) says: EROFS ...
    [[nodiscard]] virtual Result<std::shared_ptr<File>> open(const std::string& path,
                                                             int flags) = 0;

    // Takes the name away; open files live on. What unlink(2) says; EOPNOTSUPP.
    virtual Status unlink(const std::string& path);

    // `depth` from 1 to kQueueDepthMax, else EINVAL. Takes all memory that the queue will use.
    [[nodiscard]] virtual Result<std::unique_ptr<Queue>> make_queue(uint32_t depth) = 0;

protected:
    static Status check_depth(uint32_t depth);
};

// Whether `flags` are among those that Storage::open takes.
[[nodiscard]] Status check_open_flags(int flags);

struct ThrottleOptions {
    double latency_us = 0;     // of every operation; those of operations in flight overlap
    double bandwidth_mbs = 0;  // 10^6 bytes a second, read and written, over all queues; 0: no cap
};

// EINVAL for figures that no disk has: not numbers, negative, endless, more than an hour or less
// than a byte a second.
[[nodiscard]] Status check(const ThrottleOptions& options);

struct Options {
    Kind kind = Kind::kAuto;
    ThrottleOptions throttle = {};  // of kThrottle
    Kind under = Kind::kPosix;      // what kThrottle slows
};

// kUring: ENOSYS, EPERM ... with the reason when the kernel refuses it; nothing else is taken in
// its place.
[[nodiscard]] Result<std::shared_ptr<Storage>> make_storage(const Options& options);

// "auto", "posix", "uring", "ram", "throttle".
[[nodiscard]] const char* name(Kind kind);

}  // namespace penstock::storage
