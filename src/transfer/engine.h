// Threads that execute jobs, and callers that do their part. Any thread.
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

    // `device`: of jobs in device memory that the host cannot address; null: there are none.
    // It must outlive the engine. EINVAL; EAGAIN: no more threads are to be had; what storage and
    // device say.
    static Result<std::unique_ptr<Engine>> create(const std::shared_ptr<storage::Storage>& storage,
                                                  backend::Device* device, const Options& options);
    // No job is left: each keeps what owns its engine. Not on a thread of an engine, which cannot
    // wait for itself.
    ~Engine();
    [[nodiscard]] static bool on_own_thread();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Leaves `job` to the threads.
    void start(const std::shared_ptr<Job>& job);
    // Does `job` on this thread with the threads' help; returns when it is done.
    void run(const std::shared_ptr<Job>& job);
    // Executor::read_small or write_small on this thread; false: everything is busy, make a job of
    // it. `begun_ns`: null, or gets when it began to move bytes.
    bool move_small(Source& source, const Piece& piece, bool write, const ReadOptions& options,
                    SmallOutcome* out, uint64_t* begun_ns = nullptr);
    // How long the windows of a job of `size` bytes are, so that all threads have work, and its
    // caller if he takes part. `hot`: it is most likely copies and nothing else, as writes are.
    [[nodiscard]] uint64_t window_size(uint64_t size, bool hot, bool with_caller,
                                       bool device_memory) const;

private:
    class Core;

    explicit Engine(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    const std::shared_ptr<Core> core_;
    std::vector<std::thread> threads_;
};

}  // namespace penstock::transfer
