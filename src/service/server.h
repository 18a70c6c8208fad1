// One pair of hands that serves requests: takes a run from a ring, reads, completes.
//
// A worker thread has one of its own; blocks that help borrow one. One thread at a time. All memory
// is taken at construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/abi/limits.h"
#include "service/file_table.h"
#include "storage/storage.h"
#include "transfer/executor.h"

namespace penstock::service {

// Counted over all servers of a file system; relaxed.
struct Counters {
    std::atomic<uint64_t> requests{0}, reads{0}, bytes{0}, calls{0}, failed_pages{0};
    std::atomic<uint64_t> storage_ns{0}, serving_ns{0};
};

// What a server is doing, for whoever watches over it.
enum class Activity : uint32_t {
    kIdle,     // has nothing in hand
    kServing,  // holds requests; must come forward
    kStorage,  // inside a storage or driver call: counts as alive for as long as that takes
    kCall,     // answers a control call, which may be inside open(2)
};

// What all servers of one file system share. Constant but for the counters and the heads.
struct Shared {
    backend::Device* device = nullptr;
    FileSystemState* state = nullptr;  // as the host sees it
    FileTable* files = nullptr;
    Counters* counters = nullptr;
    unsigned workers = 1;  // that divide what is ready
    // Ends every wait of every kernel: what is announced can no longer be trusted.
    std::function<void(int error_number, const char* text)> abort;
    // Host ends of the rings: the next ticket to take.
    struct alignas(64) Head {
        uint64_t ticket = 0;
    } heads[limits::kRingsMax];
    std::atomic_flag port_taken[limits::kPortsMax];
};

class Server {
public:
    static Result<std::unique_ptr<Server>> create(Shared& shared, storage::Storage& storage);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Serves what is ready in ring `ring`; false: nothing was. May take as long as storage takes.
    bool serve_requests(uint32_t ring);
    // Answers control calls; false: there were none.
    bool serve_calls();

    [[nodiscard]] Activity activity() const { return activity_.load(std::memory_order_acquire); }
    // Counts up whenever the server comes forward.
    [[nodiscard]] uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }
    void beat() { beats_.fetch_add(1, std::memory_order_relaxed); }

    // For blocks that borrow a server.
    bool try_borrow() { return !borrowed_.test_and_set(std::memory_order_acquire); }
    void give_back() { borrowed_.clear(std::memory_order_release); }

    // A fault for tests: the server stops for good the next time it has requests in hand.
    void stop_with_requests() { stop_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

private:
    // Adjacent pages of one file, read by one request to the executor.
    struct Run {
        size_t first = 0, count = 0;  // of requests_
        std::shared_ptr<transfer::Source> source;
    };

    // Pinned memory that a drain is read into. There are two, so that the next drain is read while
    // the last is still being copied.
    struct Half {
        std::byte* staging = nullptr;
        uint64_t* words = nullptr;  // pinned; completion words of the requests with the same index
        uint64_t last = 0;          // value of `done_` from which on nothing of it is in use
        uint64_t limit_ns = 0;      // when that must be
    };

    Server(Shared& shared, std::unique_ptr<transfer::Executor> executor);
    Status create_staging();
    bool find_staging();
    bool look_after_copies();
    size_t divide_into_runs(size_t count);
    void read_runs(size_t runs);
    void execute_runs(size_t runs);
    size_t reap_runs();
    void finish(const Run& run, const transfer::Outcome& outcome);
    void complete(size_t index, uint64_t bytes, int error);
    void send(size_t first, size_t count);
    void answer_call(uint32_t index, ControlCall call);
    [[nodiscard]] std::byte* destination(size_t index);

    Shared& shared_;
    const std::unique_ptr<transfer::Executor> executor_;
    const uint64_t page_size_;
    // Devices that the host cannot address: pages are read into staging and copied by the copy
    // engine.
    const bool direct_;  // it can
    std::byte* staging_ = nullptr;
    // One for both halves: more streams than the driver has queues would wait for each other, and
    // for the kernels of others.
    backend::StreamId stream_ = 0;
    Half halves_[2];
    Half* half_ = halves_;      // that the requests in hand are read into
    uint64_t* done_ = nullptr;  // pinned; how far the stream is
    uint64_t sent_ = 0;         // the last value that it was told to store there
    uint64_t look_ns_ = 0;      // when to ask the driver whether the stream is well
    size_t drain_max_ = limits::kDrainMax;

    Request requests_[limits::kDrainMax];
    iovec pieces_[limits::kDrainMax];
    Run runs_[limits::kDrainMax];
    transfer::Outcome outcomes_[limits::kDrainMax];
    size_t retries_[limits::kDrainMax];
    size_t retry_count_ = 0;
    uint64_t storage_ns_ = 0;  // in storage calls, of the requests in hand

    std::atomic<Activity> activity_{Activity::kIdle};
    std::atomic<uint64_t> beats_{0};
    std::atomic<bool> stop_{false}, stopped_{false};
    std::atomic_flag borrowed_;
};

}  // namespace penstock::service
