// A thread that copies, fills and announces, in the order of submission. A link model can pace it.
//
// A job is over when its bytes have arrived and the modelled link would have delivered them. The
// link carries one job at a time, and each arrives one latency after it has left. Any thread may
// call anything.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/torn_reads.h"

namespace penstock::backend::cpu {

struct LinkModel {
    double latency_us = 0;
    double bandwidth_gbs = 0;  // 10^9 bytes/s; 0: no limit
    [[nodiscard]] bool on() const { return latency_us > 0 || bandwidth_gbs > 0; }
};

struct CopyJob {
    enum class Kind : uint8_t { kCopy, kCopyWords, kFill, kWriteValue } kind = Kind::kCopy;
    void* to = nullptr;
    const void* from = nullptr;          // kCopy, kCopyWords
    size_t size = 0;                     // bytes; unused by kWriteValue
    uint64_t value = 0;                  // kFill: the byte; kWriteValue: the word
    bool torn = base::TornReads::any();  // others may write the source meanwhile
};

// Performs the job at once, on the calling thread.
void do_copy_job(const CopyJob& job);

class CopyEngine {
public:
    explicit CopyEngine(LinkModel link);
    ~CopyEngine();  // drops jobs that have not begun
    CopyEngine(const CopyEngine&) = delete;
    CopyEngine& operator=(const CopyEngine&) = delete;

    // Submits a job. `done` is called on the engine's thread, or never if the engine is destroyed
    // before.
    void submit(const CopyJob& job, std::function<void()> done);
    [[nodiscard]] bool paced() const { return link_.on(); }

private:
    using Clock = std::chrono::steady_clock;
    struct Entry {
        CopyJob job;
        std::function<void()> done;
        Clock::time_point arrives;  // set once it is in flight
    };
    void serve();
    Clock::time_point arrival(const CopyJob& job);

    const LinkModel link_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Entry> waiting_;
    std::deque<Entry> on_the_way_;  // in order of arrival; only with a link model
    bool closing_ = false;
    Clock::time_point link_free_at_{};  // used only by the engine's thread
    std::thread thread_;
};

}  // namespace penstock::backend::cpu
