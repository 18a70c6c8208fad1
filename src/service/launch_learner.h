// Learns what kernels read, and has it in the cache before their next launch.
//
// Told of every launch on the device. A launch that begins while nothing else runs is recorded; if
// its kernel is known by then, a kernel goes ahead of it in its stream that asks for what it missed
// the last time (readahead/kernel_memory.h says when that is trusted) and waits until it is there:
// the launch begins only then, also where it would have computed first. Launches put in behind
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

    // What one server has noted: of a launch's misses those that it served.
    class Notes {
        friend class LaunchLearner;
        struct Miss {
            uint64_t ticket, block;
            readahead::PageRun pages;
        };
        Notes() { misses_.reserve(kRoom); }

        // More is of no use. Pages that are never touched cost nothing.
        static constexpr size_t kRoom = readahead::KernelMemory::kMissesMax + 1;
        std::vector<Miss> misses_;  // written by who has the server; never grows beyond its room
        // Bits 32 to 63: the round that they are of; below: how many there are to be read.
        alignas(64) std::atomic<uint64_t> told_{0};
    };
    // For a server, before the first launch; as long as the learner.
    Notes& add_notes();

    // `request` is about to be put into `stream`.
    void before_launch(backend::StreamId stream, const LaunchRequest& request);
    // Pages that blocks had to ask for, in the order of their tickets. By who has the server.
    void note(Notes& notes, std::span<const Request> requests) {
        if (records_.load(std::memory_order_relaxed)) record(notes, requests);
    }

private:
    static constexpr size_t kRangesMax = 4096;
    static constexpr uint64_t kRangePagesMax = 256;  // longer ones are work for several blocks

    LaunchLearner(backend::Device* device, FileTable* files, FileSystemState* state,
                  uint64_t pages_max)
        : device_(device), files_(files), state_(state), pages_max_(pages_max) {}
    void record(Notes& notes, std::span<const Request> requests);
    void tell_memory();
    size_t write_ranges(const std::vector<readahead::PageRun>& runs);
    void put_ahead(backend::StreamId stream, size_t ranges);

    backend::Device* const device_;
    FileTable* const files_;
    FileSystemState* const state_;
    const uint64_t pages_max_;
    PrefetchRange* ranges_ = nullptr;  // pinned; of the last launch that was helped

    std::atomic<bool> records_{false};
    // Counts up when the notes have been read. A server whose notes are of an older round begins
    // anew; what it noted for that meanwhile is lost.
    std::atomic<uint32_t> round_{0};
    std::vector<std::unique_ptr<Notes>> notes_;
    std::mutex mutex_;  // guards what follows, and `ranges_`
    readahead::KernelMemory memory_;
};

}  // namespace penstock::service
