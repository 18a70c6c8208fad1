// Learns which pages kernels read, and brings them into the cache before the next launch.
//
// The prefetcher is told of each launch on the device. It records a launch that begins while
// nothing else runs. If it knows the kernel by then, it puts its own kernel before the launch into
// the stream. That one requests the pages that the launch missed the last time
// (readahead/kernel_memory.h says when that is trusted) and waits for them. The launch begins only
// then, even if it would have computed first. A launch behind others that still run is neither
// recorded nor helped, because its requests cannot be told from theirs. Any thread.
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

class LaunchPrefetcher {
public:
    // `state` is as GPU threads address it. `pages_max` limits the pages read ahead of a launch.
    // ENOMEM; ENOSYS: the library's own kernel is not in this program; or an error of the device.
    static Result<std::unique_ptr<LaunchPrefetcher>> create(backend::Device* device,
                                                            FileTable* files,
                                                            FileSystemState* state,
                                                            uint64_t pages_max);
    ~LaunchPrefetcher();
    LaunchPrefetcher(const LaunchPrefetcher&) = delete;
    LaunchPrefetcher& operator=(const LaunchPrefetcher&) = delete;

    // The misses of a launch that one worker served.
    class MissLog {
        friend class LaunchPrefetcher;
        struct Miss {
            uint64_t ticket, block;
            readahead::PageRun pages;
        };
        MissLog() { misses_.reserve(kRoom); }

        // More misses are of no use. Memory that is never touched costs nothing.
        static constexpr size_t kRoom = readahead::KernelMemory::kMissesMax + 1;
        std::vector<Miss> misses_;  // written by the worker's user; never exceeds kRoom
        // Bits 32 to 63: the round of the log. Bits 0 to 31: how many misses may be read.
        alignas(64) std::atomic<uint64_t> told_{0};
    };
    // Makes the log of a worker. Call it before the first launch; it lives as long as the
    // prefetcher.
    MissLog& add_miss_log();

    // Handles a launch: `request` is about to be put into `stream`.
    void before_launch(backend::StreamId stream, const LaunchRequest& request);
    // Records the pages that blocks had to request, in the order of their tickets. Called by the
    // worker's user.
    void add_misses(MissLog& log, std::span<const Request> requests) {
        if (records_.load(std::memory_order_relaxed)) record(log, requests);
    }

private:
    static constexpr size_t kRangesMax = 4096;
    static constexpr uint64_t kRangePagesMax = 256;  // a longer range is work for several blocks

    LaunchPrefetcher(backend::Device* device, FileTable* files, FileSystemState* state,
                     uint64_t pages_max)
        : device_(device), files_(files), state_(state), pages_max_(pages_max) {}
    void record(MissLog& log, std::span<const Request> requests);
    void tell_memory();
    size_t write_ranges(const std::vector<readahead::PageRun>& runs);
    void put_ahead(backend::StreamId stream, size_t ranges);

    backend::Device* const device_;
    FileTable* const files_;
    FileSystemState* const state_;
    const uint64_t pages_max_;
    PrefetchRange* ranges_ = nullptr;  // pinned; for the last launch that was helped

    std::atomic<bool> records_{false};
    // Increases when the logs have been read. A worker whose log is of an older round starts
    // new ones. What it noted meanwhile for the older round is lost.
    std::atomic<uint32_t> round_{0};
    std::vector<std::unique_ptr<MissLog>> logs_;
    std::mutex mutex_;  // guards memory_ and `ranges_`
    readahead::KernelMemory memory_;
};

}  // namespace penstock::service
