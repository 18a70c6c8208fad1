// Which file is in which slot: open, known, changed since; the host's side of descriptors.
//
// A file is known by its identity (device, inode, generation), not by its name. A slot keeps its
// pages after the last close and serves them again if the file has not changed (close-to-open); a
// changed file gets a slot of its own while old descriptors go on with the old one. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/status.h"
#include "service/directory_space.h"
#include "service/page_dropper.h"
#include "service/sync_group.h"
#include "storage/storage.h"
#include "transfer/source.h"

namespace penstock::service {

class FileTable {
public:
    // `state` as the host reaches it: the page table itself where it can address that
    // (`device_files` is then state->files and `dropper` null), else a copy whose file slots are
    // sent on to `device_files`. `costs_of`: empty, and all files share one that starts with
    // defaults.
    FileTable(std::shared_ptr<storage::Storage> storage, backend::Device* device,
              backend::StreamId stream, FileSystemState* state, FileState* device_files,
              std::unique_ptr<PageDropper> dropper, transfer::CostsOf costs_of = {});
    FileTable(const FileTable&) = delete;
    FileTable& operator=(const FileTable&) = delete;

    // `flags` as gopen takes them. errno of open(2); EFBIG: more pages than the page table has room
    // for; ENFILE: every slot is in use; EBUSY: to be truncated, or written once, and open already;
    // EAGAIN: its last writer is giving up what could not be written: ask again.
    Result<Descriptor> open(const std::string& path, int flags, Opener opener);
    // Pages of this slot may have what is in no file: none is trusted any more.
    void distrust(uint32_t slot);
    // 0; kWriteBackFirst or kForgetFirst, and nothing is closed: see Closing. EBADF. By kReclaim:
    // a file that only kernels may write is given up as by its last writer, and nothing is closed.
    Result<int64_t> close(Descriptor descriptor, Opener opener, Closing how = Closing::kAsks);
    // What was written back lasts. EBADF, and what the disk says.
    Status sync(Descriptor descriptor);
    // Of the file on the host: GPU threads see to the pages. EBADF, and what ftruncate(2) says.
    Status truncate(Descriptor descriptor, uint64_t size);
    Status unlink(const std::string& path) { return storage_->unlink(path); }
    // The open file of a request; null when it has been closed meanwhile. Nobody holds the pages of
    // a kReadWindow: its slot may serve another file by now, which is null too.
    std::shared_ptr<transfer::Source> find(const Request& request) const;
    // Null: it is not open.
    std::shared_ptr<transfer::Source> source_of(Descriptor descriptor);
    // EBADF.
    Result<uint64_t> size(Descriptor descriptor) const;

    // Whether somebody has it open for writing, or had since it was opened: what the host does not
    // have of it are zeros then, and its size is known to GPU threads.
    [[nodiscard]] bool is_written(uint32_t slot) const;

    // A number that the file in this slot has as long as its pages may be cached, and no other file
    // ever; the file's descriptor, with no reference counted, or -EBADF where it is not open now.
    [[nodiscard]] uint64_t number_of(uint32_t slot) const {
        return numbers_[slot].load(std::memory_order_relaxed);
    }
    [[nodiscard]] Descriptor descriptor_of(uint64_t number) const;
    // What it was called when it was opened last and nobody had it open; empty where there is none.
    [[nodiscard]] std::string path_of(uint32_t slot) const;
    // Likewise of the file with this number; nothing if its slot has gone to another, or if the
    // table is busy, which is not waited for.
    [[nodiscard]] std::optional<std::string> path_of_number(uint64_t number) const;

    [[nodiscard]] uint64_t size_of(uint32_t slot) const;
    // A read found that the file of `request` has only `bytes` of the page at `begin`: from now on
    // it ends there; where it has none of them, at what its size is. ESTALE: its slot serves
    // another file by now.
    Status shrink(const Request& request, uint64_t begin, uint64_t bytes);

    // Stores the response word of a control call behind everything that was sent to the device for
    // it.
    Status announce(uint64_t& response, uint64_t value);

    // `reused(slot, path)` is called when a slot is given to another file, before that can be read
    // and while it has the number and the path of the one that it had. Must not call what
    // locks the table. Once, before any file is opened.
    using Reused = std::function<void(uint32_t, const std::string&)>;
    void on_reuse(Reused reused) { reused_ = std::move(reused); }

    // Of each file that somebody has open for writing a descriptor, with no reference counted.
    [[nodiscard]] std::vector<Descriptor> written_files() const;

    [[nodiscard]] uint64_t open_count() const;
    // Closes what kernels opened and did not close; how many.
    uint64_t close_kernel_files();

private:
    struct Slot {
        std::shared_ptr<transfer::Source> source;  // null when closed
        std::shared_ptr<SyncGroup> syncs;          // since it was opened
        std::string path;                          // that it was opened by
        storage::Identity identity;
        bool superseded = false;  // the file has changed: no further opens
        bool racy = false;  // its times were so recent that a later change may not show in them
        uint32_t references = 0, kernel_references = 0;
        uint32_t writers = 0, kernel_writers = 0;  // of the references, those that may write
        bool unwritten = false;   // one that may write has closed it since it was last written back
        bool given_up = false;    // nobody opens it until what could not be written is forgotten
        bool distrusted = false;  // see distrust(); until its pages have been dropped
        std::list<uint32_t>::iterator idle;  // its place in idle_, while it is closed and known
    };
    // A file whatever became of its bytes.
    struct Key {
        uint64_t device, inode, generation;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        size_t operator()(const Key& key) const {
            return std::hash<uint64_t>()(key.inode * 0x9e3779b97f4a7c15 ^ key.device ^
                                         key.generation << 32);
        }
    };
    static Key key_of(const storage::Identity& identity) {
        return {identity.device, identity.inode, identity.generation};
    }

    // What an open asks for beside the path.
    struct Wanted {
        int storage_flags = 0;
        Descriptor access = 0;
        uint64_t writing = 0;  // FileState::writing
        bool truncates = false;
    };
    static Result<Wanted> parse(int flags);
    Result<uint32_t> truncate_unused(storage::File& file, storage::Identity identity);
    Result<uint32_t> join(const storage::File& file, storage::Identity identity,
                          const Wanted& wanted);
    Status begin_use(uint32_t index, const Wanted& wanted);
    Status begin_writing(uint32_t index, const Wanted& wanted);
    std::optional<int64_t> before_close(uint32_t index, bool last, bool reclaims, Closing how);
    void end_writing(uint32_t index);
    Result<uint32_t> slot_for(const storage::Identity& identity, bool racy, bool grows);
    Result<uint32_t> empty_slot();
    bool is_fresh(uint32_t index, bool racy);
    void supersede(uint32_t index);
    bool forget(uint32_t index);
    bool drop_pages(uint32_t index);
    bool forget_some();
    [[nodiscard]] uint64_t directory_words(uint64_t size, bool grows) const;
    Status reserve_directory(uint32_t index, uint64_t size, bool grows);
    void grow_directory(uint32_t index);
    Slot* find_open(Descriptor descriptor);
    [[nodiscard]] bool is_for_slot(const Request& request) const;
    Status send(uint32_t index, bool sizes = true);
    void send_size(uint32_t index);
    void release(uint32_t index, Opener opener);

    const std::shared_ptr<storage::Storage> storage_;
    const transfer::CostsOf costs_of_;
    backend::Device* const device_;
    const backend::StreamId stream_;
    FileSystemState* const state_;
    FileState* const device_files_;
    const std::unique_ptr<PageDropper> dropper_;
    Reused reused_;

    // By slot, of its file: how many came before it << 16 | slot; 0: it never had one. Written with
    // the lock.
    std::vector<std::atomic<uint64_t>> numbers_;
    mutable std::mutex mutex_;  // guards everything below, and the host's stores to state_->files
    std::vector<Slot> slots_;
    uint32_t used_ = 0;                                 // slots that were ever used
    std::vector<uint32_t> empty_;                       // of those, the ones without a file
    std::unordered_map<Key, uint32_t, KeyHash> known_;  // the slot of each file that is not
                                                        // superseded
    std::list<uint32_t> idle_;  // closed slots with pages: superseded first, then closed longest
                                // ago
    uint64_t open_count_ = 0;   // references of all slots
    uint64_t file_count_ = 0;   // files that ever had a slot
    DirectorySpace directory_;  // what no file has
};

}  // namespace penstock::service
