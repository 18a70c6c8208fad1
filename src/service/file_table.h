// Knows which file is in which slot: open, closed but known, or changed since. It is the host's
// side of descriptors.
//
// A file is known by its identity (device, inode, generation), not by its name. A slot keeps its
// pages after the last close, and serves them again if the file has not changed (close-to-open). A
// changed file gets a new slot, while old descriptors go on with the old one. Any thread.
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
    // `state` is as the host reaches it. If the host can address the page table, it is the table
    // itself; then `device_files` is state->files and `dropper` is null. Otherwise it is a copy,
    // whose file slots are sent to `device_files`. If `costs_of` is empty, all files share costs
    // that start with the defaults.
    FileTable(std::shared_ptr<storage::Storage> storage, backend::Device* device,
              backend::StreamId stream, FileSystemState* state, FileState* device_files,
              std::unique_ptr<PageDropper> dropper, transfer::CostsOf costs_of = {});
    FileTable(const FileTable&) = delete;
    FileTable& operator=(const FileTable&) = delete;

    // Opens a file. `flags` are those of gopen. Fails with the errno of open(2). EFBIG: more pages
    // than the page table has room for. ENFILE: all slots are in use. EBUSY: to be truncated or
    // written once, but open already. EAGAIN: its last writer is discarding what could not
    // be written; try again.
    Result<Descriptor> open(const std::string& path, int flags, Opener opener);
    // Marks the pages of a slot as invalid, because they may differ from the file. A later open
    // drops them.
    void invalidate(uint32_t slot);
    // Closes a descriptor and returns 0. Returns kWriteBackFirst or kForgetFirst if that must come
    // first; nothing is closed then (see Closing). EBADF. With kReclaim, a file that only kernels
    // may write is given up as by its last writer, and nothing is closed.
    Result<int64_t> close(Descriptor descriptor, Opener opener, Closing how = Closing::kAsks);
    // Makes written data durable. EBADF, or an error of the disk.
    Status sync(Descriptor descriptor);
    // Truncates the file on the host; GPU threads handle the pages. EBADF, or an error of
    // ftruncate(2).
    Status truncate(Descriptor descriptor, uint64_t size);
    Status unlink(const std::string& path) { return storage_->unlink(path); }
    // Returns the open file of a request, or null if it has been closed meanwhile. No thread pins
    // the pages of a kReadWindow, so its slot may serve another file by now; that also gives null.
    std::shared_ptr<transfer::Source> find(const Request& request) const;
    // Returns null if the file is not open.
    std::shared_ptr<transfer::Source> source_of(Descriptor descriptor);
    // Returns the file's size. EBADF.
    Result<uint64_t> size(Descriptor descriptor) const;

    // Returns whether the file is open for writing, or has been since it was opened. Then bytes
    // that the host does not have are zeros, and GPU threads know the size.
    [[nodiscard]] bool is_written(uint32_t slot) const;

    // number_of() returns the number of the file in this slot. A file keeps it while its pages may
    // be cached, and no other file ever has it. descriptor_of() returns the file's descriptor
    // without counting a reference, or -EBADF if it is not open now.
    [[nodiscard]] uint64_t number_of(uint32_t slot) const {
        return numbers_[slot].load(std::memory_order_relaxed);
    }
    [[nodiscard]] Descriptor descriptor_of(uint64_t number) const;
    // Returns the path by which the file was last opened while it was closed. Empty if there is
    // none.
    [[nodiscard]] std::string path_of(uint32_t slot) const;
    // Returns the same for the file with this number. Returns nothing if its slot has another file,
    // or if the table is busy, because this call does not wait.
    [[nodiscard]] std::optional<std::string> path_of_number(uint64_t number) const;

    [[nodiscard]] uint64_t size_of(uint32_t slot) const;
    // Records that a read found only `bytes` bytes of the page at `begin`: the file now ends there.
    // If it found none, the file ends at its current size. ESTALE: the slot serves another file by
    // now.
    Status shrink(const Request& request, uint64_t begin, uint64_t bytes);

    // Stores the response word of a control call, after everything that was sent to the device for
    // the call.
    Status announce(uint64_t& response, uint64_t value);

    // Sets a function that is called when a slot is given to another file: before that file can be
    // read, and while the slot has the number and path of the old one. The function must not call
    // what locks the table. Set it once, before any file is opened.
    using Reused = std::function<void(uint32_t, const std::string&)>;
    void on_reuse(Reused reused) { reused_ = std::move(reused); }

    // Returns a descriptor of each file that is open for writing, without counting a reference.
    [[nodiscard]] std::vector<Descriptor> written_files() const;

    [[nodiscard]] uint64_t open_count() const;
    // Closes the files that kernels opened and did not close. Returns how many.
    uint64_t close_kernel_files();

private:
    struct Slot {
        std::shared_ptr<transfer::Source> source;  // null when closed
        std::shared_ptr<SyncGroup> syncs;          // since the slot was opened
        std::string path;                          // by which it was opened
        storage::Identity identity;
        bool superseded = false;  // the file has changed: the slot accepts no more opens
        bool racy = false;        // its times were so recent that they may hide a later change
        uint32_t references = 0, kernel_references = 0;
        uint32_t writers = 0, kernel_writers = 0;  // references that may write
        bool unwritten = false;              // a writer has closed it since the last write-back
        bool discarding = false;             // no opens until unwritten data is discarded
        bool invalidated = false;            // see invalidate(); until its pages are dropped
        std::list<uint32_t>::iterator idle;  // its place in idle_ while it is closed and known
    };
    // Identifies a file, whatever its content.
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

    // What an open asks for besides the path.
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

    // By slot: (serial number of its file) << 16 | slot. 0: it never had a file. Written
    // with mutex_ held.
    std::vector<std::atomic<uint64_t>> numbers_;
    mutable std::mutex mutex_;  // guards all members below, and the host's stores to state_->files
    std::vector<Slot> slots_;
    uint32_t used_ = 0;                                 // count of slots used so far
    std::vector<uint32_t> empty_;                       // used slots that have no file now
    std::unordered_map<Key, uint32_t, KeyHash> known_;  // the slots of files not superseded
    std::list<uint32_t> idle_;  // closed slots with pages: superseded, then closed longest ago
    uint64_t open_count_ = 0;   // references of all slots
    uint64_t file_count_ = 0;   // files that ever had a slot
    DirectorySpace directory_;  // words that no file has
};

}  // namespace penstock::service
