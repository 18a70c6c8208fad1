// Memory as a cache of files that the host manages: which chunk of which file lies where, which
// chunk goes next, and what must be written back before it may go.
//
// Pure: it moves no bytes, and time does not count. The caller moves them, and tells what became of
// it. One thread at a time. Memory comes in slabs of equal size, each of one device; all calls but
// add_slab() and add_file() allocate nothing. Source: seed 002 (gmfs), "file management": chunks, a
// chunk table for each file, devices in turn.
//
//   kFree --take [reader]--> kFilling --filled--> kClean --write--> kDirty
//   kDirty --begin_write_back--> kWriting --written--> kClean
//   kWriting --written, but changed meanwhile or failed--> kDirty
//   kClean --a victim, or dropped--> kFree
//   kFilling --not filled, or dropped--> kFree
//
// Invariants (check_invariants): 1. A chunk of a file is in memory at most once. 2. A chunk is
// free, in the table of its file, or stale. It is in one list at most: the free ones of its slab,
// the clean ones, the dirty ones, or the dirty ones of files that are set aside. 3. A chunk that is
// pinned or dirty is not given to another file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/status.h"

namespace penstock::chunk_cache {

using ChunkId = uint32_t;  // slab * chunks of a slab + place in the slab
using FileId = uint32_t;
inline constexpr uint32_t kNone = ~0u;

enum class State : uint8_t { kFree, kFilling, kClean, kDirty, kWriting };

struct Options {
    uint32_t chunk_size = 64 << 10;  // bytes, a power of two
    uint32_t slab_chunks = 1024;     // 64 MiB at 64 KiB each
    uint32_t files_max = 1 << 20;
};

// A range of one file's bytes in a chunk, relative to the chunk.
struct Range {
    uint32_t begin = 0, end = 0;
    [[nodiscard]] bool empty() const { return begin >= end; }
};

struct Chunk {
    State state = State::kFree;
    bool touched = false;  // used since the hand came by
    bool stale = false;    // it has left the table, but pins or a write-back still use its memory
    bool again = false;    // of a kWriting chunk: it was written meanwhile
    uint32_t pins = 0;     // readers and writers of its bytes
    FileId file = kNone;
    uint64_t number = 0;  // offset / chunk size
    uint64_t turn = 0;    // of a kDirty chunk: the larger, the later it became so
    Range dirty;          // what a write-back must write
    Range writing;        // what the one under way writes
};

struct Statistics {
    uint64_t hits = 0, misses = 0, evicted = 0;
    uint64_t chunks = 0, free = 0, clean = 0, dirty = 0, busy = 0;  // busy: filling or writing
};

// Whoever publishes chunks to readers that do not call find().
class Publisher {
public:
    virtual ~Publisher() = default;
    // A chunk has left the table of its file: its memory may get other bytes from now on.
    virtual void left(ChunkId chunk) = 0;
    // Returns whether such a reader has used the chunk since this was asked last.
    virtual bool used(ChunkId chunk) = 0;
};

class ChunkCache {
public:
    explicit ChunkCache(const Options& options);
    void set_publisher(Publisher* publisher) { publisher_ = publisher; }

    // ---- Memory
    // Adds a slab of a device. Returns its number.
    uint32_t add_slab(uint32_t device);
    // Gives up a slab: drops its clean chunks and hands out none. Returns how many of its chunks
    // are still in use: call again when these have been written, or their pins are gone. At 0 its
    // memory may be freed.
    uint32_t retire_slab(uint32_t slab);
    // Uses a slab again: one that is retired, with new memory, or one that was to be.
    void restore_slab(uint32_t slab);
    // Hands out no more chunks of a slab. What is in it stays.
    void close_slab(uint32_t slab);
    // Returns the oldest chunk of a slab that waits for its write-back; kNone: there is none.
    [[nodiscard]] ChunkId dirty_in(uint32_t slab) const;
    // Returns how many chunks can be taken without another one's leaving.
    [[nodiscard]] uint64_t free_count() const { return free_count_; }
    // Returns how many slabs give memory.
    [[nodiscard]] uint32_t open_slabs() const { return open_slabs_; }
    [[nodiscard]] uint32_t slab_of(ChunkId chunk) const { return chunk / options_.slab_chunks; }
    // Returns the slab of `device` that is cheapest to retire: the one with the fewest dirty
    // chunks, then with the fewest others. kNone: it has none.
    [[nodiscard]] uint32_t cheapest_slab(uint32_t device) const;

    // ---- Files
    // Errors: ENFILE, files_max are known.
    Result<FileId> add_file();
    // Forgets a file. Its clean chunks are dropped. EBUSY: it has dirty chunks, or pinned ones.
    Status remove_file(FileId file);

    // ---- Reading
    // Returns the chunk if its bytes can be used or are on their way (kFilling); kNone: absent.
    ChunkId find(FileId file, uint64_t number);
    // Returns the chunk if its bytes can be used, which counts as a hit; kNone counts as nothing.
    ChunkId find_ready(FileId file, uint64_t number);
    // Returns the chunk that is there or on its way, and counts nothing; kNone: absent.
    [[nodiscard]] ChunkId at(FileId file, uint64_t number) const { return look_up(file, number); }
    [[nodiscard]] bool holds(FileId file, uint64_t number) const {
        return look_up(file, number) != kNone;
    }
    // Takes memory for an absent chunk: free, else that of a clean one. It is kFilling and pinned
    // once. Returns kNone if there is none: everything is dirty, pinned or on its way.
    ChunkId take(FileId file, uint64_t number);
    // Ends what take() began. Returns whether the chunk is now clean; else its memory is free
    // again when its last pin is gone: the bytes did not come, or the file has changed meanwhile.
    bool filled(ChunkId id, bool good);
    void pin(ChunkId id);
    void unpin(ChunkId id);

    // ---- Writing
    // Records that bytes of a chunk that is not kFilling were changed, under a pin.
    void write(ChunkId id, Range range);
    // Begins the write-back of the oldest dirty chunk, of one file or (kNone) of any that is not
    // set aside, and of those that follow it in the file, as far as each begins where the last
    // ended. Returns them in the order of the file: as many as `run` has room for.
    std::span<const ChunkId> begin_write_back(FileId file, std::span<ChunkId> run);
    // The same for a given dirty chunk (kDirty), and those that follow it.
    std::span<const ChunkId> begin_run(ChunkId id, std::span<ChunkId> run);
    // Ends the write-back of one chunk. If it failed, the chunk is dirty as before.
    void written(ChunkId id, bool good);
    // Sets a file aside, whose write-back fails, so that it does not hold up others; or takes it
    // back, and then it is the next.
    void set_aside(FileId file, bool aside);
    // Returns how many chunks of such files wait for their write-back.
    [[nodiscard]] uint64_t aside_count() const { return aside_.count; }

    // ---- Dropping
    // Forgets what lies in [first, last] of a file, dirty or not: it was cut off, or its storage
    // has other bytes now. What is pinned or on its way is given up when that ends.
    void drop(FileId file, uint64_t first, uint64_t last);

    [[nodiscard]] const Chunk& chunk(ChunkId id) const { return chunks_[id]; }
    // Goes through the chunks of a file that are in its table; kNone: there are no more.
    [[nodiscard]] ChunkId first_of(FileId file) const { return files_[file].first; }
    [[nodiscard]] ChunkId next_of(ChunkId id) const { return links_[id].file_next; }
    // Returns the chunk that has waited longest for its write-back (kDirty), of all files that are
    // not set aside; kNone: there is none.
    [[nodiscard]] ChunkId first_dirty() const { return dirty_.first; }
    [[nodiscard]] uint32_t chunks_of(FileId file) const { return files_[file].chunks; }
    [[nodiscard]] uint32_t dirty_of(FileId file) const { return files_[file].dirty; }
    [[nodiscard]] uint64_t dirty_count() const { return dirty_count_; }  // with kWriting
    // Returns where the last dirty byte of a file ends; 0: nothing is dirty.
    [[nodiscard]] uint64_t dirty_end_of(FileId file) const;
    [[nodiscard]] Statistics statistics() const;
    struct Use {
        uint64_t chunks = 0, free = 0, dirty = 0;
    };
    [[nodiscard]] Use use_of(uint32_t device) const;
    // Returns the number of the first broken invariant, or 0.
    [[nodiscard]] int check_invariants() const;

private:
    // A list of chunks: each is in at most one, so the links lie in the chunks.
    struct List {
        ChunkId first = kNone, last = kNone;
        uint32_t count = 0;
    };
    struct Links {
        ChunkId previous = kNone, next = kNone;            // in its List
        ChunkId file_previous = kNone, file_next = kNone;  // among those of its file
        ChunkId bucket_next = kNone;
    };
    struct Slab {
        uint32_t device = 0;
        bool used = false, retiring = false;
        uint32_t taken = 0;  // chunks that are not free
        uint32_t dirty = 0;  // of them, with kWriting
        List free;
    };
    struct File {
        ChunkId first = kNone;
        uint32_t chunks = 0, dirty = 0;  // dirty: with kWriting
        bool aside = false;
    };

    void append(List& list, ChunkId id);
    void prepend(List& list, ChunkId id);
    void remove(List& list, ChunkId id);
    [[nodiscard]] size_t bucket_of(FileId file, uint64_t number) const;
    [[nodiscard]] ChunkId look_up(FileId file, uint64_t number) const;
    void enter(ChunkId id, FileId file, uint64_t number);
    void leave_table(ChunkId id);
    void grow_buckets();
    [[nodiscard]] ChunkId take_free();
    [[nodiscard]] size_t next_turn() const { return turn_ + 1 < slabs_.size() ? turn_ + 1 : 0; }
    [[nodiscard]] ChunkId take_victim();
    void make_free(ChunkId id);
    [[nodiscard]] List& dirty_list_of(FileId file) { return files_[file].aside ? aside_ : dirty_; }
    [[nodiscard]] ChunkId oldest_dirty(FileId file) const;
    void set_dirty(ChunkId id);
    void set_clean(ChunkId id);
    void end_dirty(ChunkId id);
    void detach(ChunkId id);
    void give_up(ChunkId id);

    Options options_;
    Publisher* publisher_ = nullptr;
    std::vector<Slab> slabs_;
    std::vector<Chunk> chunks_;
    std::vector<Links> links_;
    std::vector<ChunkId> buckets_;
    std::vector<File> files_;
    std::vector<FileId> free_files_;
    List clean_;  // the hand goes round it: from the first, and back to the end
    List dirty_;  // oldest first
    List aside_;  // dirty ones of files that are set aside
    uint64_t dirty_count_ = 0;
    uint64_t free_count_ = 0;  // in slabs that give memory
    uint64_t turns_ = 0;       // chunks that have become dirty
    uint32_t open_slabs_ = 0;
    uint32_t turn_ = 0;  // the slab that gave the last free chunk
    uint64_t hits_ = 0, misses_ = 0, evicted_ = 0;
};

}  // namespace penstock::chunk_cache
