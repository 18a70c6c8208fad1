// Starts transfers after the work that the program had queued on its streams before them. One
// thread per process polls that work, so that no engine thread waits for a GPU. Any thread.
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
    // Returns the instance of this process. The first call makes it, and the first call in the
    // child of a fork makes a new one. It is never destroyed. EAGAIN: no thread can be started.
    static Result<LaterStart*> of_process();
    // Calls `start` on the polling thread once `before` is over.
    void add(std::shared_ptr<backend::QueuedWork> before, std::function<void()> start);
    // Blocks the calling thread until `before` is over. It polls at the same intervals as the
    // polling thread.
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
