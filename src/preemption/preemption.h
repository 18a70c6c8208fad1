// Preemptible launches of one device: their saved state, their watchers, and which block is next.
//
// launch() puts into the program's stream: on a GPU the kernel that writes the launch's state, the
// preemptible kernel and, on the CPU backend, a hold until its last block has ended. (On a GPU a
// block of the grid stays until then.) Blocks leave and are counted in the state
// (device/preemption_queue.cuh). The dispatcher's thread watches launches with blocks outside, and
// launches workers for those that are ready, in streams of its own. Any thread may call any
// function.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "penstock/preemption.h"
#include "preemption/memory_pool.h"

namespace penstock::preemption {

class Preemption {
public:
    // ENOMEM, or what the backend says. `device` must outlive the result.
    static Result<std::unique_ptr<Preemption>> create(backend::Device* device,
                                                      const PreemptionOptions& options);
    ~Preemption();
    Preemption(const Preemption&) = delete;
    Preemption& operator=(const Preemption&) = delete;

    // Errors: as Device::launch. If there is no memory for its state, the launch spins.
    Status launch(backend::StreamId stream, const PreemptibleEntry& entry, LaunchRequest request);

    void set_options(const PreemptionOptions& options);
    [[nodiscard]] PreemptionStatistics statistics() const;

private:
    static constexpr size_t kLaunchesMax = 256;  // in flight
    // Streams for workers, of each priority. A GPU has few hardware queues.
    static constexpr size_t kStreamsMax = 32, kGpuStreamsMax = 8;

    // A stream for launches of workers.
    struct WorkerStream {
        backend::StreamId id = 0;
        bool first = false;  // its blocks start before those of other streams
        int launch = -1;     // index of the one that it is used for; -1: it is idle
    };
    struct InFlight {
        bool used = false;
        size_t offset = 0;  // of its memory in the pool
        PreemptionState* state = nullptr;
        PreemptionWords* words = nullptr;
        PreemptionState* initial = nullptr;  // pinned
        LaunchRequest workers;               // the launch of workers, but for its grid
        PreemptionOptions options;
        uint64_t watch_seen = 0;
        bool watching = false, failed = false;
        bool submitted = false;  // the launch is in its stream
        uint64_t started_workers = 0;
    };

    Preemption(backend::Device* device, const PreemptionOptions& options);
    Status allocate();
    // With mutex_.
    InFlight* take(const PreemptibleEntry& entry, const LaunchRequest& request);
    void fill_state(InFlight& launch, const PreemptibleEntry& entry, const LaunchRequest& request);
    // How the dispatcher hears of what it waits for: a bell for each completion, or it must look.
    enum class Attention { kIdle, kBell, kPoll };
    struct Progress {
        uint64_t backlog, workers;  // blocks that are ready; workers that have begun
    };
    [[nodiscard]] static Progress progress_of(const InFlight& launch);
    bool step(size_t index, Attention* attention);
    bool watch_launch(InFlight& launch, Attention* attention);
    void start_workers(size_t index, const Progress& progress);
    bool end_if_over(size_t index);
    void end_all(Status cause);
    void fail(InFlight& launch, Status status);
    [[nodiscard]] unsigned look_at_streams();
    void tell_others(unsigned busy_workers);

    void work();  // the dispatcher's thread

    backend::Device* const device_;
    mutable std::mutex mutex_;
    PreemptionOptions options_;
    PreemptionStatistics totals_;
    MemoryPool pool_;
    std::byte* memory_ = nullptr;         // device memory
    PreemptionWords* words_ = nullptr;    // kLaunchesMax, and one more for the bell; pinned
    PreemptionState* initial_ = nullptr;  // kLaunchesMax; pinned
    uint64_t* bell_ = nullptr;
    std::vector<InFlight> launches_;
    size_t in_flight_count_ = 0;
    std::vector<WorkerStream> streams_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace penstock::preemption
