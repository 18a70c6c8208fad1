// The service behind penstock::FileCache: one lock over the chunk cache, copies and storage without
// it, and a thread that writes back.
//
// A chunk is pinned while its bytes are copied. Locks: mutex_ protects all but the bytes; no call
// of storage or of a device is made with it. cache_runs.cc moves chunks from and to storage,
// cache_copies.cc from and to host memory, cache_tier.cc from and to the tier, cache_log.cc to its
// log; cache_space.cc has storage promise room for what is dirty, cache_truncation.cc cuts files
// off, and cache_devices.cc has what becomes of the memory.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "chunk_cache/chunk_cache.h"
#include "extent/extent.h"
#include "file/cache_memory.h"
#include "file/cache_readahead.h"
#include "file/fast_tier.h"
#include "file/file_below.h"
#include "file/grant_table.h"
#include "file/host_window.h"
#include "file/log_recovery.h"
#include "file/shared_table.h"
#include "file/space_below.h"
#include "penstock/file.h"
#include "penstock/file_cache.h"
#include "storage/storage.h"
#include "storage/system_calls.h"

namespace penstock::file {

// What the log of writes knows of a file.
struct LogState {
    LoggedFile file;
    std::array<bool, 2> in{};  // each half of the log: it has records, which a crash would bring
                               // back
    std::array<bool, 2> brought{};  // storage has all that these say
    uint64_t last = 0;              // sequence of the last record
    unsigned appending = 0;         // threads that append
    // Changes that the log does not have, and how many of them are durable in storage.
    uint64_t unlogged = 0, stored = 0;
    // What the file below had when it was last synced there, as far as that tells of changes.
    struct Attributes {
        int64_t ctime_ns = 0;
        uint32_t mode = 0, user = 0, group = 0;
    } synced;
    unsigned held = 0;        // changes of its names that are under way: nothing is logged
    bool in_storage = false;  // it has been synced there, so it outlives a loss of power
    bool nameless = false;    // it has no name, or no identity: the log takes nothing of it
    bool lost = false;        // a sync of storage has failed, and only the log has the bytes

    [[nodiscard]] bool is_logged() const { return in[0] || in[1]; }
    [[nodiscard]] bool is_ahead() const {  // of storage
        return (in[0] && !brought[0]) || (in[1] && !brought[1]);
    }
    void forget() { in = brought = {}; }
};

// A file that the cache knows, open or not.
struct Inode {
    chunk_cache::FileId id = chunk_cache::kNone;
    uint64_t size = 0;         // as readers see it
    storage::Identity below;   // when it was last looked at
    bool racy = true;          // so new then that a later change may have the same times
    uint64_t own_changes = 0;  // of the file below, by this cache
    uint32_t slot = SharedTable::kNoSlot;
    CachedFile::Readable readable = CachedFile::Readable::kNo;  // by the shared table
    unsigned handles = 0;
    unsigned writing = 0;      // own changes of the file below that are under way
    bool truncating = false;   // nothing of it is written back or logged (cache_truncation.cc)
    int64_t mtime_ns = 0;      // as users see it; 0: that of the file below
    int64_t ctime_ns = 0;      // the same
    uint64_t version = 0;      // changes when another program's change is seen
    bool idle = false;         // it has no handle, and is dirty
    bool by_table = false;     // the last reader used the shared table
    bool was_granted = false;  // a program that wrote it may have it open without a handle
    // Its write-back has failed, and is tried again by itself at next_ns, after pauses that grow.
    struct Failing {
        Status error;
        uint64_t since_ns = 0;  // when the oldest byte that waits was written
        uint64_t next_ns = 0;
        std::chrono::nanoseconds pause{0};
    };
    std::optional<Failing> failing;
    unsigned hanging = 0;      // calls on the file below that do not return (cache_writers.cc)
    FileBelow reader, writer;  // of some handle, until the last is closed and nothing is dirty
    // The last error of a write-back, and its number among all (CacheOfFiles::error_count()); 0:
    // there was none. Each handle that was open then is told of it once.
    Status error;
    uint64_t error_number = 0;
    bool error_told = true;  // to some handle: one that is opened later need not know
    SpaceBelow space;
    LogState log;  // only with a log of writes
};

class CacheOfFiles : public std::enable_shared_from_this<CacheOfFiles> {
public:
    static Result<std::shared_ptr<CacheOfFiles>> create(const FileCacheOptions& options);
    ~CacheOfFiles();

    Result<Inode*> open(const FileBelow& below, bool reads, bool writes);
    Inode* open_again(uint64_t device, uint64_t inode, FileBelow* below);
    void close(Inode& inode);
    Result<uint64_t> read(Inode& inode, const FileBelow& below, std::byte* to, uint64_t size,
                          uint64_t offset);
    Result<uint64_t> write(Inode& inode, const FileBelow& below, const std::byte* from,
                           uint64_t size, uint64_t offset);
    // `told` is the number of the last error that the caller knows, and gets the present one. Null:
    // the caller tells no program, and learns only of errors of this call.
    Status sync(Inode& inode, bool durable, bool data_only, uint64_t* told);
    Status truncate(Inode& inode, const File& file, uint64_t size);
    Status revalidate(Inode& inode, const FileBelow& below);
    Status refresh(Inode& inode, const FileBelow& below);
    void drop(Inode& inode, uint64_t offset, uint64_t size);
    Result<uint64_t> fetch(Inode& inode, uint64_t size, uint64_t offset);
    void observe(Inode& inode, uint64_t size, uint64_t offset);
    bool publish(Inode& inode, CachedFile::Readable readable);
    [[nodiscard]] CachedFile::Use use_of(const Inode& inode) const;
    [[nodiscard]] SharedFileCache shared() const;
    Result<uint64_t> grant(Inode& inode, uint64_t size, uint64_t offset);
    void end_grants(Inode& inode);
    void forget_writer(uint32_t writer);
    Status allocate(Inode& inode, const FileBelow& below, int mode, uint64_t offset, uint64_t size);
    Status take_error(Inode& inode, uint64_t* told);
    Status take_error(uint64_t device, uint64_t inode, uint64_t* told);
    Status finish(Inode& inode, uint64_t* told);
    // Returns the number of the last error of a write-back. Those of a cache that is made later are
    // higher.
    [[nodiscard]] uint64_t error_count() const { return error_count_; }
    [[nodiscard]] uint64_t version_of(const Inode& inode) const;
    Status stat(int descriptor, struct stat* out);
    void forget_nameless(int descriptor);
    Status change(int descriptor, bool sets_mtime, const std::function<int()>& change);
    Status flush();
    void close_unused();
    Status end_log();
    Result<uint64_t> give_back(uint64_t size, std::chrono::nanoseconds limit);
    Result<uint64_t> grow(uint64_t size);
    [[nodiscard]] uint64_t size_of(const Inode& inode) const;
    [[nodiscard]] const std::vector<Device>& devices() const { return options_.devices; }
    [[nodiscard]] FileCacheStatistics statistics() const;

private:
    using ChunkId = chunk_cache::ChunkId;
    using Lock = std::unique_lock<std::mutex>;
    // Bytes that other processes wrote to a copy in the host window, and that the chunk still
    // lacks. Both are pinned.
    struct Unsettled {
        ChunkId seen = chunk_cache::kNone;
        chunk_cache::Range range;
        bool moving = false;
    };
    // Chunks of a file that a call of this process writes. Where programs write copies of chunks,
    // these are not granted meanwhile: a copy would lack some of the bytes.
    struct Writing {
        chunk_cache::FileId file = chunk_cache::kNone;
        uint64_t first = 0, last = 0;
        bool operator==(const Writing&) const = default;
    };
    // A thread that writes back. One that waits for storage for long is replaced by another, and
    // ends when storage answers.
    struct Writer {
        std::thread thread;
        void (CacheOfFiles::*loop)(const Writer&) = nullptr;
        bool replaced = false, ended = false;
    };
    // A call on a file below that this cache makes for itself, without the lock.
    struct Call {
        uint64_t begun_ns = 0;
        chunk_cache::FileId file = chunk_cache::kNone;
        Writer* writer = nullptr;  // null: another thread makes it
        bool hangs = false;
    };
    using Calls = std::list<Call>;
    // Chunks of one call to storage: 1 MiB at 64 KiB each.
    static constexpr size_t kRunMax = 16;
    static constexpr uint32_t kSlabChunks = 1024;
    static constexpr size_t kDevicesMax = 64;
    static constexpr int kHelpers = 3;  // threads that write back beside the first
    // Files that stay open below because they are dirty take a descriptor each: so many may do so
    // in any case, and else a share of those that the process may have.
    static constexpr unsigned kIdleMin = 1024, kIdleMax = 1 << 16, kIdleShare = 4;
    // How often the threads look: for old dirty chunks, and for the free memory of devices.
    static constexpr auto kLookEvery = std::chrono::milliseconds(200);

    explicit CacheOfFiles(const FileCacheOptions& options);
    [[nodiscard]] std::byte* address(ChunkId id) const;
    [[nodiscard]] uint64_t chunk_size() const { return options_.chunk_size; }
    [[nodiscard]] uint64_t dirty_size_max() const;
    [[nodiscard]] uint64_t failed_size_max() const;
    [[nodiscard]] uint64_t own_dirty_max(const Inode& inode) const;
    [[nodiscard]] uint64_t own_dirty_count(const Inode& inode) const;
    [[nodiscard]] bool has_much_failed() const;
    [[nodiscard]] bool too_much_dirty(const Inode& inode) const;
    [[nodiscard]] bool much_dirty() const;
    void set_size(Inode& inode, uint64_t size);
    [[nodiscard]] uint32_t valid_size(const Inode& inode, uint64_t number) const;
    bool forget_idle_file();
    [[nodiscard]] bool are_many_idle() const;
    // Ends a fill: the chunk holds bytes of its file, unless they are bad or came too late.
    bool filled(const Inode& inode, ChunkId id, bool good);
    bool tell_readers(const Inode& inode);
    Status share();
    void drop_chunks(const Inode& inode, uint64_t first, uint64_t last);
    // Drops the copies of chunks whose bytes in memory are changed: in host window and tier, or
    // only there, where programs write the window itself.
    void drop_copies(const Inode& inode, uint64_t first, uint64_t last);
    void drop_in_tier(const Inode& inode, uint64_t first, uint64_t last);
    [[nodiscard]] size_t grants_max() const;
    Result<uint64_t> grant_one(Lock& lock, Inode& inode, uint64_t size, uint64_t offset);
    Result<ChunkId> grantable(Lock& lock, Inode& inode, uint64_t number);
    Result<ChunkId> shown(Lock& lock, Inode& inode, ChunkId id, uint64_t last);
    void unpin_grant(const Grant& grant);
    void begin_writing(const Writing& chunks);
    void end_writing(const Writing& chunks);
    [[nodiscard]] bool is_being_written(chunk_cache::FileId file, uint64_t number) const;
    void collect_one(const Grant& of);
    void collect(chunk_cache::FileId file);
    void withdraw(const Grant& of);
    void withdraw_all(const Inode& inode, uint64_t first, uint64_t last);
    void withdraw_slab(uint32_t slab);
    void free_stuck();
    void leave_unsettled(const Grant& of, chunk_cache::Range range);
    void settle(Lock& lock, ChunkId id);
    void settle_all(Lock& lock);
    void compare(Inode& inode, const storage::Identity& identity);
    Result<uint64_t> read_parts(const FileBelow& reader, std::span<const ChunkId> run,
                                uint64_t begin, uint64_t end);
    Status zero(ChunkId id, uint64_t from);
    Result<uint64_t> read_run(const FileBelow& reader, std::span<const ChunkId> run, uint64_t begin,
                              uint64_t end);
    Status fill(Lock& lock, Inode& inode, std::span<const ChunkId> run, bool* lost);
    // Returns a chunk whose bytes have arrived, pinned; kNone: there is no memory for it.
    Result<ChunkId> arrived(Lock& lock, Inode& inode, uint64_t number, uint64_t last);
    Result<ChunkId> replace(Lock& lock, Inode& inode, uint64_t number,
                            std::span<const std::byte> all);
    Result<ChunkId> writable(Lock& lock, Inode& inode, uint64_t number,
                             std::span<const std::byte> from, bool* has);
    Status make_room(Lock& lock, Inode& inode);
    // Returns whether a write-back may give memory: not where only files that fail have dirty
    // bytes.
    [[nodiscard]] bool may_make_room() const {
        return chunks_.aside_count() == 0 || chunks_.dirty_count() > chunks_.aside_count();
    }
    Result<bool> write_through(Lock& lock, Inode& inode, const FileBelow& below,
                               const std::byte* from, uint64_t size, uint64_t offset);
    Result<uint64_t> write_if_promised(Lock& lock, Inode& inode, const FileBelow& below,
                                       const std::byte* from, uint64_t size, uint64_t offset);
    Result<uint64_t> write_some(Lock& lock, Inode& inode, const FileBelow& below,
                                const std::byte* from, uint64_t size, uint64_t offset);
    Result<bool> write_part(Lock& lock, Inode& inode, const FileBelow& below, const std::byte* from,
                            uint64_t size, uint64_t offset);
    bool write_back(Lock& lock, Inode* of);
    void write_back_run(Lock& lock, std::span<const ChunkId> run);
    Status write_run(Inode& inode, std::span<const ChunkId> run, uint64_t size);
    // ---- Files that cannot be written
    void note_error(Inode& inode, const Status& status);
    Status tell_error(Inode& inode, uint64_t* told);
    bool note_failure(Inode& inode, const Status& status, uint64_t oldest_ns);
    void end_failure(Inode& inode);
    [[nodiscard]] Status failure_of(chunk_cache::FileId file) const;
    void tell_failure(Lock& lock, FileBelow file, const Status& status);
    void retry(Lock& lock);
    void retry_failing(const Writer& self);
    [[nodiscard]] uint64_t oldest_dirty_ns() const;
    [[nodiscard]] std::vector<FileBelow> list_failing(FileCacheStatistics* to) const;
    static void name_failing(std::span<const FileBelow> files, FileCacheStatistics* to);
    // ---- Storage that does not answer
    void start_writer(void (CacheOfFiles::*loop)(const Writer&));
    Calls::iterator begin_call(chunk_cache::FileId file);
    bool end_call(Calls::iterator call);
    void watch_calls();
    void note_own_change(Lock& lock, Inode& inode, int descriptor);
    void note_new_bytes(Lock& lock, Inode& inode, int descriptor);
    void note_reserved(Inode& inode, const struct stat& state);
    void note_time(Inode& inode);
    Inode* known(const struct stat& below);
    void correct(const Inode& inode, struct stat* out) const;
    [[nodiscard]] bool is_for_nobody(const Inode& inode, Nameless nameless) const;
    void drop_unlinked(Lock& lock, Inode& inode);
    void forget_bytes(Inode& inode);
    void close_idle_files(Lock& lock, Inode& inode);
    void work(const Writer& self);
    void help(const Writer& self);

    // ---- Copies of many chunks
    size_t pin_ready(const Inode& inode, uint64_t number, uint64_t last, std::span<ChunkId> run);
    void unpin_all(std::span<const ChunkId> run);
    Status read_past(Lock& lock, const FileBelow& below, std::byte* to, uint64_t size,
                     uint64_t offset);
    Result<uint64_t> write_chunks(Lock& lock, Inode& inode, const std::byte* from, uint64_t size,
                                  uint64_t offset);
    void note_dirty(ChunkId id, chunk_cache::Range range);
    void note_change(Inode& inode, uint64_t first, uint64_t last, uint64_t end);
    Result<uint64_t> fetch_some(Lock& lock, Inode& inode, uint64_t number, uint64_t last);
    Status show(Lock& lock, const Inode& inode, std::span<const ChunkId> run, uint32_t* failed);
    void look_ahead(const Inode& inode, uint64_t size, uint64_t offset);
    [[nodiscard]] bool is_near(chunk_cache::FileId file, uint64_t number) const;
    void read_ahead();
    void fetch_ahead(Lock& lock, const CacheReadahead::Fetch& fetch);

    // ---- Room in storage
    void begin_promising(Lock& lock, Inode& inode);
    void end_promising(Inode& inode);
    void begin_cutting(Lock& lock, Inode& inode);
    void end_cutting(Inode& inode, uint64_t known_size);
    SpaceRules rules_of(Lock& lock, const Inode& inode, int descriptor);
    bool may_reserve_ahead(Lock& lock, Inode& inode, int descriptor);
    uint64_t ahead_of(Lock& lock, Inode& inode, int descriptor, const extent::Extent& range);
    bool has_space(Lock& lock, Inode& inode, int descriptor, const extent::Extent& range);
    [[nodiscard]] extent::Extent to_promise(const Inode& inode, uint64_t offset,
                                            uint64_t size) const;
    uint64_t promise(Lock& lock, Inode& inode, int descriptor, uint64_t offset, uint64_t size);
    uint64_t promise_chunks(Lock& lock, Inode& inode, uint64_t offset, uint64_t size);
    int reserve(Lock& lock, Inode& inode, int descriptor, const extent::Extent& range);
    Result<uint64_t> write_now(Lock& lock, Inode& inode, const FileBelow& below,
                               const std::byte* from, uint64_t size, uint64_t offset);
    void list_reserved(Inode& inode);
    void give_back_reserved(Lock& lock, bool hurries);
    void cut_to_size(Lock& lock, Inode& inode);
    Status empty(Lock& lock, Inode& inode);
    // ---- Sizes
    uint64_t begin_truncating(Lock& lock, Inode& inode, uint64_t size);
    void end_truncating(Inode& inode);
    void drop_end(Lock& lock, Inode& inode, uint64_t size);
    void restore_end(Inode& inode, uint64_t size, uint64_t old);
    // ---- The tier
    bool read_tier(Lock& lock, const Inode& inode, std::span<const ChunkId> run);
    void offer_to_tier(const Inode& inode, ChunkId id);
    void copy_to_tier(Lock& lock, std::span<const FastTier::Copy> copies);
    void fill_tier();
    void fail_tier(Lock& lock, const Status& status);
    // ---- The log of writes
    struct ToLog {
        ChunkId id = chunk_cache::kNone;
        chunk_cache::Range range;
    };
    Status open_log();
    Status take_over_log(std::unique_ptr<WriteLog>* log);
    [[nodiscard]] bool logs(const Inode& inode) const;
    void meet_in_log(Inode& inode, const FileBelow& below);
    std::vector<ToLog> take_unlogged(Inode& inode, std::span<const ChunkId> chunks);
    Status log_chunks(Inode& inode, std::span<const ToLog> pieces);
    void end_logging(Inode& inode, std::span<const ToLog> pieces, const Status& status);
    [[nodiscard]] std::string path_in_log(const Inode& inode) const;
    void look_for_changes(Lock& lock, Inode& inode);
    bool sync_to_log(Lock& lock, Inode& inode, bool data_only);
    Status forget_in_log(Inode& inode, uint64_t sequence);
    Status sync_to_storage(Inode& inode, bool data_only);
    Status truncate_in_log(Inode& inode, uint64_t size);
    Inode* hold_log(const struct stat& below);
    void release_log(Inode& inode);
    void unlink_in_log(Inode& inode);
    Status store_logged(Lock& lock, Inode& inode, size_t half);
    Status store_all_logged(Lock& lock, size_t half);
    void forget_half(size_t half);
    Status drain_half();
    Status drain_log();
    Status end_broken_log();
    // Says that this cache changes files below now, so that a recovery does not take that for a
    // change by others. Precedes each such call, without the lock.
    void extend_log_life();
    Status give_up_log();
    void drain();
    Status store(Inode& inode, bool durable, bool data_only, uint64_t* sequence = nullptr);
    Status sync_now(Inode& inode, bool durable, bool data_only);
    // ---- The memory of devices
    [[nodiscard]] uint64_t slab_size() const { return uint64_t{kSlabChunks} * chunk_size(); }
    [[nodiscard]] std::vector<uint32_t> by_free_memory() const;
    Status empty_slab(Lock& lock, uint32_t slab, std::chrono::steady_clock::time_point end);
    void free_slab(Lock& lock, uint32_t slab);
    [[nodiscard]] uint32_t given_back_of(uint32_t device) const;
    Status take_slab(Lock& lock, uint32_t slab);
    Status take_first_memory();
    [[nodiscard]] uint32_t untaken_of(uint32_t device) const;
    [[nodiscard]] uint32_t next_untaken() const;
    void forgo(uint32_t slab);
    void keep_room(Lock& lock);
    [[nodiscard]] bool wants_memory() const;
    void take_memory(Lock& lock);
    void write_back_slab(Lock& lock, uint32_t slab);
    void keep_free(Lock& lock);
    void watch();
    // ---- Lost devices
    static Result<File> file_for_host(const FileBelow& below, bool any_lost);
    [[nodiscard]] bool is_lost(ChunkId id) const {
        return lost_[memory_.device_of(id / kSlabChunks)];
    }
    bool lost_by_copy(ChunkId id, const Status& status);
    bool lost_by_transfer(Lock& lock, std::span<const ChunkId> run);
    void lose_device(uint32_t device);
    bool lose_chunk(ChunkId id);
    void tell_loss(Inode& inode);

    const FileCacheOptions options_;
    CacheMemory memory_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;  // a chunk has arrived, or a write-back has ended
    std::condition_variable wake_;     // of the thread that writes back
    std::condition_variable wake_watch_;
    chunk_cache::ChunkCache chunks_;
    std::unique_ptr<HostWindow> window_;  // null: the host can address the chunks
    std::unique_ptr<storage::system::ScopedDescriptor> log_root_;  // the folder that is cached
    std::unique_ptr<WriteLog> log_;                                // null: there is none
    std::vector<bool> logged_;   // of each chunk: the log has what is dirty in it
    uint64_t log_since_ns_ = 0;  // when it got its first record since the last turn; 0: none
    bool log_broken_ = false;    // it may lack what was made durable: it is to be ended
    bool log_ended_ = false;     // it could not be written, or is no longer needed
    std::mutex drain_mutex_;     // of the thread that drains it; taken before all others
    std::atomic<int> draining_half_ = -1;  // that is not empty yet, though the other one is in use
    std::unique_ptr<FastTier> tier_;       // null: there is none
    std::unique_ptr<SharedTable> shared_;  // null: no other process reads
    // What a grant names is pinned: the chunk, and its copy in the host window.
    GrantTable grants_;
    uint64_t granted_since_ = 0;  // chunks, since the grants of all files were collected
    std::vector<Grant> stuck_;    // no longer granted, and still being written
    std::unordered_map<ChunkId, Unsettled> unsettled_;
    std::vector<Writing> writings_;
    std::map<std::pair<uint64_t, uint64_t>, std::unique_ptr<Inode>> inodes_;  // device, inode
    std::vector<Inode*> by_id_;
    std::atomic<uint64_t> forgotten_ = 0;         // files that the cache knew
    std::vector<chunk_cache::FileId> reserved_;   // files that have blocks behind their end
    uint64_t looks_wanted_ = 0, looks_done_ = 0;  // at these, by close_unused()
    std::map<uint64_t, SpaceRules> rules_;        // of the file systems below, by device
    std::vector<bool> lost_;  // of each device: its memory cannot be used any more
    FileCacheStatistics counts_;
    Status last_error_;  // of a write-back
    std::atomic<uint64_t> error_count_;
    uint64_t dirty_since_ns_ = 0;               // 0: nothing is dirty
    std::vector<uint64_t> dirtied_ns_;          // of each chunk: when it became dirty
    std::multiset<uint64_t> writing_since_ns_;  // the same of runs that are being written
    std::set<std::pair<uint64_t, chunk_cache::FileId>> failing_;  // by Failing::next_ns
    Calls calls_;                                                 // that are under way
    unsigned waiting_for_room_ = 0;                               // threads that write
    uint64_t versions_ = 0;                                       // the last that a file got
    unsigned idle_count_ = 0;
    std::vector<uint32_t> untaken_;         // slabs of the host whose memory nothing has needed yet
    uint32_t taking_ = chunk_cache::kNone;  // the one whose memory a thread takes now
    uint64_t next_taking_ns_ = 0;           // not before, as the host had not so much memory
    std::vector<uint32_t> given_back_;      // slabs whose devices have their memory
    uint64_t withheld_ = 0;                 // of them, those that only grow() takes again
    std::vector<uint32_t> retiring_;        // slabs that the watch gives back when they are empty
    std::chrono::steady_clock::time_point grown_;  // by the watch, the last time
    std::vector<chunk_cache::FileId> unused_;  // files to be closed below, if they have no handle
    bool stopping_ = false;
    std::condition_variable ahead_;  // of the threads that read ahead
    std::unique_ptr<CacheReadahead> readahead_;
    std::vector<std::thread> readers_ahead_;
    std::condition_variable wake_tier_, wake_drain_, wake_retry_, wake_calls_, wake_help_;
    std::list<Writer> writers_;
    static thread_local Writer* this_writer_;
    std::thread calls_thread_;  // looks for calls of storage that do not return
    std::thread drain_thread_;  // only with options_.tier_writes
    std::thread tier_thread_;   // fills the tier; only with options_.tier
    std::thread watch_;  // gives memory back and takes it again; only with options_.keep_free
};

// One open file. Its copies share it.
struct FileInCache {
    std::shared_ptr<CacheOfFiles> cache;
    FileBelow below;
    bool reads = false, writes = false;
    Inode* inode = nullptr;
    std::atomic<uint64_t> told = cache->error_count();  // what it knows of errors of write-backs

    ~FileInCache() { cache->close(*inode); }
    // Makes a call that may tell an error.
    template <class Call>
    Status tell(Call call) {
        uint64_t known = told;
        const Status status = call(&known);
        told = known;
        return status;
    }
};

}  // namespace penstock::file
