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
    // No job is left: each keeps what owns its engine. May be called by an engine's own thread.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Leaves `job` to the threads.
    void start(const std::shared_ptr<Job>& job);
    // Does `job` on this thread with the threads' help; returns when it is done.
    void run(const std::shared_ptr<Job>& job);
    // One cached read into host memory on this thread; false: everything is busy, make a job of it.
    bool read_small(Source& source, uint64_t offset, std::span<const iovec> pieces, bool drop,
                    storage::Completion* out);
    // How long the windows of a job of `size` bytes are, so that all threads have work.
    [[nodiscard]] uint64_t window_size(uint64_t size) const;

private:
    class Core;

    explicit Engine(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    const std::shared_ptr<Core> core_;  // the threads' too, so that one of them may be the last
    std::vector<std::thread> threads_;
};

}  // namespace penstock::transfer
