// A thread of the process that starts transfers once the work is over that the program had queued
// on its streams before them, so that no thread of an engine waits for a GPU. Any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "penstock/status.h"

namespace penstock::file {

class LaterStart {
public:
    // Made by the first call, and again in the child of a fork; it never ends. EAGAIN: no thread is
    // to be had.
    static Result<LaterStart*> of_process();
    // Calls `start` on the thread, when `before` is over.
    void add(std::shared_ptr<backend::QueuedWork> before, std::function<void()> start);
    // Waits on the calling thread; the same pace of looks.
    static void wait(backend::QueuedWork& before);

private:
    struct Waiting {
        std::shared_ptr<backend::QueuedWork> before;
        std::function<void()> start;
        uint64_t since_ns = 0;
    };
    void work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Waiting> added_;
};

}  // namespace penstock::file
