// Learns what kernels read, and has it in the cache before their next launch.
//
// Told of every launch on the device. A launch that begins while nothing else runs is recorded; if
// its kernel is known by then, a kernel goes ahead of it in its stream that asks for what it missed
// the last time (readahead/kernel_memory.h says when that is trusted). Launches put in behind
// others that still run are neither recorded nor helped: whose pages are asked for could not be
// told. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/kernel.h"
#include "readahead/kernel_memory.h"
#include "service/file_table.h"
#include "service/prefetch_pages.h"

namespace penstock::service {

class LaunchLearner {
public:
    // `state`: as GPU threads address it; `pages_max`: that may be read ahead of a launch. ENOMEM,
    // and what the device says; ENOSYS: the library's own kernel is not in this program.
    static Result<std::unique_ptr<LaunchLearner>> create(backend::Device* device, FileTable* files,
                                                         FileSystemState* state,
                                                         uint64_t pages_max);
    ~LaunchLearner();
    LaunchLearner(const LaunchLearner&) = delete;
    LaunchLearner& operator=(const LaunchLearner&) = delete;

    // `request` is about to be put into `stream`.
    void before_launch(backend::StreamId stream, const LaunchRequest& request);
    // Pages that blocks had to ask for, in their order.
    void note(std::span<const Request> requests) {
        if (records_.load(std::memory_order_relaxed)) record(requests);
    }

private:
    static constexpr size_t kRangesMax = 4096;
    static constexpr uint64_t kRangePagesMax = 256;  // longer ones are work for several blocks

    LaunchLearner(backend::Device* device, FileTable* files, FileSystemState* state,
                  uint64_t pages_max)
        : device_(device), files_(files), state_(state), pages_max_(pages_max) {}
    void record(std::span<const Request> requests);
    void tell_memory();
    size_t write_ranges(const std::vector<readahead::PageRun>& runs);
    void put_ahead(backend::StreamId stream, size_t ranges);

    backend::Device* const device_;
    FileTable* const files_;
    FileSystemState* const state_;
    const uint64_t pages_max_;
    PrefetchRange* ranges_ = nullptr;  // pinned; of the last launch that was helped

    // What blocks missed since the launch began, by the block's number: one lock for all would pass
    // from CPU to CPU with every miss. The order of a block's misses is theirs.
    struct Miss {
        uint64_t block;
        readahead::PageRun pages;
    };
    struct alignas(64) Notes {
        std::mutex mutex;  // behind mutex_, if both are taken
        std::vector<Miss> misses;
    };
    static constexpr size_t kNotesMax = 16;
    // Room is taken in lots. Each of the notes has at most one that is not full: when there are no
    // more, more has been noted than is of use.
    static constexpr size_t kLotSize = readahead::KernelMemory::kMissesMax / kNotesMax;
    static constexpr uint32_t kLotsMax = 2 * kNotesMax;
    static_assert((kLotsMax - (kNotesMax - 1)) * kLotSize > readahead::KernelMemory::kMissesMax);

    std::atomic<bool> records_{false};
    Notes notes_[kNotesMax];
    std::atomic<uint32_t> lots_{0};  // taken
    std::mutex mutex_;               // guards what follows, and `ranges_`
    readahead::KernelMemory memory_;
};

}  // namespace penstock::service
