// Dirty pages on their way from frames to their files: runs of dirty granules, neighbours together,
// given to the executor as writes.
//
// Each server has one; one thread at a time. All memory is taken at construction. Where the host
// cannot address the device's memory, snapshots and frames come to pinned memory first.
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
    // What was written, and with which errors.
    struct Done {
        uint64_t operations = 0, bytes = 0, failed_pages = 0;
    };
    // Outcomes of reads that `executor` is at too.
    using OtherOutcome = std::function<void(const transfer::Outcome&)>;

    // `state` as the host sees it; where `device` is not host-addressable, its pointers are the
    // device's. ENOMEM, errors of the device.
    static Result<std::unique_ptr<PageWriter>> create(backend::Device& device,
                                                      FileSystemState& state, FileTable& files,
                                                      transfer::Executor& executor);
    ~PageWriter();
    PageWriter(const PageWriter&) = delete;
    PageWriter& operator=(const PageWriter&) = delete;

    // Writes what the requests name, at most kDrainMax of kWritePage, sorted by file and page, and
    // stores their write completions. An error: no more of them can be stored.
    Status write(std::span<const Request> requests, const OtherOutcome& other, Done* done);
    // Bytes that lie in no page: of a file that is written once (device/write_once.cuh). 0, or what
    // write(2) says.
    int write_bytes(transfer::Source& source, uint64_t offset, std::span<std::byte> bytes,
                    const OtherOutcome& other, Done* done);

private:
    static constexpr size_t kPiecesMax = 512, kExtentsMax = 64;
    // Adjacent bytes of a file, in pieces of memory: those of requests_[first] to [last].
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
    // Where the host cannot address the device's memory.
    std::byte* staging_ = nullptr;   // pinned: pages, then their snapshots, then their words
    uint64_t* snapshots_ = nullptr;  // in it: kGapsSize more than those of staged_max_ pages
    uint64_t* words_ = nullptr;      // in it
    backend::StreamId stream_ = 0;
    std::vector<backend::CopyPart> parts_;
    const uint64_t* snapshot_of_[limits::kDrainMax] = {};  // in staging, of each request in hand

    std::span<const Request> requests_;  // in hand
    Done* done_ = nullptr;
    int errors_[limits::kDrainMax] = {};
    iovec pieces_[kPiecesMax];
    Extent extents_[kExtentsMax];
    size_t piece_count_ = 0, extent_count_ = 0;
    std::vector<transfer::Outcome> outcomes_;
    std::vector<std::shared_ptr<transfer::Source>> sources_;
};

}  // namespace penstock::service
