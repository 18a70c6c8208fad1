// Publishes the chunks of a file cache in memory that processes share (abi/chunk_table.h): the one
// writer of its table. The lock of the cache protects all calls but the descriptors.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "chunk_cache/chunk_cache.h"
#include "penstock/abi/chunk_table.h"
#include "storage/storage.h"

namespace penstock::file {

class SharedTable final : public chunk_cache::Publisher {
public:
    using ChunkId = chunk_cache::ChunkId;
    static constexpr uint32_t kNoSlot = ~0u;
    static constexpr uint32_t kFiles = 1 << 17;

    // Allocates the table for as many chunks. Errors: ENOMEM, ENFILE.
    static Result<std::unique_ptr<SharedTable>> create(uint32_t chunk_size, uint32_t chunk_count);
    ~SharedTable() override;
    SharedTable(const SharedTable&) = delete;
    SharedTable& operator=(const SharedTable&) = delete;

    // Returns the slot of a new file, which may not be read yet; kNoSlot: there is none for it, so
    // all its reads ask the cache.
    uint32_t add_file(uint64_t device, uint64_t inode);
    void remove_file(uint32_t slot);
    // Says what the file is now, and whether it may be read by the table. `same`: it has changed by
    // this cache alone, so readers need not look again.
    void set_file(uint32_t slot, bool readable, bool same, const storage::Identity& below,
                  uint64_t size);
    void set_size(uint32_t slot, uint64_t size);
    void set_error_count(uint64_t count) {
        table_.head->error_count.store(count, std::memory_order_relaxed);
    }

    // Raises a size to what clients have written; forget_end() before a file is cut off.
    void take_end(uint32_t slot, uint64_t* size);
    void forget_end(uint32_t slot);
    // Returns when a client has written last; 0: not since the file below was given that time.
    [[nodiscard]] int64_t mtime_of(uint32_t slot) const;
    // Says that the file below has this time, unless a client has written since.
    void forget_mtime(uint32_t slot, int64_t mtime_ns);
    [[nodiscard]] std::atomic<uint64_t>& grant_of(ChunkId chunk) { return marks_.grants[chunk]; }

    void publish(uint32_t slot, uint64_t number, ChunkId chunk);
    void left(ChunkId chunk) override;
    bool used(ChunkId chunk) override;

    struct Hits {
        uint64_t hits = 0, bytes = 0;
    };
    [[nodiscard]] Hits hits_of(uint32_t slot) const;
    [[nodiscard]] Hits all_hits() const;

    // To map in other processes: the table to read, the marks to read and write.
    [[nodiscard]] int table_descriptor() const { return table_file_; }
    [[nodiscard]] int marks_descriptor() const { return marks_file_; }

private:
    SharedTable() = default;
    void begin_life();

    int table_file_ = -1, marks_file_ = -1;
    void* table_mapping_ = nullptr;
    void* marks_mapping_ = nullptr;
    size_t table_size_ = 0, marks_size_ = 0;
    chunk_table::Table table_;
    chunk_table::Marks marks_;
    uint32_t publications_ = 0;
    uint32_t slots_used_ = 0;                           // slots below it may have been used
    std::vector<chunk_table::SharedEntry*> published_;  // of each chunk; null: it is not
    std::thread life_;  // holds the mutex that says that this process lives
    std::atomic<bool> end_{false};
    Hits removed_;  // of files that are forgotten
};

}  // namespace penstock::file
