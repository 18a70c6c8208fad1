// A file on a quick local disk that holds copies of clean chunks, so that these need not be read
// from slower storage again. The files below stay the truth: a copy may be dropped at any time, and
// an error of the tier ends its use, and nothing else.
//
// The file has no name and all of its space from the start. The lock of the cache protects all
// calls. Bytes are moved by the cache, which holds no lock meanwhile.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chunk_cache/chunk_cache.h"
#include "file/file_below.h"

namespace penstock::file {

class FastTier {
public:
    using ChunkId = chunk_cache::ChunkId;
    using FileId = chunk_cache::FileId;
    // A copy that is to be made, of a chunk in memory. Both chunks are pinned.
    struct Copy {
        ChunkId from = chunk_cache::kNone, to = chunk_cache::kNone;
    };
    static constexpr uint64_t kChunksMin = 1024;
    // Copies that wait. Each pins a chunk in memory, so they are an eighth of the smallest cache.
    static constexpr size_t kQueueMax = 128;

    // Makes the file in `folder` and takes its space. `size` 0: 16 GiB, or half of what is free if
    // that is less. `devices` are those of the cache, which outlives the tier. Errors: those of
    // open(2) for the folder; EINVAL for a size out of range; ENOSPC; EOPNOTSUPP where the file
    // system cannot reserve space.
    static Result<std::unique_ptr<FastTier>> create(const std::string& folder, uint64_t size,
                                                    uint32_t chunk_size,
                                                    const std::vector<Device>& devices);

    // Files have the same numbers as in the cache.
    void add_file(FileId file);
    void remove_file(FileId file);
    void drop(FileId file, uint64_t first, uint64_t last) { chunks_.drop(file, first, last); }

    // Returns whether the tier can give the bytes of a chunk.
    [[nodiscard]] bool holds(FileId file, uint64_t number) const;
    // Returns such a chunk, pinned.
    ChunkId pin(FileId file, uint64_t number);
    void unpin(ChunkId id) { chunks_.unpin(id); }
    [[nodiscard]] uint64_t offset_of(ChunkId id) const { return uint64_t{id} * chunk_size_; }
    [[nodiscard]] const FileBelow& file() const { return file_; }

    // Takes room for a copy of a chunk in memory, which the caller has pinned, and queues it.
    // Returns false, and does nothing, where there is no room or too much is queued.
    bool offer(FileId file, uint64_t number, ChunkId from);
    // Returns the next copies that are still wanted, as many as `room` takes. `unwanted`
    // gets the chunks in memory of copies that were dropped: the caller unpins them.
    std::span<Copy> next(std::span<Copy> room, std::vector<ChunkId>* unwanted);
    // Ends a copy. It is used from now on if it is good and the file has not changed meanwhile.
    // Returns whether it is.
    bool copied(const Copy& copy, bool good);

    // Ends the use of the tier, with the error because of which.
    void fail(const Status& status) { error_ = status; }
    [[nodiscard]] const Status& error() const { return error_; }
    [[nodiscard]] uint64_t size() const { return size_; }
    [[nodiscard]] uint64_t used_size() const;

private:
    FastTier(uint64_t size, uint32_t chunk_size, FileBelow file);

    const uint64_t size_;
    const uint32_t chunk_size_;
    const FileBelow file_;
    chunk_cache::ChunkCache chunks_;
    std::deque<Copy> queue_;
    Status error_;
};

}  // namespace penstock::file
