// Streams and permits: decides which operation of each stream runs next, and which block runs
// where.
//
// A stream performs its operations in order. Launches wait for permits; other operations go to the
// copy engine. A resident is a pooled thread that holds a permit. It takes the next block of the
// first launch in `ready_`, which is ordered by the stream's priority and then by the time at which
// launches became ready. One lock guards everything; kernels, copies and help run without it.
// Threads own the scheduler, so a thread that the watchdog has given up may outlive the device.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/copy_engine.h"
#include "backend/cpu/resident.h"

namespace penstock::backend::cpu {

class Scheduler : public std::enable_shared_from_this<Scheduler> {
public:
    // `keep_alive` is the memory that kernels use. It is held for as long as a thread may run a
    // kernel.
    Scheduler(unsigned permit_count, double watchdog_seconds, LinkModel link,
              std::shared_ptr<void> keep_alive);
    ~Scheduler();

    // Ends all threads. Blocks stop at their next barrier or wait; the watchdog stops those that
    // reach none.
    void close();

    Status create_stream(int priority, StreamId* out);
    Status destroy_stream(StreamId id);
    Status launch(StreamId id, LaunchRequest request);
    Status copy(StreamId id, const CopyJob& job);
    Status hold(StreamId id, const uint64_t* address);
    void end_hold(const uint64_t* address, Status status);
    // The number of blocks in `ready_`. Kernels read it.
    [[nodiscard]] const uint64_t* waiting_blocks() const { return &waiting_blocks_; }
    Status synchronize(StreamId id, Deadline deadline);
    Status query(StreamId id, bool* idle);

    [[nodiscard]] bool kernels_in_flight() const;
    [[nodiscard]] uint64_t failed_launches() const { return failed_launches_.load(); }
    // ENOSPC: there are kHelpsMax already.
    Status add_help(Help help);
    // Does what waiting blocks do, on a host thread. Returns whether there was work.
    bool help();
    // Waits until no thread is in that context's step. Must not be called from a step of help.
    void remove_help(void* context);
    [[nodiscard]] std::string diagnosis() const;
    void abort(Status cause);

private:
    using Clock = std::chrono::steady_clock;

    enum class Kind : uint8_t { kCopy, kLaunch, kHold };
    struct Operation {
        Kind kind = Kind::kCopy;
        LaunchRequest request;
        const KernelEntry* kernel = nullptr;
        CopyJob job;
        const uint64_t* address = nullptr;  // kHold
    };
    struct Stream {
        int priority = 0;
        bool busy = false;               // an operation is in progress
        const uint64_t* held = nullptr;  // the word of a hold in progress
        std::deque<Operation> queue;
        Status error;  // the first since synchronize; later launches are skipped
        [[nodiscard]] bool idle() const { return !busy && queue.empty(); }
    };
    struct Launch {
        std::shared_ptr<Stream> stream;
        LaunchRequest request;
        const KernelEntry* kernel = nullptr;
        uint64_t block_count = 0;
        uint64_t next_block = 0;  // lower blocks have been taken
        unsigned running_count = 0;
        Status failure;
    };
    struct Slot {  // one permit
        std::shared_ptr<Resident> resident;
        std::shared_ptr<Launch> launch;  // whose block it runs; null: none
        language::Index3 block_index;
        uint64_t progress_seen = 0;  // watchdog: last value seen, and since when
        Clock::time_point same_since;

        // "kernel K, block (x,y,z): "
        [[nodiscard]] std::string where(const Launch& running) const;
    };

    std::shared_ptr<Stream> find_stream(StreamId id);  // needs mutex_, as all below
    void advance(const std::shared_ptr<Stream>& stream);
    void make_ready(const std::shared_ptr<Stream>& stream, Operation operation);
    void ensure_residents();
    void fail(Launch& launch, Status status, const std::string& text);
    void stop_residents(const Launch* launch);  // null: all
    void finish_block(Slot& slot);
    void complete_if_over(const std::shared_ptr<Launch>& launch);
    void skip_launch();
    void count_waiting();
    void look_at_holds(const uint64_t* failed, Status status);
    bool give_up_stuck(Clock::time_point now);

    void serve(unsigned permit, const std::shared_ptr<Resident>& resident);  // resident's thread
    void watch();                                                            // watchdog's thread

    const double watchdog_seconds_;
    const std::shared_ptr<void> keep_alive_;
    mutable std::mutex mutex_;
    std::condition_variable work_;     // residents: a block is ready, or closing
    std::condition_variable idle_;     // synchronize, close: something has ended
    std::condition_variable watched_;  // watchdog: a block runs, or closing
    std::map<StreamId, std::shared_ptr<Stream>> streams_;
    StreamId last_stream_ = 0;
    std::list<std::shared_ptr<Launch>> ready_;  // launches with blocks that no thread has taken
    std::vector<Slot> slots_;                   // by permit
    unsigned thread_count_ = 0;  // residents' threads that have not ended or been given up
    unsigned idle_resident_count_ = 0;
    unsigned running_count_ = 0;
    unsigned held_count_ = 0;  // streams with a hold in progress
    alignas(8) uint64_t waiting_blocks_ = 0;
    Status aborted_;
    std::string diagnosis_;
    bool closing_ = false;
    std::atomic<uint64_t> launches_in_flight_{0};
    std::atomic<uint64_t> failed_launches_{0};

    HelpSlots help_slots_{};
    std::mutex host_help_mutex_;  // held in a step of host_caller_; mutex_ is not taken under it
    HelpCaller host_caller_;
    std::array<std::unique_ptr<Help>, kHelpsMax> helps_;  // what the slots point to
    std::unique_ptr<CopyEngine> copy_engine_;
    std::thread watchdog_;
};

}  // namespace penstock::backend::cpu
