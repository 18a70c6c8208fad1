// The threads that execute jobs. Callers of run() take part in the work. Any thread.
#pragma once

#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "storage/storage.h"
#include "transfer/executor.h"
#include "transfer/job.h"

namespace penstock::transfer {

class Engine {
public:
    struct Options {
        unsigned threads = 2;  // 1 to kThreadsMax
        Executor::Limits limits;
    };
    static constexpr unsigned kThreadsMax = 64;

    // Makes an engine. `device` serves jobs in device memory that the host cannot address; null:
    // there are no such jobs. It must outlive the engine. EINVAL; EAGAIN: no more threads can be
    // started; or an error of the storage or device.
    static Result<std::unique_ptr<Engine>> create(const std::shared_ptr<storage::Storage>& storage,
                                                  backend::Device* device, const Options& options);
    // Requires that no job is left: each job keeps the object that owns its engine. Must not run on
    // a thread of an engine, which cannot wait for itself.
    ~Engine();
    [[nodiscard]] static bool on_own_thread();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Gives `job` to the threads.
    void start(const std::shared_ptr<Job>& job);
    // Executes `job` on this thread, with help of the threads. Returns when it is done.
    void run(const std::shared_ptr<Job>& job);
    // Calls Executor::move_small() on this thread. Returns false if all executors are in use; the
    // caller must then make a job. If `begun_ns` is not null, it gets the time at which the
    // transfer began.
    bool move_small(Source& source, const Piece& piece, bool write, const ReadOptions& options,
                    SmallOutcome* out, uint64_t* begun_ns = nullptr);
    // Returns the window size for a job of `size` bytes, so that all threads have work, and the
    // caller too if it takes part. `hot`: the job most likely consists of copies only, as writes
    // do.
    [[nodiscard]] uint64_t window_size(uint64_t size, bool hot, bool with_caller,
                                       bool device_memory) const;

private:
    class Core;

    explicit Engine(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    const std::shared_ptr<Core> core_;
    std::vector<std::thread> threads_;
};

}  // namespace penstock::transfer
