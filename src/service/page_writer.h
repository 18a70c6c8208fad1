// Writes dirty pages from frames to their files: runs of dirty granules, joined with neighbours,
// are given to the executor as writes.
//
// Each worker has one; one thread at a time. The constructor takes all memory. If the host cannot
// address the device's memory, snapshots and frames are first copied to pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "service/file_table.h"
#include "transfer/executor.h"

namespace penstock::service {

class PageWriter {
public:
    // Counts of what was written and what failed.
    struct Done {
        uint64_t operations = 0, bytes = 0, failed_pages = 0;
    };
    // Receives the outcomes of reads that `executor` makes at the same time. Their cookies are
    // addresses; those of writes are less than kExtentsMax.
    using OtherOutcome = std::function<void(const transfer::Outcome&)>;

    // `state` is as the host sees it. If `device` is not host-addressable, its pointers are the
    // device's. ENOMEM, or an error of the device.
    static Result<std::unique_ptr<PageWriter>> create(backend::Device& device,
                                                      FileSystemState& state, FileTable& files,
                                                      transfer::Executor& executor);
    ~PageWriter();
    PageWriter(const PageWriter&) = delete;
    PageWriter& operator=(const PageWriter&) = delete;

    // Writes the pages of the requests: at most kDrainMax of kWritePage, sorted by file and page.
    // Stores their write completions. After an error no more of them can be stored.
    Status write(std::span<const Request> requests, const OtherOutcome& other, Done* done);
    // Writes bytes that lie in no page, of a file that is written once (device/write_once.cuh).
    // Returns 0 or the errno of write(2).
    int write_bytes(transfer::Source& source, uint64_t offset, std::span<std::byte> bytes,
                    const OtherOutcome& other, Done* done);

private:
    static constexpr size_t kPiecesMax = 512, kExtentsMax = 64;
    // Adjacent bytes of a file in pieces of memory. They belong to requests_[first] to
    // requests_[last].
    struct Extent {
        transfer::Source* source = nullptr;
        uint64_t offset = 0, size = 0;
        size_t piece = 0, pieces = 0;
        size_t first = 0, last = 0;
    };

    PageWriter(backend::Device& device, FileSystemState& state, FileTable& files,
               transfer::Executor& executor);
    Status write_some(size_t first, size_t count, const OtherOutcome& other);
    Status fetch(size_t first, size_t count);
    void add_snapshots(size_t first, size_t count);
    void add_part(void* to, const void* from, size_t size);
    void gather(size_t request, const uint64_t* snapshot, const std::byte* frame,
                transfer::Source* source, const OtherOutcome& other);
    void add(size_t request, transfer::Source* source, uint64_t offset, iovec bytes,
             const OtherOutcome& other);
    void execute(const OtherOutcome& other);
    void settle(const transfer::Outcome& outcome);
    Status complete(size_t first, size_t count);

    backend::Device& device_;
    FileSystemState& state_;
    FileTable& files_;
    transfer::Executor& executor_;
    const uint64_t page_size_;
    const bool direct_;
    size_t staged_max_ = limits::kDrainMax;  // pages at a time
    // Used if the host cannot address the device's memory:
    std::byte* staging_ = nullptr;   // pinned: pages, then their snapshots, then their words
    uint64_t* snapshots_ = nullptr;  // in staging_: kGapsSize more than staged_max_ snapshots
    uint64_t* words_ = nullptr;      // in staging_
    backend::StreamId stream_ = 0;
    std::vector<backend::CopyPart> parts_;
    const uint64_t* snapshot_of_[limits::kDrainMax] = {};  // in staging, by request

    std::span<const Request> requests_;  // the current requests
    Done* done_ = nullptr;
    int errors_[limits::kDrainMax] = {};
    iovec pieces_[kPiecesMax];
    Extent extents_[kExtentsMax];
    size_t piece_count_ = 0, extent_count_ = 0;
    std::vector<transfer::Outcome> outcomes_;
    std::vector<std::shared_ptr<transfer::Source>> sources_;
};

}  // namespace penstock::service
