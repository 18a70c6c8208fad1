// A log of writes on a quick disk: what is durable in it need not be durable in the file below yet.
//
// Two files take turns. While one takes records, what the other has goes to the files below, and
// then it is emptied: it gets another key, and none of its records has that. Their space is taken
// at the start, so that no record finds the disk full. A record tells which file it belongs to, and
// where: device, inode and time of birth, and the path that the file had. Records are replayed in
// their order (log_recovery.h). Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "penstock/status.h"

namespace penstock::file {

// Which file a record belongs to. An inode number may be used again, so its birth counts too.
struct LoggedFile {
    uint64_t device = 0, inode = 0;
    uint64_t birth_ns = 0;  // 0: the file system tells none
    friend auto operator<=>(const LoggedFile&, const LoggedFile&) = default;
};

// What each of the two files begins with. A file that begins with zeros has no records.
struct LogHeader {
    static constexpr uint64_t kMagic = 0x33676f6c6b747370;  // "pstklog3"; the version comes last
    // Records begin here. No write of one touches the header's block of the disk.
    static constexpr uint64_t kSize = 4096;
    uint64_t magic = kMagic;
    // Random, and never 0. Programs decide what the bytes of records are, but they do not know
    // this, so no bytes look like a record. Nor does a record from before the file was emptied.
    uint64_t key = 0;
    // As storage knows it (log_marker.h). The records of a half with another one are out of date.
    uint64_t generation = 0;
    uint32_t checksum = 0;  // CRC-32C of the header with 0 here
    uint32_t unused = 0;
};
static_assert(sizeof(LogHeader) == 32);

// Lies behind the header of the first half, in a sector of its own.
struct LogLife {
    static constexpr uint64_t kOffset = 512;
    uint64_t generation = 0;
    // By the clock of storage: no file was changed later by the process that had the log.
    int64_t until_ns = 0;
    uint32_t checksum = 0;  // CRC-32C of this with 0 here
    uint32_t unused = 0;
};
static_assert(sizeof(LogLife) == 24);

// A record as it lies in the log, before its path and its bytes. All numbers are the machine's.
struct LogRecord {
    static constexpr uint32_t kPathMax = 4096, kBytesMax = 1 << 20;
    enum class Kind : uint32_t {
        kWrite = 1,     // the bytes are at `offset`, and the file is `size` long, or longer
        kTruncate = 2,  // the file has this size
        kForget = 3,    // records up to sequence `offset` are in the file, or the file is gone
    };
    uint64_t key = 0;       // of the file that has the record
    uint64_t sequence = 0;  // one more than the record before, in whichever file that is
    LoggedFile file;
    uint64_t offset = 0;
    uint64_t size = 0;
    Kind kind = Kind::kWrite;
    uint32_t path_size = 0;
    uint32_t bytes_size = 0;
    uint32_t checksum = 0;  // CRC-32C of the record with 0 here, the path and the bytes
};
static_assert(sizeof(LogRecord) == 72);

[[nodiscard]] uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);
[[nodiscard]] uint32_t checksum_of(const LogRecord& record, std::string_view path,
                                   std::span<const std::byte> bytes);
[[nodiscard]] uint32_t checksum_of(LogHeader header);
[[nodiscard]] uint32_t checksum_of(LogLife life);
// Returns the names of the two files for a folder that is cached.
[[nodiscard]] std::array<std::string, 2> log_names(const std::string& folder,
                                                   const std::string& root);

class WriteLog {
public:
    // Opens the log in `folder` of files below `root`, and locks it for this process. It may have
    // records of a process that was killed: recover_log() must see them before the first append().
    // Errors: EBUSY, another process has it; ELOOP and EPERM, a file has its name that is not this
    // user's alone; EOPNOTSUPP, another version wrote it; EUCLEAN, its header is damaged; those of
    // open(2).
    static Result<std::unique_ptr<WriteLog>> open(const std::string& folder,
                                                  const std::string& root, uint64_t size_max);
    ~WriteLog();
    WriteLog(const WriteLog&) = delete;
    WriteLog& operator=(const WriteLog&) = delete;

    // Takes the space of both halves, which must be empty, and gives them a generation. Errors:
    // ENOSPC and others.
    Status reserve(uint64_t generation);

    [[nodiscard]] int descriptor(int half) const { return files_[static_cast<size_t>(half)]; }
    // Returns the key of a half's records. 0: it never had one.
    [[nodiscard]] uint64_t key(int half) const { return keys_[static_cast<size_t>(half)]; }
    // Returns the generation that a half was given last.
    [[nodiscard]] uint64_t generation(int half) const {
        return generations_[static_cast<size_t>(half)];
    }
    // Says where the records end that a half was found with.
    void found(int half, uint64_t end);

    // Appends are made one at a time, under this lock: the caller reads the bytes under it too, so
    // that a later record never has older bytes.
    [[nodiscard]] std::unique_lock<std::mutex> begin() { return std::unique_lock(mutex_); }
    // Requires the lock. Returns the half that takes records.
    [[nodiscard]] int active() const { return active_; }
    // Requires the lock. Returns the sequence of the last record.
    [[nodiscard]] uint64_t sequence() const { return sequence_; }
    // Requires the lock, and that both halves were reserved or emptied. Fills in key, sequence,
    // sizes and checksum. Errors: ENOSPC, it is full; EIO and others. What was written of the
    // record counts as nothing. After an error of the disk, here or in another call, each append()
    // and make_durable() fails.
    Status append(LogRecord record, std::string_view path, std::span<const std::byte> bytes);
    // Makes what was appended durable, where the next start finds it. Errors: those of
    // fdatasync(2); those of check_names().
    Status make_durable();
    // Makes durable that this process may change the files for some seconds more, unless enough of
    // that is left. It must be done before a change of a file of which there are records: what was
    // changed later was changed by another program, after the process had ended. Errors: those of
    // the disk.
    Status extend_life();
    // Says how far the clock of storage, which gives files their times, is ahead of this machine's.
    void set_clock(int64_t ahead_ns) { ahead_ns_ = ahead_ns; }
    // Returns until when the process that had the log before may have changed files, by the clock
    // of storage. 0: it is not known.
    [[nodiscard]] int64_t lived_until_ns() const { return lived_until_ns_; }
    // Finds out whether the log still has its names. If not, that is an error as one of the disk:
    // no start would find it. Errors: ENOENT, and those of stat(2).
    Status check_names();
    // Returns the first error of the disk, after which the log takes nothing more.
    [[nodiscard]] Status failure();
    [[nodiscard]] uint64_t last_sequence();
    // The next record gets the sequence after this one, and goes to this half.
    void continue_after(uint64_t sequence, int half);

    // Makes the other half take records, and returns which did so until now. Requires that the
    // other one is empty.
    Result<int> turn();
    // Empties a half whose records are all in their files. It keeps its space.
    Status reset(int half);
    [[nodiscard]] bool empty(int half);
    // Returns the bytes of records in both halves.
    [[nodiscard]] uint64_t size();
    [[nodiscard]] uint64_t size_max() const { return size_max_; }
    // Removes the files, durably, unless their names are other files' by now. Requires that nothing
    // in them is needed. Returns false if that fails.
    bool remove();

private:
    explicit WriteLog(uint64_t size_max) : size_max_(size_max) {}
    Status empty_half(size_t half);
    [[nodiscard]] bool is_named(size_t half) const;
    Status fail(int error, const char* text);

    const uint64_t size_max_;  // of each half
    int64_t ahead_ns_ = 0, lived_until_ns_ = 0;
    std::atomic<int64_t> lives_until_ns_ = 0;  // by this machine's clock
    std::array<std::string, 2> paths_;
    std::array<int, 2> files_{-1, -1};
    std::mutex sync_mutex_;  // of those who make it durable; taken before mutex_
    std::mutex mutex_;       // guards all below
    std::array<uint64_t, 2> keys_{}, generations_{};
    std::array<uint64_t, 2> ends_{LogHeader::kSize, LogHeader::kSize};
    int active_ = 0;
    uint64_t sequence_ = 0;
    Status failure_;        // the first error of the disk
    uint64_t durable_ = 0;  // the last sequence that is; guarded by sync_mutex_
};

}  // namespace penstock::file
