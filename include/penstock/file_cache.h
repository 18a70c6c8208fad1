// Device memory as a cache of files: reads are served from it, writes stay in it for a while.
//
// A FileCache takes memory of one or several devices and divides it into chunks (seed 002, gmfs):
// memory of GPUs at start, memory of the host as it is used. The files below stay the truth: a
// chunk that was written goes there when it is synced, when too much is dirty, or after a while.
// FileCache and CachedFile are handles: they may be copied, and any thread may use them, several
// threads at once included.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/device.h"
#include "penstock/status.h"

namespace penstock {

namespace file {
class CacheOfFiles;
struct FileInCache;
}  // namespace file

struct FileCacheOptions {
    std::vector<Device> devices = {};            // at most 64; chunks lie in each of them in turn
    uint64_t size = uint64_t{256} << 20;         // bytes of each device, in slabs of 1024 chunks
    uint32_t chunk_size = 64 << 10;              // bytes, a power of two from 4 KiB to 1 MiB
    uint64_t dirty_size_max = 0;                 // bytes that wait for storage; 0: a quarter of all
                                                 // Half of it is written without being asked for.
    std::chrono::milliseconds dirty_age{5'000};  // then a chunk is written without being asked for
    bool shared = false;  // other processes may map what is cached, see FileCache::shared()
    // The last copy of a CachedFile writes back before it closes. false: a thread does so later,
    // and the file below stays open until then.
    bool write_on_close = true;
    // A file without a name and without a handle may be opened again, as one of a mount may that
    // has been looked up: it keeps its bytes until FileCache::forget_nameless().
    bool reopens_nameless = false;
    // Bytes of each device that stay free for other programs; 0: the cache keeps what it has. Of
    // memory of the host it is what the system has available. While fewer are free, another thread
    // gives memory back: clean memory within a second, dirty memory after its write-back. It takes
    // that again, one slab a second, while this and two slabs more are free.
    uint64_t keep_free = 0;
    // A folder of a quick local file system: what was read from storage is kept there too, in a
    // file without a name that goes with the cache, and is read from there when memory has lost it.
    // Empty: there is none. An error of that file ends its use, and is never a reader's.
    std::string tier = {};
    uint64_t tier_size = 0;  // bytes, all taken at start; 0: 16 GiB, or half of what is free there
    // The folder below which the cached files lie: a log of writes in `tier` is named after it.
    // What such a log has of an earlier cache, which was killed, goes to the files before create()
    // returns, unless files were used without it since. While there is a log, a small file in this
    // folder, .penstock-log, says which. Empty: there is no log, and none is looked for.
    std::string tier_root = {};
    // A sync is durable in the log, and the files get its bytes later, when they are written back.
    // Only where the host can address the memory of all devices.
    bool tier_writes = false;
    // Is called once, by a thread of the cache, when the tier can no longer be used.
    std::function<void(const Status&)> tier_failed = {};
    // The same when its log can no longer be used, with a line that says why. By then all that the
    // log had is in the files.
    std::function<void(const std::string&)> log_ended = {};
    // Is called by create(), also where that fails, with a line for each file whose bytes an
    // earlier log had, and that could not be put there: it tells why, and where they are kept.
    std::function<void(const std::string&)> log_kept = {};
    // Is called with the path of a file when its write-back fails for the first time or for another
    // cause, and with success when storage takes its bytes again. By any thread that uses the
    // cache, so it must not call the cache.
    std::function<void(const std::string& path, const Status&)> write_failed = {};
};

// Where a log of writes is that may be ahead of the files below a folder.
struct UnfinishedLog {
    std::string path;    // of the folder that was cached
    std::string host;    // the name of the machine
    std::string folder;  // FileCacheOptions::tier
};

// What other processes map to read what is cached (abi/chunk_table.h). The descriptors are the
// cache's; -1: it is not shared. The memory of a GPU is shown through copies in host memory.
struct SharedFileCache {
    int table = -1, arena = -1, marks = -1;
};

struct FileCacheStatistics {
    uint64_t hits = 0, misses = 0;              // of chunks
    uint64_t bytes_served = 0, bytes_read = 0;  // to readers; from storage into the cache
    uint64_t bytes_bypassed = 0;                // moved without the cache, because it had no room
    uint64_t bytes_written = 0;                 // to storage, by write-back
    uint64_t evicted = 0, write_errors = 0;
    uint64_t size = 0, free_size = 0, clean_size = 0, dirty_size = 0;  // now, in bytes
    uint64_t dirty_age_ms = 0;     // of the oldest byte that storage lacks; 0: it lacks none
    uint64_t given_back_size = 0;  // of the configured size, now
    uint64_t allocations = 0;      // of device memory since the start: one for each slab taken
    uint64_t devices_lost = 0;     // whose memory cannot be used any more
    uint64_t bytes_lost = 0;       // that were dirty there
    // Of the tier; sizes are now, in bytes.
    uint64_t tier_size = 0, tier_used_size = 0;
    uint64_t tier_bytes_read = 0, tier_bytes_filled = 0;  // into memory; from memory
    uint64_t tier_chunks_skipped = 0;  // that it does not hold, because too many waited for it
    uint64_t tier_bytes_logged = 0, tier_log_size = 0;  // to the log; that it has now
    uint64_t tier_bytes_recovered = 0;                  // from a log, at the start
    std::vector<std::string> tier_kept;  // lines about bytes that could not be put into files then
    std::string tier_log_error;          // why writes go there no longer
    std::string tier_error;              // why it is no longer used
    // A file whose write-back fails.
    struct Failing {
        std::string path, error;
        uint64_t dirty_size = 0;    // in bytes, now
        uint64_t dirty_age_ms = 0;  // of the oldest byte that storage lacks
        uint64_t retry_ms = 0;      // until it is tried again
    };
    uint64_t failing_count = 0;
    std::vector<Failing> failing;  // the first 20 of them, in the order in which they are tried
    struct OfDevice {
        std::string name;
        uint64_t size = 0, free_size = 0, dirty_size = 0;  // now, in bytes
        bool lost = false;
    };
    std::vector<OfDevice> devices;
};

// An open file whose bytes go through the cache. Copies stand for the same file.
class CachedFile {
public:
    CachedFile() = default;  // stands for no file: only assign to it

    // Reads up to `size` bytes at `offset` into host memory. Blocks where bytes are not cached.
    // Returns fewer than `size` only at the end of the file. Errors: EBADF without read access;
    // the error of storage. Cost of a hit: a lock and a copy.
    [[nodiscard]] Result<uint64_t> read(void* to, uint64_t size, uint64_t offset) const;
    // Writes bytes of host memory. They are in the cache on return, and every reader through this
    // cache sees them. Blocks while too much is dirty. Errors: EBADF without write access; if so
    // much is dirty, the error of the file's last write-back (EIO ...); the error of storage where
    // the rest of a chunk must be read; ENOSPC, EDQUOT or EFBIG where storage has no room, which it
    // is asked for first. Returns `size`; fewer where there was room for fewer.
    [[nodiscard]] Result<uint64_t> write(const void* from, uint64_t size, uint64_t offset) const;
    // Writes back what is dirty, and makes it durable. Errors: that of a write-back since the file
    // was opened here; each handle of the file is told of it once, and copies are one handle. Then
    // the bytes are still dirty, and a later sync() tries again.
    Status sync(bool data_only = false) const;
    // The same for a handle that the caller keeps elsewhere, as for another process. `told` has the
    // number of the last error that it was told, or that there was when it was opened
    // (abi/chunk_table.h), and gets that of the present one. Null: no handle is told, and errors
    // are those of this call.
    Status sync(bool data_only, uint64_t* told) const;
    Status flush(uint64_t* told) const;
    Status finish(uint64_t* told) const;
    // Writes back what is dirty, without waiting for the disk. Errors as sync().
    Status flush() const;
    // Cuts the file off at `size`, or extends it with zeros.
    Status truncate(uint64_t size) const;
    // Does what fallocate(2) does with these arguments, after a write-back. Writes at the same time
    // to chunks of the range may be lost. Errors: EBADF; those of flush() and of fallocate(2).
    Status allocate(int mode, uint64_t offset, uint64_t size) const;
    // Does what the close of a written file must: writes back what storage may have no room for.
    // Storage that can promise room has done so when write() returned, and then nothing waits.
    // Errors as flush().
    Status finish() const;
    // Returns the error of a write-back that this handle was not told yet. Never blocks.
    Status take_error() const;
    // Returns a number that changes when another program's change of the file below was seen.
    [[nodiscard]] uint64_t version() const;
    [[nodiscard]] uint64_t size() const;
    // Compares the file below with what is cached, and drops the chunks if another program has
    // changed it (inode, size or times). Does nothing while chunks are dirty. Each open does it.
    Status revalidate() const;
    // Writes back what is dirty, and drops all that is cached of the file, whether the file below
    // seems to have changed or not: the next reads ask storage. Errors: those of flush(); EBUSY,
    // the file is being written all the time.
    Status refresh() const;
    // Drops chunks that overlap a range, because the file below was changed there. What was written
    // to them and not synced is lost.
    void drop(uint64_t offset, uint64_t size) const;
    // Brings a range into the cache, as read() does, and copies nothing. Returns how many bytes
    // from `offset` on are there; fewer than asked at the end of the file, and where memory is
    // short. Errors as read().
    [[nodiscard]] Result<uint64_t> fetch(uint64_t offset, uint64_t size) const;
    // Says that a reader by the shared table has used a range for the first time since it came into
    // the cache. read() and fetch() do so themselves. Readahead follows such reports.
    void observe(uint64_t offset, uint64_t size) const;
    // Says whether other processes may read the file by the shared table; at first they may not.
    // kUnlessRecent: as they open it, they compare its times with those in the table. kUnchanged:
    // the caller makes sure that nobody changes the file below until it says kNo. Returns whether
    // they may now: not if the cache is not shared, nor, with kUnlessRecent, if the file changed so
    // recently that its times do not tell.
    enum class Readable { kNo, kUnlessRecent, kUnchanged };
    bool publish(Readable readable) const;
    // Lets other processes write a range of the file in the shared memory, chunk by chunk, until
    // end_grants(), a truncate() or a lack of memory. Returns how many bytes from `offset` on they
    // may write. Blocks while too much is dirty. Errors: EBADF without read and write access;
    // EOPNOTSUPP where the cache is not shared; that of a write-back.
    [[nodiscard]] Result<uint64_t> grant(uint64_t offset, uint64_t size) const;
    void end_grants() const;
    struct Use {
        uint32_t slot = ~0u;           // of the shared table; ~0: it has none
        uint64_t hits = 0, bytes = 0;  // of readers by the table
        uint64_t cached_size = 0, dirty_size = 0;
        bool is_open_for_writing = false;  // below, for a handle or for what is dirty
    };
    [[nodiscard]] Use use() const;

    explicit CachedFile(std::shared_ptr<file::FileInCache> file) : file_(std::move(file)) {}

private:
    std::shared_ptr<file::FileInCache> file_;
};

// Whether programs can find an open file by a name.
enum class Nameless {
    kNo,   // they can
    kYes,  // its last name is gone
    // The name by which it was opened is gone. An NFS client keeps the file under a name of its
    // own, in the same folder, until it is closed. It may have other names.
    kKeptByNfs,
};
// Says so as far as the kernel knows, without asking storage. The descriptor may be one of O_PATH.
// Any thread.
[[nodiscard]] Nameless nameless(int descriptor);

class FileCache {
public:
    FileCache() = default;  // stands for no cache: only assign to it

    // Takes memory and starts threads, one of which writes back. A device whose copies fail later
    // is lost: the cache goes on without it, and reads what was there from the files again. Where
    // dirty bytes were lost the file has what storage has, and its next sync() fails with EIO,
    // once. Blocks. Errors: EINVAL for a size below one slab, no device, or a chunk size out of
    // range; ENOMEM names the device. Of the tier: those of open(2) for the folder; ENOSPC;
    // EOPNOTSUPP where its file system cannot reserve space. Of the log, with the origin "log":
    // ESTALE, what was synced is in a log that `tier` does not have, and whose process was killed
    // (unfinished_log() tells where); EBUSY, with `tier_writes`, a process uses such a log; those
    // of storage for the file .penstock-log.
    [[nodiscard]] static Result<FileCache> create(const FileCacheOptions& options);
    // Returns which log may be ahead of the files below `root`, an absolute path: a process uses
    // it, or was killed. Errors: ENOENT, there is none; EUCLEAN, a file .penstock-log is damaged.
    [[nodiscard]] static Result<UnfinishedLog> unfinished_log(const std::string& root);

    // Takes over a descriptor, whose access decides what reads and writes may do. A file that is
    // known by device and inode shares its chunks: all its users see the same bytes. The descriptor
    // is closed with the last copy, after a write-back, and at once on an error. Errors: those of
    // File::adopt(), ESPIPE for what is no regular file among them; ENFILE.
    [[nodiscard]] Result<CachedFile> adopt(int descriptor) const;
    // Returns one more handle, for reading, of a file that somebody has open for reading through
    // this cache. Errors: ENOENT, nobody has.
    [[nodiscard]] Result<CachedFile> opened(uint64_t device, uint64_t inode) const;
    // Describes a file below as its users through this cache see it: with their size, and with the
    // time of their last write. The descriptor may be one of O_PATH. Errors: those of fstat(2).
    Status stat(int descriptor, struct stat* out) const;
    // Runs `change`, which changes attributes or names of a file below and returns 0 or an errno.
    // The cache does not take that for another program's change of the file. What has neither a
    // name nor a user left is dropped, and is never written back.
    //   descriptor  of the file, maybe one of O_PATH
    //   sets_mtime  the time of the last write is among what changes; write-backs then keep it
    // Errors: what `change` returns.
    Status change(int descriptor, bool sets_mtime, const std::function<int()>& change) const;
    // Drops the bytes of a file without a name and without a handle, which no program can open
    // again from now on (FileCacheOptions::reopens_nameless). The descriptor may be one of O_PATH.
    void forget_nameless(int descriptor) const;
    // Writes back what is dirty in any file, without waiting for the disk. Errors: the last of
    // those because of which something is still dirty.
    Status flush() const;
    // Closes the descriptors of files that have no handle and nothing dirty, where they are still
    // open because blocks behind the end of the file are to be given back. Blocks for up to a
    // second. Those of files that another program has open stay.
    void close_unused() const;
    // Ends the log of writes, after flush(): all syncs go to storage from then on. The last copy of
    // the cache does so too, and cannot tell an error. Blocks. Errors: those of storage; then the
    // log has what is not durable there, and the next start with this tier brings it back.
    Status end_log() const;
    // Gives memory back, of the device that has least free, slab by slab until it is `size` bytes
    // or more: clean memory at once, dirty memory after its write-back. It stays free until grow().
    // Blocks, at most `limit` beside a write that has begun. Returns how many bytes it gave, fewer
    // if the cache has no more. Errors, if it gave none: that of a write-back; ETIMEDOUT.
    [[nodiscard]] Result<uint64_t> give_back(
        uint64_t size, std::chrono::milliseconds limit = std::chrono::seconds(5)) const;
    // Takes memory again that was given back, up to `size` bytes in whole slabs. Returns how many.
    // Errors, if it took none: ENOMEM.
    [[nodiscard]] Result<uint64_t> grow(uint64_t size) const;
    [[nodiscard]] FileCacheStatistics statistics() const;
    [[nodiscard]] SharedFileCache shared() const;
    // As CachedFile::take_error() for a handle that is kept elsewhere, of a file that nobody may
    // have open here.
    Status take_error(uint64_t device, uint64_t inode, uint64_t* told) const;
    // A process that wrote by grants has ended. `writer` is its number in them.
    void forget_writer(uint32_t writer) const;

private:
    std::shared_ptr<file::CacheOfFiles> cache_;
};

}  // namespace penstock
